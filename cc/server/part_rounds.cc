#include "cc/server/part_rounds.h"

#include <utility>

#include "cc/base/clock.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

// The text says what the worker has done.
Status Named(const WorkerConnection& worker, const Status& status) {
  return status.ok() ? status : Status(status.code(), worker.name() + " " + status.message());
}

}  // namespace

// Membership::Look calls what it is given at once, with mutex_ locked: clang does not see that.
PartRounds::PartRounds(Options options)
    : options_(std::move(options)), arithmetic_(options_), state_(options_, &arithmetic_) {}

Status PartRounds::Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
                         std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  const Status begun =
      options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
        return state_.Begin(push, {departed, 0, 0}, sink, replies);
      });
  return Named(*push.from, begun);
}

PushOutcome PartRounds::End(const Push& push, std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  PushOutcome outcome =
      options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
        return state_.End(push, {departed, WallNanos(), MonotonicNanos()}, replies);
      });
  NoteSumTime(outcome, replies);
  return outcome;
}

PushOutcome PartRounds::OnTime(std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  PushOutcome outcome =
      options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
        return state_.OnTime({departed, WallNanos(), MonotonicNanos()}, replies);
      });
  NoteSumTime(outcome, replies);
  return outcome;
}

PushOutcome PartRounds::OnJoined(std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  PushOutcome outcome =
      options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
        return state_.OnJoined({departed, WallNanos(), MonotonicNanos()}, replies);
      });
  NoteSumTime(outcome, replies);
  return outcome;
}

void PartRounds::NoteSumTime(const PushOutcome& outcome, std::vector<Reply>* replies) {
  const int64_t sum_ns = outcome.round_complete ? WallNanos() : 0;
  for (Reply& reply : *replies) {
    if (reply.ends_round) reply.sum_ns = sum_ns;
  }
}

Status PartRounds::Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                          std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  return Named(
      *from, state_.Resume(from, from->rank(), from->generation(), round, received_bytes, replies));
}

void PartRounds::Withdraw(int32_t worker, const TableEntry& entry, uint64_t round,
                          const Status& status, std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
    state_.Withdraw(worker, entry, round, status, {departed, 0, 0}, replies);
  });
}

void PartRounds::GoOnFrom(const PartsMoved::Part& agreed) {
  MutexLock lock(mutex_);
  state_.GoOnFrom(agreed);
}

Status PartRounds::BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) {
  const uint64_t bytes = push->header.payload_bytes;
  push->result = nullptr;
  MutexLock lock(mutex_);
  bool is_needed = false;
  BYTEPS_RETURN_IF_ERROR(Named(*push->from, state_.CheckResult(*push, &is_needed)));
  if (!is_needed) return OkStatus();
  std::unique_ptr<Buffer> buffer;
  BYTEPS_RETURN_IF_ERROR(
      Buffer::New(bytes, options_.memory.allocated, &buffer, options_.memory.registry));
  push->result = std::move(buffer);
  if (bytes > 0) *sink = std::make_shared<WholeSink>(push->result);
  return OkStatus();
}

void PartRounds::EndResult(Push* push, std::vector<Reply>* replies) {
  const std::shared_ptr<Buffer> result = std::exchange(push->result, nullptr);
  if (result == nullptr) return;
  const FrameHeader& header = push->header;
  MutexLock lock(mutex_);
  // As server/served_tensor.h wants it: raw.
  state_.EndResult(
      *push, {result, result->data(), header.element_count, header.payload_bytes, CodecId::kRaw},
      replies);
}

void PartRounds::OnResultProgress(uint64_t next_round) {
  MutexLock lock(mutex_);
  state_.OnResultProgress(next_round);
}

void PartRounds::OnLost(std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
    state_.OnLost({departed, 0, 0}, replies);
  });
}

void PartRounds::OnDeparted(const std::vector<DepartedWorker>& departed,
                            std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  options_.membership->Look([&](const Departed* all) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
    state_.OnDeparted(departed, {all, 0}, replies);
  });
}

}  // namespace byteps
