#include "cc/worker/state/moved_parts.h"

#include <utility>

namespace byteps {

Status MovedParts::OnPartsMoved(const PartsMoved& moved, Effects* effects) {
  BYTEPS_RETURN_IF_ERROR(failover_->End(moved));
  for (const TableEntry& entry : moved.entries) {
    std::shared_ptr<Exchange> live;
    BYTEPS_RETURN_IF_ERROR(Place(entry, &live));
    if (live != nullptr) PushAgain(live, moved.version);
  }
  for (const PartsMoved::Part& part : moved.parts) {
    if (part.earlier_from == rank_) SendResult(part, part.next_round - 1, effects);
    if (part.result_from == rank_) SendResult(part, part.next_round, effects);
  }
  for (ServerLink& link : *servers_) {
    if (link.is_lost) link.parked.clear();  // PushAgain has queued them
  }
  MoveWithdrawals(effects);
  for (const TableEntry& entry : moved.entries) TellClock(entry, moved.version, effects);
  exchanges_->LeaveStoresAgain(effects);
  transmission_->Pump(effects);
  return OkStatus();
}

Status MovedParts::Place(const TableEntry& entry, std::shared_ptr<Exchange>* live) {
  *live = nullptr;
  BYTEPS_RETURN_IF_ERROR(CheckEntry(entry, job_.num_workers(), job_.num_servers()));
  KeyTable::Key* const key = keys_->FindPlaced(entry.key);
  if (key == nullptr) return OkStatus();  // this worker is told when it declares it
  for (KeyTable::Variant& variant : key->variants) {
    for (auto* known : {&variant.entry, &variant.new_cut}) {
      if (*known != nullptr && (*known)->variant == entry.variant)
        *known = std::make_shared<const TableEntry>(entry);
    }
  }
  for (const std::shared_ptr<Exchange>& exchange : {key->earlier, key->last, key->live}) {
    if (exchange == nullptr || exchange->entry == nullptr ||
        exchange->entry->variant != entry.variant)
      continue;
    if (exchange->places.size() != entry.parts.size())
      return Internal("the scheduler moved other parts than those of " + exchange->Name());
    exchange->places = entry.parts;
    if (exchange == key->live) *live = exchange;
  }
  return OkStatus();
}

// Queues the parts that have moved and that the server before has not answered.
void MovedParts::PushAgain(const std::shared_ptr<Exchange>& exchange, uint32_t version) {
  const auto has_moved = [&](uint32_t part) { return exchange->places[part].version == version; };
  transmission_->RemoveIf(
      [&](const PartTask& task) { return task.exchange == exchange && has_moved(task.part); });
  for (uint32_t part = 0; part < exchange->places.size(); ++part) {
    if (!has_moved(part) || exchange->part_done[part] || !exchange->IsRequested(part)) continue;
    if (exchange->sent_on[part] >= 0) {
      ++retried_parts_;
      // A thread may still encode it for the server before.
      exchange->has_moved = exchange->has_moved || exchange->PushCodec(part) != nullptr;
    }
    transmission_->ExpectNoAnswer(exchange.get(), part);
    transmission_->QueueAgain(exchange, part);
  }
}

// That of the round before `next_round`.
void MovedParts::SendResult(const PartsMoved::Part& part, uint64_t next_round, Effects* effects) {
  const KeyTable::Key* const key = keys_->FindPlaced(part.key);
  if (key == nullptr) return;
  for (const std::shared_ptr<Exchange>& exchange : {key->live, key->last, key->earlier}) {
    if (exchange == nullptr || exchange->entry == nullptr || !exchange->HasResult(part.part) ||
        exchange->NextRound(part.part) != next_round)
      continue;
    return SendToOwner(exchange->places[part.part].server,
                       exchange->ResultFrame(exchange, part.part, rank_, job_.epoch), effects);
  }
}

// Again, if the connection breaks before the server has shown that it is there.
void MovedParts::SendToOwner(int32_t server, const OutgoingFrame& frame, Effects* effects) {
  ServerLink& link = (*servers_)[server];
  link.results.push_back(frame);
  if (const std::shared_ptr<Connection> connection = link.ReadyConnection())
    effects->frames.emplace_back(connection, frame);
}

// The new owners of a store's parts do not know who is how far (protocol rule 37). Who has failed
// is not waited for: Exchanges::LeaveStoresAgain.
void MovedParts::TellClock(const TableEntry& entry, uint32_t version, Effects* effects) {
  const KeyTable::Key* const key = keys_->FindPlaced(entry.key);
  if (entry.tensor.kind != ExchangeKind::kStore || key == nullptr) return;
  const Exchange* const live = key->live.get();
  if (live == nullptr && key->has_failed) return;
  ExchangeRequest request;
  request.tensor = entry.tensor;
  const auto exchange = std::make_shared<Exchange>(std::move(request));
  exchange->Place(std::make_shared<const TableEntry>(entry), effects->now);
  for (uint32_t part = 0; part < entry.parts.size(); ++part) {
    if (entry.parts[part].version != version) continue;
    const bool is_answered = live != nullptr && live->entry != nullptr && live->part_done[part];
    const uint64_t answered = live == nullptr ? key->next_round : live->round + is_answered;
    if (answered == 0) continue;
    SendToOwner(entry.parts[part].server,
                exchange->ClockFrame(exchange, part, rank_, job_.epoch, answered - 1), effects);
  }
}

// Rounds that were given up at a server which has the part no more.
void MovedParts::MoveWithdrawals(Effects* effects) {
  const auto stays = [this](const OutgoingFrame& frame) {
    const PartPlacement* const place = keys_->FindPlace(frame.header);
    return place == nullptr || frame.header.placement_version >= place->version;
  };
  for (OutgoingFrame& frame : servers_->TakeMoved(stays, &effects->dropped)) {
    const PartPlacement& place = *keys_->FindPlace(frame.header);
    frame.header.placement_version = place.version;
    transmission_->GiveUp(place.server, std::move(frame), effects);
  }
}

}  // namespace byteps
