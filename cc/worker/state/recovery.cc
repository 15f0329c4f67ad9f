#include "cc/worker/state/recovery.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace byteps {

void Recovery::OnServerLost(const ServerLost& lost, Effects* effects) {
  effects->notices.push_back(
      {Effects::Notice::Kind::kServerLost, lost.server,
       "server " + std::to_string(lost.server) + " is lost; its parts get other owners"});
  failover_->Begin(lost);
  ServerLink& link = (*servers_)[lost.server];
  link.is_lost = link.was_lost = true;
  ++lost_servers_;
  for (OutgoingFrame& frame : std::exchange(link.results, {}))
    effects->dropped.push_back(std::move(frame.keep_alive));
  for (const ServerPath& path : link.paths) {
    if (path.connection != nullptr)
      effects->closes.push_back(
          {path.connection, Unavailable("the scheduler has given the server up")});
  }
  OnDrained(effects);
}

Status Recovery::OnServerRejoined(const ServerRejoined& back, Effects* effects) {
  if (back.server < 0 || back.server >= job_.num_servers() || !(*servers_)[back.server].is_lost)
    return Internal("the scheduler brought back server " + std::to_string(back.server) +
                    ", which was not lost");
  const std::string name =
      "server " + std::to_string(back.server) + " at " + Endpoint{back.host, back.port}.ToString();
  effects->notices.push_back({Effects::Notice::Kind::kServerRejoined, back.server,
                              name + " has been started again; it gets parts of the others"});
  failover_->Begin(back);
  ServerLink& link = (*servers_)[back.server];
  link.Restart({back.host, back.port}, back.host_id);
  ++returned_servers_;
  for (const ServerRejoined::Part& part : back.parts) {
    const KeyTable::Key* const key = keys_->FindPlaced(part.key);
    Exchange* const live = key == nullptr ? nullptr : key->live.get();
    if (live == nullptr || live->entry == nullptr || live->entry->variant != part.variant ||
        part.part >= live->places.size())
      continue;
    live->has_moved = true;
    transmission_->ExpectNoAnswer(live, part.part);
  }
  for (ServerLink& server : *servers_) {
    std::vector<PartTask>& parked = server.parked;
    const auto is_moving = [&](const PartTask& task) {
      return failover_->IsMoving(task.exchange->IdOf(task.part));
    };
    parked.erase(std::remove_if(parked.begin(), parked.end(), is_moving), parked.end());
  }
  for (ServerPath& path : link.paths) path.was_open = false;
  effects->revivals.push_back({back.server, Unavailable(name + " has been started again")});
  OnDrained(effects);
  return OkStatus();
}

void Recovery::OnDrained(Effects* effects) {
  if (!failover_->is_draining() || lifecycle_.is_stopped()) return;
  for (const ServerLink& link : *servers_) {
    for (const ServerPath& path : link.paths) {
      const bool receives =
          std::any_of(path.receives.begin(), path.receives.end(),
                      [this](const PartId& part) { return failover_->IsMoving(part); });
      if (path.connection != nullptr && (link.is_lost || receives)) return;
    }
  }
  PartProgress progress;
  progress.version = *failover_->EndDraining();
  progress.parts = keys_->ProgressOfParts([this](int32_t server, const PartId& part) {
    return (*servers_)[server].is_lost || failover_->IsMoving(part);
  });
  effects->messages.push_back(std::move(progress));
}

Status Recovery::OnPartsMoved(const PartsMoved& moved, Effects* effects) {
  BYTEPS_RETURN_IF_ERROR(failover_->End(moved));
  for (const TableEntry& entry : moved.entries) {
    std::shared_ptr<Exchange> live;
    BYTEPS_RETURN_IF_ERROR(keys_->Move(entry, &live));
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

// Queues the parts that have moved and that the server before has not answered.
void Recovery::PushAgain(const std::shared_ptr<Exchange>& exchange, uint32_t version) {
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
void Recovery::SendResult(const PartsMoved::Part& part, uint64_t next_round, Effects* effects) {
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
void Recovery::SendToOwner(int32_t server, const OutgoingFrame& frame, Effects* effects) {
  ServerLink& link = (*servers_)[server];
  link.results.push_back(frame);
  if (const std::shared_ptr<Connection> connection = link.ReadyConnection())
    effects->frames.emplace_back(connection, frame);
}

// The new owners of a store's parts do not know who is how far (protocol rule 37). Who has failed
// is not waited for: Exchanges::LeaveStoresAgain.
void Recovery::TellClock(const TableEntry& entry, uint32_t version, Effects* effects) {
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
void Recovery::MoveWithdrawals(Effects* effects) {
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

void Recovery::ReportResults(Effects* effects) {
  ResultProgress progress = keys_->NewIdleResults(effects->now.ns);
  if (!progress.tensors.empty()) effects->messages.push_back(std::move(progress));
}

void Recovery::OnResultProgress(const ResultProgress& all_have, Effects* effects) {
  for (const RoundProgress::Tensor& tensor : all_have.tensors) {
    KeyTable::Key* const key = keys_->FindPlaced(tensor.key);
    if (key == nullptr) continue;
    for (std::shared_ptr<Exchange>* kept : {&key->last, &key->earlier}) {
      if (*kept != nullptr && (*kept)->round < tensor.next_round)
        effects->dropped.push_back(std::move(*kept));
    }
  }
}

void Recovery::DropResults(KeyTable::Key* key, int32_t server, const FrameHeader& reply,
                           Effects* effects) {
  for (std::shared_ptr<Exchange>* kept : {&key->last, &key->earlier}) {
    if (*kept != nullptr && !(*kept)->IsStore() && (*kept)->round < reply.watermark)
      effects->dropped.push_back(std::move(*kept));
  }
  FrameHeader ends = reply;
  if (key->IsStore()) ends.round = reply.watermark;  // results have versions for rounds
  servers_->DropResults(ends, server, &effects->dropped);
}

void Recovery::AddTo(StateCounters* counters) const {
  counters->retried_parts += retried_parts_;
  counters->lost_servers = lost_servers_;
  counters->returned_servers = returned_servers_;
}

}  // namespace byteps
