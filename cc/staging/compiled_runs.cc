#include "cc/staging/compiled_runs.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "cc/base/copy.h"
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
  const void* place = nullptr;  // of the input, in XLA's memory
  PinnedPool::Block input;      // its copy
  PinnedPool::Block output;
  uint64_t output_bytes = 0;
  Status mistake;  // what is wrong with a result that has come

  // ---- guarded by CompiledRuns::mutex_
  bool ended = false;
  Use use;  // of who waits for the end
};

CompiledRuns::CompiledRuns(EnqueueFunction enqueue, CallLater call_later)
    : enqueue_(std::move(enqueue)),
      call_later_(std::move(call_later)),
      memory_(PinnedPool::Create(HostMemory())) {}

Status CompiledRuns::Start(uint32_t run, ExchangeRequest request, int64_t all_rows) {
  const auto exchange = std::make_shared<Exchange>();
  exchange->run = run;
  exchange->name = request.tensor.name;
  exchange->place = request.input;
  const bool is_gather = request.tensor.kind == ExchangeKind::kGather;
  const uint64_t bytes = request.tensor.ByteCount() * (is_gather ? request.gather_rows : 1);
  BYTEPS_RETURN_IF_ERROR(memory_->Take(bytes, &exchange->input));
  if (is_gather) {
    request.allocate_output = [this, raw = exchange.get(), tensor = request.tensor,
                               own_rows = request.gather_rows,
                               all_rows](const std::vector<int64_t>& rows) {
      return AllocateGathered(raw, tensor, own_rows, all_rows, rows);
    };
  } else {
    exchange->output_bytes = bytes;
    BYTEPS_RETURN_IF_ERROR(memory_->Take(bytes, &exchange->output));
    request.output = exchange->output.get();
  }
  if (!Begin(exchange)) return OkStatus();
  CopyPastCache(exchange->input.get(), request.input, bytes);
  request.input = exchange->input.get();
  request.keep_alive = exchange;
  request.drop_input = [raw = exchange.get()] { raw->input = nullptr; };
  request.done = [this, exchange](const Status& status) { End(exchange, status); };
  enqueue_(std::move(request));
  return OkStatus();
}

void* CompiledRuns::AllocateGathered(Exchange* exchange, const TensorDescription& tensor,
                                     int64_t own_rows, int64_t all_rows,
                                     const std::vector<int64_t>& rows) {
  exchange->mistake = CheckGatheredRows(tensor.name, own_rows, all_rows, rows);
  exchange->output_bytes = tensor.ByteCount() * all_rows;
  if (exchange->mistake.ok())
    exchange->mistake = memory_->Take(exchange->output_bytes, &exchange->output);
  return exchange->mistake.ok() ? exchange->output.get() : nullptr;
}

bool CompiledRuns::Begin(const ExchangePointer& exchange) {
  MutexLock lock(mutex_);
  const auto failure = failures_.find(exchange->run);
  if (failure != failures_.end() && failure->second.is_reported) return false;
  ++at_work_;
  if (failure == failures_.end()) AwaitDone(exchange);
  return true;
}

void CompiledRuns::AwaitDone(const ExchangePointer& exchange) {
  auto& queue = started_[{exchange->name, exchange->place}];
  // A run of XLA has the memory from start to done, unless it has failed in between.
  const auto is_given_up = [&](const auto& other) {
    return exchange->place != nullptr && other->run != exchange->run;
  };
  queue.erase(std::remove_if(queue.begin(), queue.end(), is_given_up), queue.end());
  queue.push_back(exchange);
}

// On a thread of the engine.
void CompiledRuns::End(const ExchangePointer& exchange, const Status& status) {
  std::vector<std::function<void()>> reports;
  {
    MutexLock lock(mutex_);
    exchange->ended = true;
    --at_work_;
    const Status& result = exchange->mistake.ok() ? status : exchange->mistake;
    if (!result.ok() && failures_.count(exchange->run) == 0) Fail(exchange->run, result);
    if (Use use = std::exchange(exchange->use, nullptr)) {
      if (failures_.count(exchange->run) > 0) {
        failing_.push_back({exchange->run, std::move(use)});
      } else {
        reports.push_back([use = std::move(use), exchange] {
          use(OkStatus(), exchange->output.get(), exchange->output_bytes);
        });
      }
    }
    if (at_work_ == 0) {
      for (auto& [run, use] : failing_) reports.push_back(FailureReport(run, std::move(use)));
      failing_.clear();
    }
  }
  for (std::function<void()>& report : reports) call_later_(std::move(report));
}

void CompiledRuns::WhenEnded(uint32_t run, const std::string& name, const void* input, Use use) {
  std::function<void()> report;
  {
    MutexLock lock(mutex_);
    ExchangePointer exchange;
    if (failures_.count(run) == 0) {
      exchange = Claim(run, {name, input});
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
      report = FailureReport(run, std::move(use));
    } else if (exchange->ended) {
      report = [use = std::move(use), exchange] {
        use(OkStatus(), exchange->output.get(), exchange->output_bytes);
      };
    } else {
      exchange->use = std::move(use);
      return;
    }
  }
  report();
}

std::function<void()> CompiledRuns::FailureReport(uint32_t run, Use use) {
  Failure& failure = failures_[run];
  if (failure.reason.ok()) failure.reason = Internal("a run of a compiled program has failed");
  failure.is_reported = true;
  return [use = std::move(use), reason = failure.reason] { use(reason, nullptr, 0); };
}

CompiledRuns::ExchangePointer CompiledRuns::Claim(uint32_t run, const Place& place) {
  const auto found = started_.find(place);
  if (found == started_.end()) return nullptr;
  auto& queue = found->second;
  const auto own = std::find_if(queue.begin(), queue.end(),
                                [run](const auto& exchange) { return exchange->run == run; });
  if (own == queue.end()) return nullptr;
  ExchangePointer exchange = std::move(*own);
  queue.erase(own);
  if (queue.empty()) started_.erase(found);
  return exchange;
}

void CompiledRuns::Fail(uint32_t run, const Status& reason) {
  failures_[run].reason = reason;
  failed_.push_back(run);
  if (failed_.size() > kFailedRuns) {
    failures_.erase(failed_.front());
    failed_.pop_front();
  }
  // XLA asks for no end any more.
  for (auto it = started_.begin(); it != started_.end();) {
    auto& queue = it->second;
    const auto is_of_run = [run](const auto& exchange) { return exchange->run == run; };
    queue.erase(std::remove_if(queue.begin(), queue.end(), is_of_run), queue.end());
    it = queue.empty() ? started_.erase(it) : std::next(it);
  }
}

}  // namespace byteps
