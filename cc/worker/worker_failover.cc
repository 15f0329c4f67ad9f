// The part of Worker for servers that are lost while others remain (protocol rule 15).
//
// Nothing more is sent to such a server, and what its connections were receiving has ended before
// this worker says how far it is (PartsHeld). From then on only the new owner of a part, which
// PartsMoved names, can bring its results. What the lost server has not answered is pushed there,
// from the worker's own memory: input and output of an exchange are never the same. The last result
// of each name is kept, too, until all workers are known to have it, since it may have reached this
// one only.
//
// When a server is started again, parts of servers that live move to it in the same way
// (ServerBack). Their connections stay: what comes over them of such a part is dropped from then
// on, but for a reply that is arriving, which PartsHeld waits for.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/logging.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {

// Whether the coordinator may have training go on; it decides.
bool Worker::MayGoOnWithout(int32_t server) const {
  return keeps_results_ && job_.HostOfServer(server) < 0 && servers_.HasOtherThan(server);
}

void Worker::OnServerLost(const ServerLost& lost, Actions* actions) {
  LogInfo("server " + std::to_string(lost.server) + " is lost; its parts get other owners",
          {"process_lost", {{"peer_role", "server"}, {"peer_rank", lost.server}}});
  failover_.Begin(lost);
  ServerLink& link = servers_[lost.server];
  link.is_lost = link.was_lost = true;
  ++counters_.lost_servers;
  for (OutgoingFrame& frame : std::exchange(link.results, {}))
    actions->dropped.push_back(std::move(frame.keep_alive));
  for (const ServerPath& path : link.paths) {
    if (path.connection != nullptr)
      path.connection->Close(Unavailable("the scheduler has given the server up"));
  }
  HoldPartsIfClosed(actions);
}

Status Worker::OnServerBack(const ServerBack& back, Actions* actions) {
  if (back.server < 0 || back.server >= job_.num_servers() || !servers_[back.server].is_lost)
    return Internal("the scheduler brought back server " + std::to_string(back.server) +
                    ", which was not lost");
  const std::string name =
      "server " + std::to_string(back.server) + " at " + Endpoint{back.host, back.port}.ToString();
  LogInfo(name + " has been started again; it gets parts of the others",
          {"process_back", {{"peer_role", "server"}, {"peer_rank", back.server}}});
  failover_.Begin(back);
  ServerLink& link = servers_[back.server];
  link.Restart({back.host, back.port}, back.host_id);
  ++counters_.returned_servers;
  for (const ServerBack::Part& part : back.parts) {
    const Key* const key = keys_.FindPlaced(part.key);
    Exchange* const live = key == nullptr ? nullptr : key->live.get();
    if (live == nullptr || live->entry == nullptr || live->entry->variant != part.variant ||
        part.part >= live->places.size())
      continue;
    live->has_moved = true;
    ExpectNoAnswer(live, part.part);
  }
  for (ServerLink& server : servers_) {
    std::vector<PartTask>& parked = server.parked;
    const auto is_moving = [&](const PartTask& task) BYTEPS_REQUIRES(mutex_) {
      return IsMoving(*task.exchange, task.part);
    };
    parked.erase(std::remove_if(parked.begin(), parked.end(), is_moving), parked.end());
  }
  for (ServerPath& path : link.paths) {
    path.was_open = false;
    path.reconnector->Revive(Unavailable(name + " has been started again"));
  }
  HoldPartsIfClosed(actions);
  return OkStatus();
}

bool Worker::IsMoving(const Exchange& exchange, uint32_t part) const {
  return failover_.IsMoving({exchange.entry->key, exchange.entry->variant, part});
}

// Nothing comes from the lost servers any more, nor of the parts that leave others: says how far
// this worker is with these parts.
void Worker::HoldPartsIfClosed(Actions* actions) {
  if (!failover_.is_draining() || stopping_) return;
  for (const ServerLink& link : servers_) {
    for (const ServerPath& path : link.paths) {
      const bool receives = std::any_of(
          path.receives.begin(), path.receives.end(),
          [this](const PartId& part) BYTEPS_REQUIRES(mutex_) { return failover_.IsMoving(part); });
      if (path.connection != nullptr && (link.is_lost || receives)) return;
    }
  }
  PartsHeld held;
  held.version = *failover_.EndDraining();
  held.parts = keys_.HeldParts([this](int32_t server, const PartId& part) BYTEPS_REQUIRES(mutex_) {
    return servers_[server].is_lost || failover_.IsMoving(part);
  });
  actions->messages.push_back(std::move(held));
}

Status Worker::OnPartsMoved(const PartsMoved& moved, Actions* actions) {
  BYTEPS_RETURN_IF_ERROR(failover_.End(moved));
  for (const TableEntry& entry : moved.entries) {
    std::shared_ptr<Exchange> live;
    BYTEPS_RETURN_IF_ERROR(keys_.Move(entry, &live));
    if (live != nullptr) PushAgain(live, moved.version);
  }
  for (const PartsMoved::Part& part : moved.parts) {
    if (part.result_from == rank_) SendResult(part, actions);
  }
  for (ServerLink& link : servers_) {
    if (link.is_lost) link.parked.clear();  // PushAgain has queued them
  }
  MoveWithdrawals(actions);
  Pump(actions);
  return OkStatus();
}

// Queues the parts that have moved and that the server before has not answered.
void Worker::PushAgain(const std::shared_ptr<Exchange>& exchange, uint32_t version) {
  const auto has_moved = [&](uint32_t part) { return exchange->places[part].version == version; };
  queue_.RemoveIf(
      [&](const PartTask& task) { return task.exchange == exchange && has_moved(task.part); });
  for (uint32_t part = 0; part < exchange->places.size(); ++part) {
    if (!has_moved(part) || exchange->part_done[part] || !exchange->IsRequested(part)) continue;
    if (exchange->sent_on[part] >= 0) {
      ++counters_.retried_parts;
      // A thread may still encode it for the server before.
      exchange->has_moved = exchange->has_moved || exchange->PushCodec(part) != nullptr;
    }
    ExpectNoAnswer(exchange.get(), part);
    queue_.Push({exchange, part, exchange->PushBytes(part, rank_), PriorityOf(*exchange, part)});
  }
}

void Worker::SendResult(const PartsMoved::Part& part, Actions* actions) {
  const Key* const key = keys_.FindPlaced(part.key);
  if (key == nullptr) return;
  for (const std::shared_ptr<Exchange>& exchange : {key->live, key->last}) {
    if (exchange == nullptr || exchange->entry == nullptr ||
        exchange->round + 1 != part.next_round || !exchange->HasResult(part.part))
      continue;
    ServerLink& link = servers_[exchange->places[part.part].server];
    const OutgoingFrame frame = exchange->ResultFrame(exchange, part.part, rank_, job_.epoch);
    link.results.push_back(frame);
    if (const std::shared_ptr<Connection> connection = link.ReadyConnection())
      actions->frames.emplace_back(connection, frame);
    return;
  }
}

// Rounds that were given up at a server which has the part no more.
void Worker::MoveWithdrawals(Actions* actions) {
  const auto stays = [this](const OutgoingFrame& frame) BYTEPS_REQUIRES(mutex_) {
    const PartPlacement* const place = keys_.FindPlace(frame.header);
    return place == nullptr || frame.header.placement_version >= place->version;
  };
  for (OutgoingFrame& frame : servers_.TakeMoved(stays, &actions->dropped)) {
    const PartPlacement& place = *keys_.FindPlace(frame.header);
    frame.header.placement_version = place.version;
    GiveUp(place.server, std::move(frame), actions);
  }
}

// Its result only: all inputs have been answered.
void Worker::Keep(const std::shared_ptr<Exchange>& exchange, Key* key, Actions* actions) {
  actions->dropped.push_back(std::exchange(key->last, exchange));
  for (PartRequest& part : exchange->part_requests) {
    if (part.output != nullptr && !exchange->has_moved)
      actions->dropped.push_back(std::move(part.keep_input));
  }
}

// What is used once, such as initial values, has no later reply that says who has it. All who keep
// it, other workers and servers, learn that they need not.
void Worker::ReportResults(int64_t now, Actions* actions) {
  ResultsHeld held = keys_.NewIdleResults(now);
  if (!held.tensors.empty()) actions->messages.push_back(std::move(held));
}

void Worker::OnResultsHeld(const ResultsHeld& all_have, Actions* actions) {
  for (const RoundsHeld::Tensor& tensor : all_have.tensors) {
    Key* const key = keys_.FindPlaced(tensor.key);
    if (key == nullptr) continue;
    std::shared_ptr<Exchange>& last = key->last;
    if (last != nullptr && last->round < tensor.next_round)
      actions->dropped.push_back(std::move(last));
  }
}

// All workers have the results of all rounds below the reply's watermark.
void Worker::DropResults(Key* key, int32_t server, const FrameHeader& reply, Actions* actions) {
  if (key->last != nullptr && key->last->round < reply.watermark)
    actions->dropped.push_back(std::move(key->last));
  servers_.DropResults(reply, server, &actions->dropped);
}

}  // namespace byteps
