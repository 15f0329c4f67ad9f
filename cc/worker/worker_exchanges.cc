// The part of Worker for the tensors that callers give it.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/coded_rows.h"
#include "cc/base/fork.h"
#include "cc/base/members.h"
#include "cc/sum/sum.h"
#include "cc/worker/worker_transaction.h"

namespace byteps {
namespace {

// The servers check them, too, but this worker can say more.
Status CheckSplits(const ExchangeTerms& terms, int32_t num_workers) {
  const bool is_split = terms.tensor.kind == ExchangeKind::kAllToAll;
  const std::string who = "tensor \"" + terms.tensor.name + "\": ";
  const size_t expected = is_split ? num_workers : 0;
  if (terms.splits.size() != expected) {
    return InvalidArgument(who + "got " + std::to_string(terms.splits.size()) + " splits for " +
                           std::to_string(expected) +
                           " workers; give one number of rows for each, by rank");
  }
  int64_t rest = terms.gather_rows;
  for (size_t rank = 0; rank < terms.splits.size(); ++rank) {
    const int64_t rows = terms.splits[rank];
    if (rows < 0) {
      return InvalidArgument(who + "the split for worker " + std::to_string(rank) + " is " +
                             std::to_string(rows) + "; it cannot be negative");
    }
    // Neither can the sum overflow.
    if (rows > rest) {
      return InvalidArgument(who + "the splits add up to more than the tensor's " +
                             std::to_string(terms.gather_rows) + " rows");
    }
    rest -= rows;
  }
  if (!is_split || rest == 0) return OkStatus();
  return InvalidArgument(who + "the splits add up to " + std::to_string(terms.gather_rows - rest) +
                         " rows, but the tensor has " + std::to_string(terms.gather_rows));
}

}  // namespace

void Worker::Enqueue(ExchangeRequest request) {
  uint64_t start_step = 0;
  const Status status = CheckTerms(&request, &start_step);
  if (!status.ok()) return Refuse(request, status);
  if (local_) return FinishLocally(request);
  const BlockCodec* const narrow =
      form_.NarrowFormOf(request.tensor, request.input, request.tensor.ElementCount());
  const auto exchange = std::make_shared<ExchangeWithOutput>(std::move(request));
  exchange->narrow = narrow;
  const TensorDescription& tensor = exchange->request.tensor;
  if (tensor.kind == ExchangeKind::kAllToAll)
    exchange->KeepOwnRows(Members::Of(tensor.name).PlaceOf(rank_));
  Begin(exchange, start_step);
}

void Worker::Enqueue(PartedExchangeRequest request) {
  uint64_t start_step = 0;
  const Status status = CheckTerms(&request, &start_step);
  if (!status.ok()) return Refuse(request, status);
  Begin(std::make_shared<ExchangeWithOutput>(std::move(request)), start_step);
}

// The others may have called it rightly, and wait.
void Worker::Refuse(const ExchangeTerms& request, const Status& reason) {
  if (Members::Of(request.tensor.name).Contain(rank_))
    GiveUpRoundNow(request.tensor.name, "it refused the call: " + reason.message());
  request.done(reason);
}

// Chooses the codec, too, and the round that it begins with.
Status Worker::CheckTerms(ExchangeTerms* terms, uint64_t* start_step) const {
  BYTEPS_RETURN_IF_ERROR(CheckNotForked());
  BYTEPS_RETURN_IF_ERROR(form_.ChooseCodec(&terms->tensor, start_step));
  BYTEPS_RETURN_IF_ERROR(terms->tensor.Validate(job_.num_workers()));
  const Members members = Members::Of(terms->tensor.name);
  if (!members.Contain(rank_)) {
    return InvalidArgument("tensor \"" + terms->tensor.name + "\": worker " +
                           std::to_string(rank_) +
                           " is not in this process set and cannot exchange anything with it; "
                           "call it where ProcessSet.included() is true");
  }
  BYTEPS_RETURN_IF_ERROR(CheckSplits(*terms, members.Count(job_.num_workers())));
  if (terms->tensor.kind == ExchangeKind::kRowSum &&
      !CanBeCodedRows(terms->coded_bytes, terms->gather_rows, terms->tensor.ByteCount())) {
    return InvalidArgument("tensor \"" + terms->tensor.name +
                           "\": " + std::to_string(terms->coded_bytes) + " bytes cannot be " +
                           std::to_string(terms->gather_rows) + " rows of " +
                           terms->tensor.ToString() + " with their indices; use push_pull");
  }
  return CheckMayDrop(terms->tensor);
}

Status Worker::CheckMayDrop(const TensorDescription& tensor) const {
  if (tensor.backup_workers == 0 || !job_.options.deterministic) return OkStatus();
  return InvalidArgument(
      "tensor \"" + tensor.name +
      "\": backup_workers lets the time of arrival decide what is in an average, "
      "which deterministic mode forbids; set one of them only");
}

void Worker::Begin(const std::shared_ptr<Exchange>& exchange, uint64_t start_step) {
  exchange->trace = NewTrace(exchange->request);
  Status status;
  {
    Transaction transaction(this);
    if (has_joined_) {
      status = FailedPrecondition(exchange->Name() +
                                  ": this worker has joined, and exchanges nothing until all "
                                  "workers have");
    } else {
      status = state_.exchanges.Begin(exchange, start_step, transaction.effects());
    }
  }
  if (!status.ok()) exchange->request.done(status);
}

void Worker::Declare(std::vector<TensorDescription> tensors) {
  if (local_) return;
  Transaction transaction(this);
  if (!state_.lifecycle.is_running()) return;
  for (TensorDescription& tensor : tensors) {
    uint64_t start_step = 0;
    if (!form_.ChooseCodec(&tensor, &start_step).ok() || !tensor.Validate(job_.num_workers()).ok())
      continue;
    state_.placement.Declare(std::move(tensor), start_step);
  }
  state_.exchanges.SendDeclarations(transaction.effects());
}

void Worker::SendPart(const std::shared_ptr<Exchange>& exchange, PartRequest request) {
  const BlockCodec* const narrow =
      request.input_is_encoded
          ? nullptr
          : form_.NarrowFormOf(exchange->request.tensor, request.input,
                               exchange->entry->parts[request.part].element_count);
  Transaction transaction(this);
  state_.exchanges.OnPartReady(exchange, std::move(request), narrow, transaction.effects());
}

void Worker::End(const std::shared_ptr<Exchange>& exchange, const Status& status) {
  Transaction transaction(this);
  state_.exchanges.Finish(exchange, status, transaction.effects());
}

void Worker::NoteInput(const std::shared_ptr<Exchange>& exchange) {
  MutexLock lock(mutex_);
  state_.exchanges.NoteInput(*exchange, Now());
}

void Worker::NoteBatch(int64_t waited_ns, uint64_t samples) {
  MutexLock lock(mutex_);
  state_.exchanges.NoteBatch(waited_ns, samples, Now());
}

void Worker::NoteStage(const std::shared_ptr<Exchange>& exchange, uint32_t part,
                       int64_t PartTrace::* end_of_stage) {
  MutexLock lock(mutex_);
  if (exchange->trace == nullptr || exchange->finished) return;
  exchange->trace->parts[part].*end_of_stage = WallNanos();
}

std::map<std::string, uint64_t> Worker::NextRounds() const {
  MutexLock lock(mutex_);
  return state_.exchanges.NextRounds();
}

void Worker::GiveUpRounds(const std::vector<std::string>& names, const std::string& reason) {
  if (!CheckNotForked().ok()) return;
  std::shared_ptr<WorkerListener> listener;
  {
    MutexLock lock(mutex_);
    listener = listener_;
  }
  std::vector<std::string> now;
  for (const std::string& name : names) {
    if (listener == nullptr || !listener->GivesUpInTurn(name, reason)) now.push_back(name);
  }
  if (now.empty()) return;
  Transaction transaction(this);
  state_.exchanges.GiveUpRounds(now, reason, transaction.effects());
}

void Worker::GiveUpRoundNow(const std::string& name, const std::string& reason) {
  Transaction transaction(this);
  state_.exchanges.GiveUpRounds({name}, reason, transaction.effects());
}

void Worker::Leave(const std::vector<std::string>& names, uint64_t trainings,
                   const std::string& reason) {
  MutexLock lock(mutex_);
  state_.exchanges.Leave(names, trainings, reason);
}

void Worker::TellLeft() {
  if (!CheckNotForked().ok()) return;
  Transaction transaction(this);
  state_.exchanges.TellLeft(transaction.effects());
}

uint64_t Worker::training() const {
  MutexLock lock(mutex_);
  return state_.exchanges.training();
}

void Worker::SkipToRounds(const std::map<std::string, uint64_t>& rounds) {
  MutexLock lock(mutex_);
  state_.exchanges.SkipToRounds(rounds);
}

void Worker::BeginStores(const std::vector<std::string>& names) {
  MutexLock lock(mutex_);
  state_.exchanges.BeginStores(names);
  for (const std::string& name : names) own_stores_.erase(name);
}

bool Worker::IsRequested(const std::string& name) const {
  MutexLock lock(mutex_);
  return state_.exchanges.IsRequested(name);
}

std::map<std::string, Residual> Worker::Residuals() const {
  std::vector<std::pair<std::string, std::shared_ptr<TensorFeedback>>> feedbacks;
  std::map<std::string, Residual> residuals;
  {
    MutexLock lock(mutex_);
    for (const auto& [name, key] : state_.keys.by_name()) {
      if (key->restored != nullptr)
        residuals[name] = *key->restored;
      else if (key->feedback != nullptr)
        feedbacks.emplace_back(name, key->feedback);
    }
  }
  for (const auto& [name, feedback] : feedbacks) residuals[name] = feedback->residual();
  return residuals;
}

void Worker::RestoreResiduals(std::map<std::string, Residual> residuals) {
  MutexLock lock(mutex_);
  for (auto& [name, residual] : residuals)
    state_.keys.FindOrAdd(name).restored = std::make_unique<Residual>(std::move(residual));
}

std::unique_ptr<ExchangeTrace> Worker::NewTrace(const ExchangeTerms& request) const {
  if (timeline_ == nullptr) return nullptr;
  return timeline_->NewTrace(request.tensor, 0, request.priority);
}

// What the servers do in a job that has some.
void Worker::AddToOwnStore(const ExchangeRequest& request) {
  const TensorDescription& tensor = request.tensor;
  const auto* const input = static_cast<const uint8_t*>(request.input);
  const uint64_t bytes = tensor.ByteCount();
  if (bytes == 0) return;
  MutexLock lock(mutex_);
  std::vector<uint8_t>& store = own_stores_[tensor.name];
  if (store.size() == bytes)
    ActiveSumKernels().add(tensor.dtype, store.data(), input, tensor.ElementCount());
  else
    store.assign(input, input + bytes);
  std::memcpy(request.output, store.data(), bytes);
}

void Worker::FinishLocally(const ExchangeRequest& request) {
  std::unique_ptr<ExchangeTrace> trace = NewTrace(request);
  Status refusal;
  {
    MutexLock lock(mutex_);
    refusal = state_.exchanges.BeginAndEnd(request.tensor.name, Now());
  }
  if (!refusal.ok()) return request.done(refusal);
  if (request.tensor.kind == ExchangeKind::kTable) {
    return request.done(FailedPrecondition("tensor \"" + request.tensor.name +
                                           "\": a job of one worker has no server for its rows"));
  }
  void* output = request.output;
  uint64_t bytes = request.tensor.ByteCount();
  if (request.tensor.HasOwnRows()) {
    const bool is_row_sum = request.tensor.kind == ExchangeKind::kRowSum;
    bytes = is_row_sum ? request.coded_bytes : bytes * request.gather_rows;
    std::vector<int64_t> rows = {request.gather_rows};
    if (is_row_sum) rows.push_back(static_cast<int64_t>(bytes));
    output = request.allocate_output(rows);
    if (output == nullptr)
      return request.done(ResourceExhausted("tensor \"" + request.tensor.name +
                                            "\": no memory for a result of " +
                                            std::to_string(request.gather_rows) + " rows"));
  }
  if (request.tensor.kind == ExchangeKind::kStore)
    AddToOwnStore(request);
  else if (bytes > 0)
    std::memcpy(output, request.input, bytes);
  if (trace != nullptr) timeline_->Add(std::move(trace), OkStatus());
  request.done(OkStatus());
}

}  // namespace byteps
