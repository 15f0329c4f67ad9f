#include "cc/worker/state/exchanges.h"

#include <algorithm>
#include <utility>

#include "cc/base/members.h"
#include "cc/base/store_rounds.h"

namespace byteps {

namespace {

// Of a name, until servers are told. A newer one ends those before, too, if in fewer words.
constexpr size_t kMostWithdrawn = 16;

}  // namespace

using Key = KeyTable::Key;
using Variant = KeyTable::Variant;

Exchanges::Exchanges(const JobDescription& job, int32_t rank, const Lifecycle& lifecycle,
                     KeyTable* keys, Transmission* transmission, Options options)
    : job_(job),
      rank_(rank),
      lifecycle_(lifecycle),
      keys_(keys),
      transmission_(transmission),
      options_(std::move(options)) {}

bool Exchanges::CanBeAwaited(const std::string& name) const {
  return KeyTable::PlaceholderOf(name).Validate(job_.num_workers()).ok() &&
         Members::Of(name).Contain(rank_);
}

Status Exchanges::CheckMayBegin(const Key& key, const TensorDescription& tensor) const {
  const Status refusal = lifecycle_.Refusal();
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

Status Exchanges::Begin(const std::shared_ptr<Exchange>& exchange, uint64_t start_step,
                        Effects* effects) {
  ExchangeTerms& terms = exchange->request;
  TellLeft(effects);
  Key& key = keys_->FindOrAdd(terms.tensor.name);
  if (terms.training.has_value() && *terms.training < key.training)
    return Cancelled("tensor \"" + key.name +
                     "\": the worker has left the training to which it belongs");
  BYTEPS_RETURN_IF_ERROR(CheckMayBegin(key, terms.tensor));
  if (key.next_round % kRoundsOfTraining < start_step) terms.tensor.codec.clear();
  transmission_->SetPriority(exchange.get(), &key.number);
  const int64_t now_ns = effects->now.ns;
  CountStart(effects->now);
  exchange->Begin(key.next_round++, now_ns);
  exchange->step =
      step_meter_.Begin(key.name, !exchange->is_early && !exchange->is_awaited_elsewhere);
  if (!exchange->by_parts) step_meter_.NoteInput(exchange->step, now_ns);
  key.live = exchange;
  if (exchange->trace != nullptr) {
    exchange->trace->tensor = terms.tensor;
    exchange->trace->round = exchange->round;
  }
  transmission_->NoteBegun(*exchange, key.number, *keys_);
  if (exchange->trace != nullptr) exchange->trace->priority = terms.priority;
  Variant& variant = keys_->Declare(key, terms.tensor);
  if (options_.is_alone) keys_->PlaceAlone(&variant);
  DispatchIfPlaced(key, effects);
  SendDeclarations(effects);
  return OkStatus();
}

void Exchanges::SendDeclarations(Effects* effects) {
  if (auto request = keys_->NextRequest()) effects->messages.push_back(*std::move(request));
}

Status Exchanges::BeginAndEnd(const std::string& name, const Moment& now) {
  const Status refusal = lifecycle_.Refusal();
  ++started_;
  ++ended_;
  if (!refusal.ok()) ++failed_;
  const uint64_t step = step_meter_.Begin(name, true);
  step_meter_.NoteInput(step, now.ns);
  step_meter_.End(step, now.ns);
  return refusal;
}

void Exchanges::DispatchIfPlaced(Key& key, Effects* effects) {
  SendWithdrawals(key, effects);
  const std::shared_ptr<Exchange> live = key.live;
  if (is_paused_ || live == nullptr || live->entry != nullptr) return;
  const Variant& variant = keys_->FindOrAddVariant(key, live->request.tensor);
  const std::shared_ptr<const TableEntry>& entry = variant.EntryFor(live->round);
  if (entry == nullptr) return;
  live->Place(entry, effects->now);
  if (options_.renew_feedback) options_.renew_feedback(*entry, &key.feedback, &key.restored);
  live->feedback = key.feedback;
  Dispatch(live, key, effects);
}

void Exchanges::Dispatch(const std::shared_ptr<Exchange>& exchange, const Key& key,
                         Effects* effects) {
  if (exchange->by_parts) return effects->placed.push_back(exchange);
  for (uint32_t part = 0; part < exchange->entry->parts.size(); ++part)
    transmission_->Queue(exchange, part, exchange->narrow);
  for (const uint32_t part : key.requested.Of(exchange->round))
    transmission_->Prefer(exchange.get(), part);
  transmission_->Pump(effects);
}

void Exchanges::ResumePlacement(Effects* effects) {
  is_paused_ = false;
  for (const auto& [name, key] : keys_->by_name()) DispatchIfPlaced(*key, effects);
}

void Exchanges::OnPartReady(const std::shared_ptr<Exchange>& exchange, PartRequest request,
                            const BlockCodec* narrow, Effects* effects) {
  if (exchange->finished) return;
  const uint32_t part = request.part;
  exchange->part_requests[part] = std::move(request);
  transmission_->Queue(exchange, part, narrow);
  const Key& key = keys_->FindOrAdd(exchange->request.tensor.name);
  if (key.requested.Has(exchange->round, part)) transmission_->Prefer(exchange.get(), part);
  transmission_->Pump(effects);
}

void Exchanges::NoteInput(const Exchange& exchange, const Moment& now) {
  if (!exchange.finished) step_meter_.NoteInput(exchange.step, now.ns);
}

void Exchanges::Finish(const std::shared_ptr<Exchange>& exchange, const Status& status,
                       Effects* effects) {
  if (exchange->finished) return;
  exchange->finished = true;
  const Moment& now = effects->now;
  CountEnd(status.ok(), now);
  step_meter_.End(exchange->step, now.ns);
  // If everything ends, the others learn that.
  const bool is_withdrawn = !status.ok() && !options_.is_alone && lifecycle_.is_running();
  const bool is_placed = exchange->entry != nullptr;
  if (is_withdrawn && is_placed) transmission_->Withdraw(exchange, status, effects);
  if (!status.ok()) transmission_->Revoke(exchange, effects);
  for (uint32_t part = 0; part < exchange->sent_on.size(); ++part)
    transmission_->ExpectNoAnswer(exchange.get(), part);
  for (PartRequest& part : exchange->part_requests)
    effects->parts_dropped.push_back(std::move(part.done));
  Key& key = keys_->FindOrAdd(exchange->request.tensor.name);
  key.live = nullptr;
  key.has_failed = !status.ok() || !key.withdrawn.empty();
  if (status.ok()) key.rounds_with_result = exchange->round + 1;
  key.ended_ns = now.ns;
  key.is_reported = false;
  // The answers of a table are of no use to others.
  const bool is_kept = exchange->request.tensor.kind != ExchangeKind::kTable;
  if (options_.keeps_results && status.ok() && is_kept) Keep(exchange, &key, effects);
  last_ended_ = {&key, exchange->round, now.ns};
  if (is_withdrawn && !is_placed) Withdraw(key, exchange->round, status);
  SendWithdrawals(key, effects);
  if (is_withdrawn) SendDeclarations(effects);
  effects->finished.emplace_back(exchange, status);
}

// Its result only: all inputs have been answered.
void Exchanges::Keep(const std::shared_ptr<Exchange>& exchange, Key* key, Effects* effects) const {
  std::shared_ptr<Exchange> before = std::exchange(key->last, exchange);
  if (exchange->request.tensor.IsQuorumSum()) before.swap(key->earlier);
  effects->dropped.push_back(std::move(before));
  for (PartRequest& part : exchange->part_requests) {
    if (part.output != nullptr && !exchange->has_moved)
      effects->dropped.push_back(std::move(part.keep_input));
  }
}

void Exchanges::FinishAll(const Status& reason, ServerLinks* servers, Effects* effects) {
  for (const auto& [name, key] : keys_->by_name()) {
    key->withdrawn.clear();
    const std::shared_ptr<Exchange> live = key->live;
    if (live != nullptr)
      Finish(live, Status(reason.code(), live->Name() + ": " + reason.message()), effects);
  }
  for (const auto& [name, key] : keys_->by_name()) {
    effects->dropped.push_back(std::move(key->last));
    effects->dropped.push_back(std::move(key->earlier));
  }
  transmission_->Clear();
  servers->Clear(&effects->dropped);
}

std::map<std::string, uint64_t> Exchanges::NextRounds() const {
  std::map<std::string, uint64_t> rounds;
  for (const auto& [name, key] : keys_->by_name()) {
    if (!key->IsStore()) rounds[name] = key->next_round;
  }
  return rounds;
}

void Exchanges::GiveUpRounds(const std::vector<std::string>& names, const std::string& reason,
                             Effects* effects) {
  if (options_.is_alone || !lifecycle_.is_running()) return;
  TellLeft(effects);
  for (const std::string& name : names) {
    if (!CanBeAwaited(name)) continue;
    Key& key = keys_->FindOrAdd(name);
    key.has_failed = key.has_failed || key.live == nullptr;
    Withdraw(key, key.next_round++, Cancelled(reason));
    SendWithdrawals(key, effects);
  }
  SendDeclarations(effects);
}

void Exchanges::Leave(const std::vector<std::string>& names, uint64_t trainings,
                      const std::string& reason) {
  if (options_.is_alone || !lifecycle_.is_running()) return;
  training_ = std::max(training_, trainings);
  for (const std::string& name : names) {
    if (!CanBeAwaited(name)) continue;
    Key& key = keys_->FindOrAdd(name);
    key.next_round = std::max(key.next_round, trainings * kRoundsOfTraining);
    key.training = std::max(key.training, trainings);
    key.has_failed = key.has_failed || key.live == nullptr;
    if (key.next_round > 0) left_[name] = reason;
  }
}

void Exchanges::TellLeft(Effects* effects) {
  if (left_.empty() || !lifecycle_.is_running()) return;
  for (const auto& [name, reason] : std::exchange(left_, {})) {
    Key& key = keys_->FindOrAdd(name);
    // Of a step that has ended: nobody waits for it any more.
    if (const std::shared_ptr<Exchange> live = key.live) Finish(live, Cancelled(reason), effects);
    Withdraw(key, key.next_round - 1, Cancelled(reason));
    SendWithdrawals(key, effects);
  }
  SendDeclarations(effects);
}

void Exchanges::BeginStores(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    Key& key = keys_->FindOrAdd(name);
    if (!BeginsStore(key.next_round)) key.next_round = FirstRoundOf(StoreOf(key.next_round) + 1);
  }
}

bool Exchanges::IsRequested(const std::string& name) const {
  const Key* const key = keys_->Find(name);
  return key != nullptr && key->live == nullptr && key->requested.HasSince(key->next_round);
}

void Exchanges::LeaveStoresAgain(Effects* effects) {
  for (const auto& [id, key] : keys_->placed()) {
    if (!key->IsStore() || !key->has_failed || key->live != nullptr || key->next_round == 0)
      continue;
    Withdraw(*key, key->next_round - 1, Cancelled("the worker's last exchange has failed"));
    SendWithdrawals(*key, effects);
  }
}

void Exchanges::Withdraw(Key& key, uint64_t round, const Status& reason) {
  key.withdrawn[round] = reason;
  if (key.withdrawn.size() > kMostWithdrawn) key.withdrawn.erase(key.withdrawn.begin());
}

void Exchanges::SendWithdrawals(Key& key, Effects* effects) {
  while (!is_paused_ && !key.withdrawn.empty()) {
    const auto& [round, reason] = *key.withdrawn.begin();
    if (key.live != nullptr && key.live->round < round) return;
    const std::shared_ptr<const TableEntry> entry = key.AnyEntryFor(round);
    if (entry == nullptr) return keys_->DeclareAny(key);
    ExchangeRequest request;
    request.tensor = entry->tensor;
    const auto exchange = std::make_shared<Exchange>(std::move(request));
    exchange->Begin(round, effects->now.ns);
    exchange->Place(entry, effects->now);
    transmission_->Withdraw(exchange, reason, effects);
    effects->given_up.push_back({entry->key, round, reason});
    key.withdrawn.erase(key.withdrawn.begin());
  }
}

void Exchanges::OnRefused(Key& key, const TensorDescription& refused, const Status& reason,
                          Effects* effects) {
  const std::shared_ptr<Exchange> live = key.live;
  const bool is_waiting =
      live != nullptr && live->entry == nullptr && live->request.tensor.SameExchangeAs(refused);
  keys_->Forget(key, refused);
  if (is_waiting) return Finish(live, reason, effects);
  // Nobody can exchange anything under such a name.
  if (refused.SameExchangeAs(KeyTable::PlaceholderOf(key.name))) key.withdrawn.clear();
  SendWithdrawals(key, effects);
}

Joined Exchanges::Join() const {
  Joined joined;
  for (const auto& [name, key] : keys_->by_name()) {
    if (key->next_round > 0 && key->IsStore())
      joined.clocks.push_back({rank_, KeyOfName(name), key->next_round, 0});
    else if (key->next_round > 0 && key->has_failed)
      joined.failed.push_back({rank_, KeyOfName(name), key->next_round});
  }
  return joined;
}

void Exchanges::SkipToRounds(const std::map<std::string, uint64_t>& rounds) {
  for (const auto& [name, round] : rounds) {
    if (!CanBeAwaited(name)) continue;
    Key& key = keys_->FindOrAdd(name);
    if (key.live != nullptr || key.next_round >= round) continue;
    key.next_round = round;
    key.has_failed = true;
  }
}

void Exchanges::CountStart(const Moment& now) {
  if (started_ == ended_) exchanging_since_ns_ = now.ns;
  ++started_;
}

void Exchanges::CountEnd(bool well, const Moment& now) {
  ++ended_;
  if (!well) ++failed_;
  if (started_ == ended_) exchanging_ns_ += now.ns - exchanging_since_ns_;
}

void Exchanges::AddTo(StateCounters* counters, int64_t now_ns) const {
  counters->started_exchanges = started_;
  counters->exchanges = ended_;
  counters->failed_exchanges = failed_;
  counters->exchanging_ns = exchanging_ns_;
  if (started_ > ended_) counters->exchanging_ns += now_ns - exchanging_since_ns_;
  counters->steps = step_meter_.counters();
}

}  // namespace byteps
