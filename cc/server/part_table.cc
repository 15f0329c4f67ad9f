#include "cc/server/part_table.h"

#include <cmath>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/training_rounds.h"
#include "cc/server/kept_tables.h"
#include "cc/server/whole_sink.h"

namespace byteps {

PartTable::PartTable(Options options, const TableEntry* entry)
    : options_(std::move(options)),
      entry_(entry),
      changes_(options_.num_workers),
      workers_(options_.num_workers),
      least_(options_.num_workers, 1) {}

Status PartTable::Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
                        std::vector<Reply>* replies) {
  const FrameHeader& header = push.header;
  MutexLock lock(mutex_);
  Newest& worker = workers_[header.worker];
  // Its exchange has failed on the worker, which has gone on (protocol rule 31).
  if (header.round + 1 < worker.pushed_rounds) return OkStatus();
  BYTEPS_RETURN_IF_ERROR(worker.CheckBegins(push, Title()));
  // Its exchange has failed on the worker, and the withdrawal is still to come.
  if (worker.state == State::kWaiting) {
    worker.state = State::kIdle;
    FailWaiting(Cancelled(Title() + ": " + WorkerName(header.worker) + " has given up"), replies);
  }
  worker = Newest();
  worker.state = State::kReceiving;
  worker.Begin(push);
  if (push.entry != entry_) {
    worker.error =
        FailedPrecondition(Title() + " is " + entry_->tensor.ToString() + "; " +
                           WorkerName(header.worker) + " sent " + push.entry->tensor.ToString());
    return OkStatus();
  }
  return NewWholeSink(header.payload_bytes, options_.memory.allocated, &worker.payload, sink);
}

PushOutcome PartTable::End(const Push& push, std::vector<Reply>* replies) {
  const int32_t rank = push.header.worker;
  MutexLock lock(mutex_);
  Newest& worker = workers_[rank];
  PushOutcome outcome;
  const bool is_newest = push.header.round + 1 == worker.pushed_rounds;
  if (!is_newest || worker.state != State::kReceiving) return outcome;
  worker.receive_time_ns = WallNanos();
  outcome.counted = true;
  if (worker.error.ok() && worker.payload == nullptr)
    worker.error = InvalidArgument(Title() + ": " + WorkerName(rank) + " asked for nothing");
  if (worker.error.ok()) {
    worker.error =
        DecodeTableRequest(worker.payload->data(), worker.payload->bytes(), &worker.request);
    if (!worker.error.ok()) {
      worker.error = Status(worker.error.code(),
                            Title() + ", " + WorkerName(rank) + ": " + worker.error.message());
    }
  }
  Handle(rank, replies);
  outcome.round_complete = worker.state == State::kAnswered;
  return outcome;
}

// Of a request that is here.
void PartTable::Handle(int32_t rank, std::vector<Reply>* replies) {
  Newest& worker = workers_[rank];
  if (!worker.error.ok()) return Answer(rank, worker.error, nullptr, replies);
  if (worker.request.IsChange()) return HandleChange(rank, replies);
  std::shared_ptr<Buffer> answer;
  Status status;
  switch (worker.request.kind) {
    case TableRequest::Kind::kCopy: status = Copy(worker, &answer); break;
    case TableRequest::Kind::kRefill: status = Refill(worker); break;
    case TableRequest::Kind::kFill: status = Fill(worker); break;
    case TableRequest::Kind::kMark: status = Mark(worker); break;
    case TableRequest::Kind::kKept: status = TellKept(rank, &answer); break;
    case TableRequest::Kind::kDrop:
      if (options_.kept != nullptr) options_.kept->DropAll();
      break;
    case TableRequest::Kind::kRelease:
      Release(rank);
      FailWaiting(Released(), replies);  // who waits for a change does so in vain
      break;
    case TableRequest::Kind::kState: break;
    default: status = Read(worker, &answer);
  }
  if (status.ok() && answer == nullptr) status = TellState(rank, &answer);
  Answer(rank, status, std::move(answer), replies);
}

void PartTable::HandleChange(int32_t rank, std::vector<Reply>* replies) {
  Newest& worker = workers_[rank];
  const Status status = CheckChange(worker);
  if (!status.ok()) {
    // The others would wait for a change that this worker has not asked for.
    Answer(rank, status, nullptr, replies);
    return FailWaiting(status, replies);
  }
  switch (changes_.OnChange(rank, worker.request.number, TrainingOf(worker.header.round))) {
    case TableChanges::Verdict::kIsIn: {
      std::shared_ptr<Buffer> answer;
      const Status made = NewAnswer(rank, 0, &answer);
      return Answer(rank, made, std::move(answer), replies);
    }
    case TableChanges::Verdict::kLost: Lose(replies); return Answer(rank, Lost(), nullptr, replies);
    case TableChanges::Verdict::kMissed: return Answer(rank, Lost(), nullptr, replies);
    case TableChanges::Verdict::kLeft: return Answer(rank, left_, nullptr, replies);
    case TableChanges::Verdict::kWait: worker.state = State::kWaiting; return;
    case TableChanges::Verdict::kReady: worker.state = State::kWaiting; return MakeChange(replies);
  }
}

void PartTable::Lose(std::vector<Reply>* replies) {
  FailWaiting(Lost(), replies);
  changes_.Lose();
  rows_ = nullptr;
}

Status PartTable::Read(const Newest& worker, std::shared_ptr<Buffer>* answer) const {
  if (rows_ == nullptr || !changes_.MayRead(worker.request.number)) return Lost();
  const Status checked = CheckTableRequest(worker.request, rows_->spec());
  if (!checked.ok()) return Refused(worker, checked);
  const uint64_t head_bytes = options_.num_workers * sizeof(int64_t);
  BYTEPS_RETURN_IF_ERROR(NewAnswer(worker.header.worker, rows_->ReadBytes(worker.request), answer));
  rows_->Read(worker.request, (*answer)->data() + head_bytes);
  return OkStatus();
}

// Whether a change is one to this table, and can be made at all.
Status PartTable::CheckChange(const Newest& worker) const {
  BYTEPS_RETURN_IF_ERROR(MayWait());
  const TableRequest& request = worker.request;
  const bool is_released = changes_.released_by() >= 0 && request.number == changes_.made();
  if (changes_.is_freed() || (is_released && !changes_.is_lost())) return Released();
  if (changes_.is_lost() || request.Begins() != (rows_ == nullptr)) {
    // A change that is made, or that nobody can make: OnChange finds out.
    if (changes_.is_lost() || request.number != changes_.made()) return OkStatus();
    return FailedPrecondition(
        Title() + ": " + WorkerName(worker.header.worker) +
        (rows_ == nullptr ? " changes a table that is not made" : " makes a table that is there"));
  }
  if (request.Begins()) return OkStatus();
  const Status checked = CheckTableRequest(request, rows_->spec());
  return checked.ok() ? checked : Refused(worker, checked);
}

// Whether all workers are there, so that all can ask for a change.
Status PartTable::MayWait() const {
  return options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
    if (departed == nullptr) return OkStatus();
    if (!departed->lost.ok())
      return Status(departed->lost.code(), Title() + ": " + departed->lost.message());
    for (const auto& [rank, reason] : departed->workers) {
      if (reason.ok())
        return FailedPrecondition(Title() + ": " + WorkerName(rank) +
                                  " has left, and all workers change a table together");
    }
    if (departed->joined.empty()) return OkStatus();
    return FailedPrecondition(Title() + ": " + WorkerName(*departed->joined.begin()) +
                              " has joined, and all workers change a table together");
  });
}

void PartTable::MakeChange(std::vector<Reply>* replies) {
  const std::vector<int32_t> ranks = changes_.waiting();
  Status status = Change(ranks);
  if (status.code() == StatusCode::kUnavailable) return Lose(replies);  // worker 0 fills it again
  if (!status.ok()) return FailWaiting(status, replies);
  const bool has_begun = workers_[ranks[0]].request.Begins();
  changes_.Made();
  if (has_begun) changes_.BeginAt(least_[0]);
  for (const int32_t rank : ranks) {
    std::shared_ptr<Buffer> answer;
    const Status made = NewAnswer(rank, 0, &answer);
    Answer(rank, made, std::move(answer), replies);
  }
}

Status PartTable::Change(const std::vector<int32_t>& ranks) {
  std::vector<TableRequest> requests;
  for (const int32_t rank : ranks) {
    const TableRequest& request = workers_[rank].request;
    const bool is_update = request.kind == TableRequest::Kind::kUpdate;
    if (is_update && !std::isfinite(request.rate)) {
      return InvalidArgument(
          WorkerName(rank) + " has gradients of the table \"" + rows_->spec().name +
          "\" that are NaN or infinite; no row has been updated: look for NaN in "
          "the inputs and targets of this step, or train with a lower learning "
          "rate");
    }
    if (!requests.empty() &&
        (request.kind != requests[0].kind || request.slot != requests[0].slot ||
         (is_update && request.rate != requests[0].rate))) {
      return FailedPrecondition(
          Title() + ": the workers do not make the same change: " + WorkerName(ranks[0]) +
          " asks for kind " + std::to_string(static_cast<int>(requests[0].kind)) +
          " with learning rate " + std::to_string(requests[0].rate) + ", " + WorkerName(rank) +
          " for kind " + std::to_string(static_cast<int>(request.kind)) + " with " +
          std::to_string(request.rate) +
          ": all workers must train, and load tables, with the same calls and learning rates");
    }
    requests.push_back(request);
  }
  switch (requests[0].kind) {
    case TableRequest::Kind::kMake: return MakeTable(ranks);
    case TableRequest::Kind::kResume: return ResumeTable(ranks);
    case TableRequest::Kind::kUpdate: return rows_->Update(requests);
    case TableRequest::Kind::kWrite:
      for (const TableRequest& request : requests) rows_->Write(request);
      return OkStatus();
    default: return Internal(Title() + ": a read is no change");
  }
}

Status PartTable::MakeTable(const std::vector<int32_t>& ranks) {
  TableSpec spec;
  TablePoint nowhere;
  BYTEPS_RETURN_IF_ERROR(Agree(ranks, &spec, &nowhere));
  if (options_.kept != nullptr) options_.kept->Drop(spec);
  return TableRows::New(spec, options_.kept != nullptr, options_.memory.allocated, &rows_);
}

void PartTable::FailWaiting(const Status& status, std::vector<Reply>* replies) {
  const std::vector<int32_t> ranks = changes_.waiting();
  changes_.Failed();
  Fail(ranks, status, replies);
}

void PartTable::Fail(const std::vector<int32_t>& ranks, const Status& status,
                     std::vector<Reply>* replies) {
  for (const int32_t rank : ranks) {
    if (workers_[rank].state == State::kWaiting) Answer(rank, status, nullptr, replies);
  }
}

void PartTable::Withdraw(int32_t rank, const TableEntry& entry, uint64_t round,
                         const Status& status, std::vector<Reply>* replies) {
  (void)entry;
  const Status given_up(status.code() == StatusCode::kOk ? StatusCode::kCancelled : status.code(),
                        Title() + ": " + WorkerName(rank) + " has given up: " + status.message());
  MutexLock lock(mutex_);
  Newest& worker = workers_[rank];
  const uint64_t next_training = TrainingOf(round + 1);
  if (next_training > TrainingOf(round)) {
    // It has left the training. The others may be late in it, and this worker in the next one.
    left_ = given_up;
    Fail(changes_.Leave(next_training), given_up, replies);
  }
  if (round + 1 < worker.pushed_rounds) return;  // it has gone on
  if (round + 1 == worker.pushed_rounds && worker.state == State::kAnswered) return;
  const bool fails = changes_.Withdraw(rank, TrainingOf(round));
  worker.pushed_rounds = round + 1;
  worker.payload = nullptr;
  worker.request = {};
  worker.state = State::kIdle;
  if (fails) FailWaiting(given_up, replies);
}

void PartTable::GoOnFrom(const PartsMoved::Part& agreed) {
  MutexLock lock(mutex_);
  if (agreed.next_round > 0) changes_.Lose();
}

Status PartTable::BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) {
  (void)sink;
  return InvalidArgument(push->from->name() + " sent a result of " + Title() +
                         ", of which no worker has any");
}

void PartTable::EndResult(Push* push, std::vector<Reply>* replies) {
  (void)push;
  (void)replies;
}

void PartTable::OnLost(std::vector<Reply>* replies) {
  const Status lost = options_.membership->lost();
  MutexLock lock(mutex_);
  FailWaiting(Status(lost.code(), Title() + ": " + lost.message()), replies);
}

void PartTable::OnDeparted(const std::vector<DepartedWorker>& departed,
                           std::vector<Reply>* replies) {
  (void)departed;
  const Status status = MayWait();
  if (status.ok()) return;
  MutexLock lock(mutex_);
  FailWaiting(status, replies);
  NoteDeparted();
}

}  // namespace byteps
