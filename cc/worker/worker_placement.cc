// The part of Worker that has tensors declared, places their exchanges as the coordinator says, and
// takes part in tuning: the measurement of the link, new cuts, the credit.
#include <optional>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/codec/speed.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {

void Worker::Declare(std::vector<TensorDescription> tensors) {
  if (local_) return;
  Transaction transaction(this);
  Actions* const actions = transaction.actions();
  if (!Refusal().ok()) return;
  for (TensorDescription& tensor : tensors) {
    uint64_t start_step = 0;
    if (!form_.ChooseCodec(&tensor, &start_step).ok() || !tensor.Validate(job_.num_workers()).ok())
      continue;
    Key& key = keys_.FindOrAdd(tensor.name);
    if (key.next_round < start_step) tensor.codec.clear();
    keys_.Declare(key, tensor);
  }
  SendDeclarations(actions);
}

void Worker::SendDeclarations(Actions* actions) {
  if (std::optional<DeclareRequest> request = keys_.NextRequest())
    actions->messages.push_back(*std::move(request));
}

Status Worker::OnDeclareReply(DeclareReply reply, Actions* actions) {
  std::vector<TensorDescription> declared;
  BYTEPS_RETURN_IF_ERROR(keys_.TakeAnswered(reply, &declared));
  for (size_t i = 0; i < declared.size(); ++i) {
    Key& key = keys_.FindOrAdd(declared[i].name);
    const std::shared_ptr<Exchange> live = key.live;
    const bool is_waiting = live != nullptr && live->entry == nullptr &&
                            live->request.tensor.SameExchangeAs(declared[i]);
    DeclareResult& result = reply.results[i];
    if (!result.status.ok()) {
      keys_.Forget(key, declared[i]);
      if (is_waiting) Finish(live, result.status, actions);
      continue;
    }
    BYTEPS_RETURN_IF_ERROR(keys_.Place(key, declared[i], std::move(result.entry)));
    RaiseCredit(*keys_.FindOrAddVariant(key, declared[i]).entry);
    if (is_waiting) DispatchIfPlaced(key, actions);
  }
  SendDeclarations(actions);
  return OkStatus();
}

void Worker::DispatchIfPlaced(Key& key, Actions* actions) {
  const std::shared_ptr<Exchange> live = key.live;
  if (holds_rounds_ || live == nullptr || live->entry != nullptr) return;
  const Variant& variant = keys_.FindOrAddVariant(key, live->request.tensor);
  const std::shared_ptr<const TableEntry>& entry = variant.EntryFor(live->round);
  if (entry == nullptr) return;
  live->Place(entry);
  RenewFeedback(*entry, job_.epoch, &key.feedback, &key.restored);
  live->feedback = key.feedback;
  Dispatch(live, actions);
}

void Worker::RaiseCredit(const TableEntry& entry) {
  if (tuned_credit_ > 0) return;
  for (const PartPlacement& part : entry.parts) {
    const uint64_t bytes = part.element_count * DTypeSize(entry.tensor.dtype);
    queue_.RaiseCredit(job_.options.flow.Credit(bytes));
  }
}

void Worker::HoldRounds(Actions* actions) {
  holds_rounds_ = true;
  actions->messages.push_back(keys_.NextRoundsToPlace());
}

Status Worker::OnRetune(Retune retune, Actions* actions) {
  if (retune.credit_bytes > 0) {
    tuned_credit_ = retune.credit_bytes;
    queue_.SetCredit(order_.CreditOfOverlap(tuned_credit_));
  }
  servers_.LimitUnsent(retune.unsent_bytes);
  for (NewCut& cut : retune.cuts) BYTEPS_RETURN_IF_ERROR(keys_.CutAgain(std::move(cut)));
  holds_rounds_ = false;
  for (const auto& [name, key] : keys_.by_name()) DispatchIfPlaced(*key, actions);
  Pump(actions);
  return OkStatus();
}

void Worker::MeasureLink(uint64_t taken_in, Actions* actions) {
  if (link_meter_ == nullptr) return;
  if (repeats_) link_meter_->Note(MonotonicNanos(), taken_in, queue_.size() > 0);
  LinkReport report;
  report.bytes_per_second = job_.options.flow.link_bytes_per_second;
  if (report.bytes_per_second == 0) {
    if (!link_meter_->is_complete()) return;
    report.bytes_per_second = link_meter_->bytes_per_second();
  }
  report.round_trip_ns = servers_.LongestRoundTrip();
  report.codec_bytes_per_second = Int8BytesPerSecond();
  form_.NoteLink(report.bytes_per_second);
  actions->messages.push_back(report);
  link_meter_.reset();
}

}  // namespace byteps
