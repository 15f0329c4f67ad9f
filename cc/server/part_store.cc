#include "cc/server/part_store.h"

#include <algorithm>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/store_rounds.h"
#include "cc/server/whole_sink.h"
#include "cc/sum/sum.h"

namespace byteps {

PartStore::PartStore(Options options, const TableEntry* entry)
    : options_(std::move(options)),
      entry_(entry),
      elements_(entry->parts[options_.part].element_count),
      buffers_(BufferPool::New(elements_ * DTypeSize(entry->tensor.dtype),
                               options_.memory.allocated, options_.memory.registry,
                               2 * options_.num_workers)),
      clocks_(options_.num_workers, entry->tensor.staleness),
      workers_(options_.num_workers) {
  options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
    if (departed == nullptr) return;
    for (const auto& [rank, reason] : departed->workers) clocks_.OnLeft(rank);
    for (const int32_t rank : departed->joined) clocks_.OnLeft(rank);
  });
}

uint64_t PartStore::LeadOf(int32_t worker, uint64_t round) const {
  if (entry_->tensor.staleness < 0) return 0;
  return options_.membership->Look([&](const Departed* departed) -> uint64_t {
    if (departed == nullptr) return 0;
    const auto found = departed->clocks.find({entry_->key, worker});
    const bool is_of_store =
        found != departed->clocks.end() && StoreOf(found->second.next_round) == StoreOf(round + 1);
    return is_of_store ? found->second.lead : 0;
  });
}

void PartStore::OnAllJoined() {
  std::vector<Joined::Clock> own;
  options_.membership->Look([&](const Departed* departed) {
    if (departed == nullptr) return;
    for (auto each = departed->clocks.lower_bound({entry_->key, 0});
         each != departed->clocks.end() && each->first.first == entry_->key; ++each)
      own.push_back(each->second);
  });
  MutexLock lock(mutex_);
  for (const Joined::Clock& each : own)
    clocks_.OnAllJoined(each.worker, each.next_round + each.lead);
}

Status PartStore::Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
                        std::vector<Reply>* replies) {
  (void)replies;
  const FrameHeader& header = push.header;
  MutexLock lock(mutex_);
  Newest& worker = workers_[header.worker];
  // Its exchange has failed on the worker, which has gone on (protocol rule 31): End says so.
  if (header.round + 1 < worker.pushed_rounds) return OkStatus();
  BYTEPS_RETURN_IF_ERROR(
      worker.CheckBegins(push, "part " + std::to_string(options_.part) + " of " + Title()));
  // It has no use for the answer to the push before.
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), header.worker), waiting_.end());
  worker.state = State::kReceiving;
  worker.Begin(push);
  worker.error = Receive(push, sink);
  return OkStatus();
}

Status PartStore::Receive(const Push& push, std::shared_ptr<PayloadSink>* sink) {
  const FrameHeader& header = push.header;
  Newest& worker = workers_[header.worker];
  if (push.entry != entry_) {
    return FailedPrecondition(Title() + " is " + entry_->tensor.ToString() + "; worker " +
                              std::to_string(header.worker) + " sent " +
                              push.entry->tensor.ToString());
  }
  if (header.round < worker.given_up) {
    return FailedPrecondition(Title() + ": round " + std::to_string(header.round) +
                              " has been given up");
  }
  if (elements_ == 0) return OkStatus();
  BYTEPS_RETURN_IF_ERROR(buffers_->Acquire(&worker.payload));
  *sink = std::make_shared<WholeSink>(worker.payload);
  return OkStatus();
}

PushOutcome PartStore::End(const Push& push, std::vector<Reply>* replies) {
  const int32_t rank = push.header.worker;
  MutexLock lock(mutex_);
  Newest& worker = workers_[rank];
  PushOutcome outcome;
  const bool is_newest = push.header.round + 1 == worker.pushed_rounds;
  if (!is_newest || worker.state != State::kReceiving) return outcome;
  worker.receive_time_ns = WallNanos();
  if (worker.error.ok()) worker.error = options_.membership->lost();
  if (!worker.error.ok()) {
    AnswerWith(worker.error, rank, replies);
    return outcome;
  }
  outcome.counted = outcome.round_complete = true;
  if (inherited_from_ >= 0) {
    worker.state = State::kArrived;
    waiting_.push_back(rank);
    return outcome;
  }
  Take(rank, replies);
  AnswerWaiting(replies);
  return outcome;
}

// All of the push is here, and so is the store, if there is one.
void PartStore::Take(int32_t rank, std::vector<Reply>* replies) {
  Newest& worker = workers_[rank];
  const uint64_t round = worker.pushed_rounds - 1;
  const StoreClocks::Verdict verdict = clocks_.OnPush(rank, round, LeadOf(rank, round));
  std::shared_ptr<Buffer> payload = std::exchange(worker.payload, nullptr);
  if (verdict == StoreClocks::Verdict::kBegin) {
    store_ = std::move(payload);
    seen_slowest_ = 0;  // who waits in the store before is told
  } else if (verdict == StoreClocks::Verdict::kAdd) {
    Add(std::move(payload));
  } else if (verdict != StoreClocks::Verdict::kIsIn) {
    return AnswerWith(Describe(verdict, round), rank, replies);
  }
  worker.state = State::kAhead;
  if (!clocks_.MustWait(round, LeadOf(rank, round))) return Answer(rank, replies);
  waiting_.push_back(rank);
}

void PartStore::Add(std::shared_ptr<Buffer> payload) {
  if (elements_ == 0) return;
  ActiveSumKernels().add(entry_->tensor.dtype, payload->data(), store_->data(), elements_);
  store_ = std::move(payload);
}

Status PartStore::Describe(StoreClocks::Verdict verdict, uint64_t round) const {
  const std::string title = Title() + ", round " + std::to_string(round);
  if (verdict == StoreClocks::Verdict::kOld) {
    return FailedPrecondition(title + ": other workers have begun the tensor's next store, in " +
                              "another training");
  }
  if (verdict == StoreClocks::Verdict::kLost) {
    return Unavailable(title + ": its value is lost with a server, and no worker has it");
  }
  return FailedPrecondition(title + " is a change, but no worker has pushed the value that it " +
                            "changes: the first push of each worker is the initial value");
}

// When the slowest worker goes on, or a new store begins.
void PartStore::AnswerWaiting(std::vector<Reply>* replies) {
  const uint64_t slowest = clocks_.slowest();
  if (inherited_from_ >= 0 || std::exchange(seen_slowest_, slowest) == slowest) return;
  for (const int32_t rank : std::exchange(waiting_, {})) {
    const uint64_t round = workers_[rank].pushed_rounds - 1;
    if (!clocks_.IsNewest(round)) {
      AnswerWith(Describe(StoreClocks::Verdict::kOld, round), rank, replies);
    } else if (clocks_.MustWait(round, LeadOf(rank, round))) {
      waiting_.push_back(rank);
    } else {
      Answer(rank, replies);
    }
  }
}

void PartStore::FailWaiting(const Status& status, std::vector<Reply>* replies) {
  for (const int32_t rank : std::exchange(waiting_, {})) AnswerWith(status, rank, replies);
}

void PartStore::Answer(int32_t rank, std::vector<Reply>* replies) {
  Newest& worker = workers_[rank];
  Reply reply = worker.NewReply(options_, entry_->key);
  FrameHeader& header = reply.frame.header;
  header.element_count = elements_;
  header.watermark = clocks_.version();
  header.row_count = clocks_.bits();
  reply.sum_ns = WallNanos();
  if (elements_ > 0) {
    header.payload_bytes = store_->bytes();
    reply.frame.payload = store_->data();
    reply.frame.keep_alive = store_;
  }
  worker.state = State::kAnswered;
  worker.error = OkStatus();
  replies->push_back(std::move(reply));
}

void PartStore::AnswerWith(const Status& error, int32_t rank, std::vector<Reply>* replies) {
  Newest& worker = workers_[rank];
  worker.payload = nullptr;
  worker.state = State::kAnswered;
  worker.error = error;
  replies->push_back(worker.NewErrorReply(options_, entry_->key));
}

Status PartStore::Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                         std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  Newest& worker = workers_[from->rank()];
  bool is_this = false;
  BYTEPS_RETURN_IF_ERROR(worker.FindAsked(from, round, Title(), &is_this, received_bytes));
  if (!is_this) return OkStatus();
  if (worker.state == State::kReceiving) {
    worker.was_cut_off = true;
    *received_bytes = 0;
  } else if (worker.state == State::kAnswered && worker.generation != from->generation()) {
    if (worker.error.ok() && !clocks_.IsNewest(round))
      worker.error = Describe(StoreClocks::Verdict::kOld, round);
    if (worker.error.ok())
      Answer(from->rank(), replies);
    else
      AnswerWith(Status(worker.error), from->rank(), replies);
  }
  return OkStatus();
}

void PartStore::Withdraw(int32_t rank, const TableEntry& entry, uint64_t round,
                         const Status& status, std::vector<Reply>* replies) {
  (void)entry;
  (void)status;
  MutexLock lock(mutex_);
  Newest& worker = workers_[rank];
  if (round + 1 < worker.pushed_rounds) return;  // it has gone on
  worker.given_up = round + 1;
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), rank), waiting_.end());
  if (worker.state == State::kReceiving) {
    worker.error =
        FailedPrecondition(Title() + ": round " + std::to_string(round) + " has been given up");
  } else {
    worker.payload = nullptr;
    worker.state = State::kIdle;
  }
  clocks_.OnLeft(rank);
  AnswerWaiting(replies);
}

void PartStore::GoOnFrom(const PartsMoved::Part& agreed) {
  MutexLock lock(mutex_);
  if (agreed.next_round == 0) return;
  inherited_version_ = agreed.next_round;
  inherited_from_ = agreed.result_from;
  if (agreed.result_from < 0) clocks_.Lose(agreed.next_round);
}

Status PartStore::BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) {
  const FrameHeader& header = push->header;
  push->result = nullptr;
  MutexLock lock(mutex_);
  if (header.element_count == 0) return OkStatus();
  if (header.round + 1 != inherited_version_) {
    return InvalidArgument(
        push->from->name() + " sent version " + std::to_string(header.round + 1) + " of part " +
        std::to_string(options_.part) + " of " + Title() + "; the server has asked for version " +
        std::to_string(inherited_version_));
  }
  // One that comes twice, because a connection has broken, is read and dropped.
  if (inherited_from_ != header.worker) return OkStatus();
  BYTEPS_RETURN_IF_ERROR(buffers_->Acquire(&push->result));
  *sink = std::make_shared<WholeSink>(push->result);
  return OkStatus();
}

void PartStore::EndResult(Push* push, std::vector<Reply>* replies) {
  std::shared_ptr<Buffer> result = std::exchange(push->result, nullptr);
  const FrameHeader& header = push->header;
  MutexLock lock(mutex_);
  const bool is_result = inherited_from_ == header.worker &&
                         header.round + 1 == inherited_version_ &&
                         (result != nullptr || elements_ == 0);
  if (!is_result) {
    // How far the worker is (Exchange::ClockFrame); or a result that comes twice.
    if (header.element_count == 0)
      clocks_.OnTold(header.worker, header.round, LeadOf(header.worker, header.round));
    return AnswerWaiting(replies);
  }
  inherited_from_ = -1;
  store_ = std::move(result);
  clocks_.Inherit(inherited_version_, push->header.row_count);
  seen_slowest_ = 0;
  for (const int32_t rank : std::exchange(waiting_, {})) Take(rank, replies);
  AnswerWaiting(replies);
}

void PartStore::OnLost(std::vector<Reply>* replies) {
  const Status lost = options_.membership->lost();
  MutexLock lock(mutex_);
  FailWaiting(Status(lost.code(), Title() + ": " + lost.message()), replies);
}

void PartStore::OnDeparted(const std::vector<DepartedWorker>& departed,
                           std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  for (const auto& [rank, cut_off] : departed) {
    clocks_.OnLeft(rank);
    if (!cut_off || inherited_from_ != rank) continue;
    inherited_from_ = -1;
    clocks_.Lose(inherited_version_);
    FailWaiting(Unavailable(Title() + ": its value is lost with a server, and " + WorkerName(rank) +
                            ", which has it, is gone"),
                replies);
  }
  AnswerWaiting(replies);
}

}  // namespace byteps
