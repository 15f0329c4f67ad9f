#include "cc/staging/compiled_runs.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "cc/base/round_up.h"

namespace byteps {
namespace {

constexpr size_t kFailedRuns = 64;
constexpr size_t kAlignment = 64;

PinnedSource HostMemory() {
  PinnedSource source;
  source.allocate = [](size_t bytes, void** address) {
    *address = std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
    if (*address != nullptr) return OkStatus();
    return ResourceExhausted("no memory for the results of exchanges, " + std::to_string(bytes) +
                             " bytes");
  };
  source.free = [](void* address, size_t) { std::free(address); };
  return source;
}

}  // namespace

Status CheckGatheredRows(const std::string& name, int64_t own_rows, int64_t all_rows,
                         const std::vector<int64_t>& rows) {
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank] == own_rows) continue;
    return InvalidArgument(
        "tensor \"" + name + "\": worker " + std::to_string(rank) + " has " +
        std::to_string(rows[rank]) + " rows and this one has " + std::to_string(own_rows) +
        ", which a function compiled by XLA cannot gather: give every worker the "
        "same number of rows, or, in TensorFlow, compile with jit_compile=False");
  }
  if (own_rows * static_cast<int64_t>(rows.size()) == all_rows) return OkStatus();
  return FailedPrecondition("tensor \"" + name +
                            "\" was compiled by XLA for another number of workers: trace the "
                            "function again");
}

struct CompiledRuns::Exchange {
  uint32_t run = 0;
  std::string name;
  const void* input = nullptr;  // in XLA's memory
  PinnedPool::Block output;
  uint64_t output_bytes = 0;
  Status mistake;  // what is wrong with a result that has come

  // ---- guarded by CompiledRuns::mutex_
  bool ended = false;
  Use use;  // of who waits for the end
};

// What the engine keeps of an exchange. It may read the input until this goes, or the input's part
// of it; the result longer.
class CompiledRuns::Kept {
 public:
  Kept(CompiledRuns* runs, ExchangePointer exchange)
      : runs_(runs), exchange_(std::move(exchange)), output_(exchange_->output) {}
  ~Kept() { DropInput(); }

  Exchange& exchange() { return *exchange_; }
  void set_status(const Status& status) { status_ = status; }
  void set_output(PinnedPool::Block output) { output_ = std::move(output); }

  void DropInput() {
    if (exchange_ == nullptr) return;
    const ExchangePointer exchange = std::move(exchange_);
    runs_->End(exchange, exchange->mistake.ok() ? status_ : exchange->mistake);
  }

 private:
  CompiledRuns* const runs_;
  ExchangePointer exchange_;
  PinnedPool::Block output_;
  Status status_ = Internal("the exchange was dropped");
};

CompiledRuns::CompiledRuns(EnqueueFunction enqueue, CallLater call_later)
    : enqueue_(std::move(enqueue)),
      call_later_(std::move(call_later)),
      memory_(PinnedPool::Create(HostMemory())) {}

Status CompiledRuns::Start(uint32_t run, ExchangeRequest request, int64_t all_rows) {
  const auto exchange = std::make_shared<Exchange>();
  exchange->run = run;
  exchange->name = request.tensor.name;
  exchange->input = request.input;
  const bool is_gather = request.tensor.kind == ExchangeKind::kGather;
  if (!is_gather) {
    exchange->output_bytes = request.tensor.ByteCount();
    BYTEPS_RETURN_IF_ERROR(memory_->Take(exchange->output_bytes, &exchange->output));
    request.output = exchange->output.get();
  }
  if (!Begin(exchange)) return OkStatus();
  const auto kept = std::make_shared<Kept>(this, exchange);
  Kept* const raw = kept.get();  // there as long as the functions are called
  if (is_gather) {
    ExchangeRequest asked;
    asked.tensor = request.tensor;
    asked.gather_rows = request.gather_rows;
    request.allocate_output = [this, raw, asked, all_rows](const std::vector<int64_t>& rows) {
      return AllocateGathered(raw, asked, all_rows, rows);
    };
  }
  request.done = [raw](const Status& status) { raw->set_status(status); };
  request.drop_input = [raw] { raw->DropInput(); };
  request.keep_alive = kept;
  enqueue_(std::move(request));
  return OkStatus();
}

void* CompiledRuns::AllocateGathered(Kept* kept, const ExchangeRequest& request, int64_t all_rows,
                                     const std::vector<int64_t>& rows) {
  Exchange& exchange = kept->exchange();
  exchange.mistake = CheckGatheredRows(request.tensor.name, request.gather_rows, all_rows, rows);
  exchange.output_bytes = request.tensor.ByteCount() * all_rows;
  if (exchange.mistake.ok())
    exchange.mistake = memory_->Take(exchange.output_bytes, &exchange.output);
  kept->set_output(exchange.output);
  return exchange.mistake.ok() ? exchange.output.get() : nullptr;
}

bool CompiledRuns::Begin(const ExchangePointer& exchange) {
  MutexLock lock(mutex_);
  const auto failure = failures_.find(exchange->run);
  if (failure != failures_.end() && failure->second.is_told) return false;
  ++at_work_;
  if (failure == failures_.end()) started_[{exchange->name, exchange->input}].push_back(exchange);
  return true;
}

// On a thread of the engine.
void CompiledRuns::End(const ExchangePointer& exchange, const Status& status) {
  std::vector<std::function<void()>> told;
  {
    MutexLock lock(mutex_);
    exchange->ended = true;
    --at_work_;
    if (!status.ok() && failures_.count(exchange->run) == 0) Fail(exchange->run, status);
    if (Use use = std::exchange(exchange->use, nullptr)) {
      if (failures_.count(exchange->run) > 0) {
        failing_.push_back({exchange->run, std::move(use)});
      } else {
        told.push_back([use = std::move(use), exchange] {
          use(OkStatus(), exchange->output.get(), exchange->output_bytes);
        });
      }
    }
    if (at_work_ == 0) {
      for (auto& [run, use] : failing_) told.push_back(Told(run, std::move(use)));
      failing_.clear();
    }
  }
  for (std::function<void()>& tell : told) call_later_(std::move(tell));
}

void CompiledRuns::WhenEnded(uint32_t run, const std::string& name, const void* input, Use use) {
  std::function<void()> tell;
  {
    MutexLock lock(mutex_);
    ExchangePointer exchange;
    if (failures_.count(run) == 0) {
      exchange = Claim({name, input});
      if (exchange == nullptr) {
        Fail(run, Internal("tensor \"" + name +
                           "\": XLA has moved it between the start and the end of its exchange"));
      }
    }
    if (exchange == nullptr) {
      if (at_work_ > 0) {
        failing_.push_back({run, std::move(use)});
        return;
      }
      tell = Told(run, std::move(use));
    } else if (exchange->ended) {
      tell = [use = std::move(use), exchange] {
        use(OkStatus(), exchange->output.get(), exchange->output_bytes);
      };
    } else {
      exchange->use = std::move(use);
      return;
    }
  }
  tell();
}

std::function<void()> CompiledRuns::Told(uint32_t run, Use use) {
  Failure& failure = failures_[run];
  if (failure.reason.ok()) failure.reason = Internal("a run of a compiled program has failed");
  failure.is_told = true;
  return [use = std::move(use), reason = failure.reason] { use(reason, nullptr, 0); };
}

CompiledRuns::ExchangePointer CompiledRuns::Claim(const Place& place) {
  const auto found = started_.find(place);
  if (found == started_.end()) return nullptr;
  ExchangePointer exchange = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) started_.erase(found);
  return exchange;
}

void CompiledRuns::Fail(uint32_t run, const Status& reason) {
  failures_[run].reason = reason;
  failed_.push_back(run);
  if (failed_.size() > kFailedRuns) {
    failures_.erase(failed_.front());
    failed_.pop_front();
  }
  // XLA asks for no end any more, and may use the memory for another run.
  for (auto it = started_.begin(); it != started_.end();) {
    auto& queue = it->second;
    const auto is_of_run = [run](const auto& exchange) { return exchange->run == run; };
    queue.erase(std::remove_if(queue.begin(), queue.end(), is_of_run), queue.end());
    it = queue.empty() ? started_.erase(it) : std::next(it);
  }
}

}  // namespace byteps
