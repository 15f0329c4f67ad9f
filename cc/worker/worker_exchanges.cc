// The part of Worker for the tensors that callers give it, from the check of what they ask for to
// their callback.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/fork.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {
namespace {

constexpr uint64_t kLeastOfAStep = 4096;

// In the first two steps servers allocate: sums of a round are kept while the next one is under
// way. What workers agree upon before the first step may have been exchanged several times by then.
bool RepeatsAStep(const Exchange& exchange) {
  const TensorDescription& tensor = exchange.request.tensor;
  return exchange.round > 1 && tensor.kind == ExchangeKind::kSum &&
         tensor.ByteCount() >= kLeastOfAStep;
}

}  // namespace

void Worker::Enqueue(ExchangeRequest request) {
  uint64_t start_step = 0;
  const Status status = CheckTerms(&request, &start_step);
  if (!status.ok()) return request.done(status);
  if (local_) return FinishLocally(request);
  const BlockCodec* const narrow =
      form_.NarrowFormOf(request.tensor, request.input, request.tensor.ElementCount());
  const auto exchange = std::make_shared<Exchange>(std::move(request));
  exchange->narrow = narrow;
  Begin(exchange, start_step);
}

void Worker::Enqueue(PartedExchangeRequest request) {
  uint64_t start_step = 0;
  const Status status = CheckTerms(&request, &start_step);
  if (!status.ok()) return request.done(status);
  Begin(std::make_shared<Exchange>(std::move(request)), start_step);
}

// Chooses the codec, too, and the round that it begins with.
Status Worker::CheckTerms(ExchangeTerms* terms, uint64_t* start_step) const {
  BYTEPS_RETURN_IF_ERROR(CheckNotForked());
  BYTEPS_RETURN_IF_ERROR(form_.ChooseCodec(&terms->tensor, start_step));
  BYTEPS_RETURN_IF_ERROR(terms->tensor.Validate(job_.num_workers()));
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
  Status status;
  {
    Transaction transaction(this);
    Actions* const actions = transaction.actions();
    Key& key = keys_.FindOrAdd(exchange->request.tensor.name);
    status = CheckMayBegin(key, exchange->request.tensor);
    if (key.next_round < start_step) exchange->request.tensor.codec.clear();
    if (status.ok()) return BeginRound(exchange, &key, actions);
  }
  exchange->request.done(status);
}

Status Worker::CheckMayBegin(const Key& key, const TensorDescription& tensor) const {
  const Status refusal = Refusal();
  if (!refusal.ok()) {
    return Status(refusal.code(), "tensor \"" + key.name + "\", round " +
                                      std::to_string(key.next_round) + ": " + refusal.message());
  }
  if (key.live == nullptr) return OkStatus();
  return FailedPrecondition(
      "tensor \"" + key.name + "\" is in flight already (" + key.live->request.tensor.ToString() +
      ", round " + std::to_string(key.live->round) + ") and was given again as " +
      tensor.ToString() +
      ": two tensors in flight need two names, or an order (a control dependency) between them");
}

void Worker::BeginRound(const std::shared_ptr<Exchange>& exchange, Key* key, Actions* actions) {
  ExchangeTerms& terms = exchange->request;
  if (key->number == 0) key->number = order_.NumberNewName();
  const bool is_early = IsForwardOrder(terms.priority);
  terms.priority = order_.PriorityOf(key->number, terms.priority);
  const int64_t now = MonotonicNanos();
  CountStart(now);
  exchange->Begin(key->next_round++, now);
  exchange->step = step_meter_.Begin(key->name, !is_early && !exchange->is_awaited_elsewhere);
  if (!exchange->by_parts) step_meter_.NoteInput(exchange->step, now);
  key->live = exchange;
  repeats_ = repeats_ || RepeatsAStep(*exchange);
  exchange->is_early = is_early;
  if (is_early && order_.CompletesStep(key->number)) CompleteStep(*exchange);
  exchange->trace = NewTrace(terms, exchange->round);
  Variant& variant = keys_.Declare(*key, terms.tensor);
  if (local_) keys_.PlaceAlone(&variant);
  DispatchIfPlaced(*key, actions);
  SendDeclarations(actions);
}

// What has not left goes in forward order.
void Worker::CompleteStep(const Exchange& last) {
  uint64_t late_bytes = last.request.tensor.ByteCount();
  queue_.Rearrange([&](const PartTask& task) BYTEPS_REQUIRES(mutex_) {
    if (!task.exchange->is_early) return task.priority;
    late_bytes += task.bytes;
    return order_.PriorityInForwardOrder(task.exchange->request.priority);
  });
  order_.NoteStep(late_bytes);
  if (tuned_credit_ > 0) queue_.SetCredit(order_.CreditOfOverlap(tuned_credit_));
  for (const auto& [name, key] : keys_.by_name()) {
    Exchange* const live = key->live.get();
    if (live == nullptr || !live->is_early) continue;
    live->is_early = false;
    live->request.priority = order_.PriorityInForwardOrder(live->request.priority);
  }
}

void Worker::SendPart(const std::shared_ptr<Exchange>& exchange, PartRequest request) {
  const BlockCodec* const narrow =
      request.input_is_encoded
          ? nullptr
          : form_.NarrowFormOf(exchange->request.tensor, request.input,
                               exchange->entry->parts[request.part].element_count);
  Transaction transaction(this);
  Actions* const actions = transaction.actions();
  if (exchange->finished) return;
  const uint32_t part = request.part;
  exchange->part_requests[part] = std::move(request);
  SetNarrow(exchange.get(), part, narrow);
  queue_.Push({exchange, part, exchange->PushBytes(part, rank_), PriorityOf(*exchange, part)});
  const Key& key = keys_.FindOrAdd(exchange->request.tensor.name);
  if (key.wanted.Has(exchange->round, part)) queue_.Prefer(exchange.get(), part);
  Pump(actions);
}

void Worker::End(const std::shared_ptr<Exchange>& exchange, const Status& status) {
  Transaction transaction(this);
  Actions* const actions = transaction.actions();
  Finish(exchange, status, actions);
}

void Worker::NoteInput(const std::shared_ptr<Exchange>& exchange) {
  MutexLock lock(mutex_);
  if (!exchange->finished) step_meter_.NoteInput(exchange->step, MonotonicNanos());
}

void Worker::NoteBatch(int64_t waited_ns, uint64_t samples) {
  MutexLock lock(mutex_);
  step_meter_.NoteBatch(waited_ns, samples, MonotonicNanos());
}

void Worker::NoteStage(const std::shared_ptr<Exchange>& exchange, uint32_t part,
                       int64_t PartTrace::* end_of_stage) {
  MutexLock lock(mutex_);
  if (exchange->trace == nullptr || exchange->finished) return;
  exchange->trace->parts[part].*end_of_stage = WallNanos();
}

std::unique_ptr<ExchangeTrace> Worker::NewTrace(const ExchangeTerms& request,
                                                uint64_t round) const {
  if (timeline_ == nullptr) return nullptr;
  return timeline_->NewTrace(request.tensor, round, request.priority);
}

void Worker::Finish(const std::shared_ptr<Exchange>& exchange, const Status& status,
                    Actions* actions) {
  if (exchange->finished) return;
  exchange->finished = true;
  exchange->CloseOutput();
  const int64_t now = MonotonicNanos();
  CountEnd(status.ok(), now);
  step_meter_.End(exchange->step, now);
  if (!status.ok()) {
    Withdraw(exchange, status, actions);
    Revoke(*exchange, actions);
  }
  for (uint32_t part = 0; part < exchange->sent_on.size(); ++part)
    ExpectNoAnswer(exchange.get(), part);
  for (PartRequest& part : exchange->part_requests)
    actions->parts_dropped.push_back(std::move(part.done));
  Key& key = keys_.FindOrAdd(exchange->request.tensor.name);
  key.live = nullptr;
  key.has_failed = !status.ok();
  key.ended_ns = now;
  key.is_reported = false;
  if (keeps_results_ && status.ok()) Keep(exchange, &key, actions);
  stalls_.NoteEnd(key, exchange->round, now);
  actions->finished.emplace_back(exchange, status);
}

void Worker::FinishAll(const Status& reason, Actions* actions) {
  for (const auto& [name, key] : keys_.by_name()) {
    const std::shared_ptr<Exchange> live = key->live;
    if (live != nullptr)
      Finish(live, Status(reason.code(), live->Name() + ": " + reason.message()), actions);
  }
  for (const auto& [name, key] : keys_.by_name()) actions->dropped.push_back(std::move(key->last));
  queue_.Clear();
  servers_.Clear(&actions->dropped);
}

// Tells the servers of its parts, so that the round ends for all and does not wait for this worker.
// Unless everything ends: then the others learn that.
void Worker::Withdraw(const std::shared_ptr<Exchange>& exchange, const Status& reason,
                      Actions* actions) {
  if (local_ || exchange->entry == nullptr || stopping_ || !failure_.ok()) return;
  for (uint32_t part = 0; part < exchange->places.size(); ++part) {
    if (exchange->part_done[part]) continue;
    GiveUp(exchange->places[part].server,
           exchange->WithdrawalFrame(exchange, part, rank_, job_.epoch, reason), actions);
  }
}

// Takes back what has not left: nobody wants it, and the caller may use the memory again.
void Worker::Revoke(const Exchange& exchange, Actions* actions) {
  uint64_t revoked = 0;
  for (uint32_t part = 0; part < exchange.sent_on.size(); ++part) {
    if (exchange.sent_on[part] < 0) continue;
    const ServerPath& path = servers_[exchange.places[part].server].paths[exchange.sent_on[part]];
    if (path.connection == nullptr) continue;
    const uint64_t bytes = path.connection->Revoke(&exchange, &actions->dropped);
    ReturnCredit(*path.connection, bytes);
    revoked += bytes;
  }
  if (revoked > 0 && !stopping_ && failure_.ok()) Pump(actions);
}

void Worker::CountStart(int64_t now_ns) {
  if (counters_.started_exchanges == counters_.exchanges) exchanging_since_ns_ = now_ns;
  ++counters_.started_exchanges;
}

void Worker::CountEnd(bool well, int64_t now_ns) {
  ++counters_.exchanges;
  if (!well) ++counters_.failed_exchanges;
  if (counters_.started_exchanges == counters_.exchanges)
    counters_.exchanging_ns += now_ns - exchanging_since_ns_;
}

void Worker::FinishLocally(const ExchangeRequest& request) {
  std::unique_ptr<ExchangeTrace> trace = NewTrace(request, 0);
  Status refusal;
  {
    MutexLock lock(mutex_);
    refusal = Refusal();
    ++counters_.started_exchanges;
    ++counters_.exchanges;
    if (!refusal.ok()) ++counters_.failed_exchanges;
    const int64_t now = MonotonicNanos();
    const uint64_t step = step_meter_.Begin(request.tensor.name, true);
    step_meter_.NoteInput(step, now);
    step_meter_.End(step, now);
  }
  if (!refusal.ok()) return request.done(refusal);
  void* output = request.output;
  uint64_t bytes = request.tensor.ByteCount();
  if (request.tensor.kind == ExchangeKind::kGather) {
    bytes *= request.gather_rows;
    output = request.allocate_output({request.gather_rows});
    if (output == nullptr)
      return request.done(ResourceExhausted("no memory for the gathered result"));
  }
  if (bytes > 0) std::memcpy(output, request.input, bytes);
  if (trace != nullptr) timeline_->Add(std::move(trace), OkStatus());
  request.done(OkStatus());
}

}  // namespace byteps
