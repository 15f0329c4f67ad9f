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
#include <iterator>
#include <set>
#include <utility>

#include "cc/base/logging.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {
namespace {

constexpr int64_t kIdleNanos = 5 * int64_t{1000000000};

}  // namespace

// Whether the coordinator may have training go on; it decides.
bool Worker::MayGoOnWithout(int32_t server) const {
  if (!keeps_results_ || job_.HostOfServer(server) >= 0) return false;
  for (int32_t other = 0; other < job_.num_servers(); ++other) {
    if (other != server && !servers_[other].is_lost) return true;
  }
  return false;
}

bool Worker::WasLost(int32_t server) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return servers_[server].was_lost;
}

void Worker::OnServerLost(const ServerLost& lost, Actions* actions) {
  LogInfo("server " + std::to_string(lost.server) + " is lost; its parts get other owners",
          {"process_lost", {{"peer_role", "server"}, {"peer_rank", lost.server}}});
  held_version_ = lost.version;
  ServerLink& link = servers_[lost.server];
  link.is_lost = link.was_lost = true;
  ++counters_.lost_servers;
  for (OutgoingFrame& frame : std::exchange(link.results, {}))
    actions->dropped.push_back(std::move(frame.keep_alive));
  for (const Path& path : link.paths) {
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
  held_version_ = back.version;
  ServerLink& link = servers_[back.server];
  link.is_lost = false;
  ++counters_.returned_servers;
  ++link.lives;
  link.endpoint = {back.host, back.port};
  link.host = back.host_id;
  link.parked.clear();
  link.given_up.clear();
  for (const ServerBack::Part& part : back.parts) {
    moving_.insert({part.key, part.variant, part.part});
    const auto it = keys_.find(part.key);
    Exchange* const live = it == keys_.end() ? nullptr : it->second->live.get();
    if (live == nullptr || live->entry == nullptr || live->entry->variant != part.variant ||
        part.part >= live->places.size())
      continue;
    live->has_moved = true;
    ExpectNoAnswer(live, part.part);
  }
  for (ServerLink& server : servers_) {
    std::vector<PartTask>& parked = server.parked;
    const auto is_moving = [&](const PartTask& task) {
      return IsMoving(*task.exchange, task.part);
    };
    parked.erase(std::remove_if(parked.begin(), parked.end(), is_moving), parked.end());
  }
  for (Path& path : link.paths) {
    path.was_open = false;
    path.reconnector->Revive(Unavailable(name + " has been started again"));
  }
  HoldPartsIfClosed(actions);
  return OkStatus();
}

bool Worker::IsMoving(const Exchange& exchange, uint32_t part) const {
  return !moving_.empty() &&
         moving_.count({exchange.entry->key, exchange.entry->variant, part}) > 0;
}

// Nothing comes from the lost servers any more, nor of the parts that leave others: says how far
// this worker is with these parts.
void Worker::HoldPartsIfClosed(Actions* actions) {
  if (held_version_ == 0 || stopping_) return;
  for (const ServerLink& link : servers_) {
    for (const Path& path : link.paths) {
      const bool receives =
          std::any_of(path.receives.begin(), path.receives.end(),
                      [this](const PartId& part) { return moving_.count(part) > 0; });
      if (path.connection != nullptr && (link.is_lost || receives)) return;
    }
  }
  PartsHeld held;
  held.version = std::exchange(held_version_, 0);
  for (const auto& [id, key] : keys_) {
    std::set<uint32_t> parts;
    const auto add = [&, id = id](uint32_t variant, const std::vector<PartPlacement>& places) {
      for (uint32_t part = 0; part < places.size(); ++part) {
        if (servers_[places[part].server].is_lost || moving_.count({id, variant, part}) > 0)
          parts.insert(part);
      }
    };
    for (const Variant& variant : key->variants) {
      for (const auto& known : {variant.entry, variant.new_cut}) {
        if (known != nullptr) add(known->variant, known->parts);
      }
    }
    if (key->live != nullptr && key->live->entry != nullptr)
      add(key->live->entry->variant, key->live->places);
    for (const uint32_t part : parts) held.parts.push_back(HeldPart(id, *key, part));
  }
  actions->messages.push_back(std::move(held));
}

PartsHeld::Part Worker::HeldPart(uint64_t id, const Key& key, uint32_t part) const {
  const Exchange* live = key.live.get();
  if (live != nullptr && live->entry != nullptr && part < live->part_done.size() &&
      live->part_done[part])
    return {id, part, live->round + 1, live->HasResult(part)};
  const Exchange* last = key.last.get();
  // A round that has failed here is not over: the new owner is told why it fails (MoveWithdrawals).
  const uint64_t next_round =
      live != nullptr ? live->round : key.next_round - (key.has_failed ? 1 : 0);
  const bool has_result = last != nullptr && last->round + 1 == next_round && last->HasResult(part);
  return {id, part, next_round, has_result};
}

Status Worker::OnPartsMoved(const PartsMoved& moved, Actions* actions) {
  moving_.clear();
  for (const TableEntry& entry : moved.entries) {
    BYTEPS_RETURN_IF_ERROR(CheckEntry(entry, job_.num_workers(), job_.num_servers()));
    const auto it = keys_.find(entry.key);
    if (it == keys_.end()) continue;  // this worker is told when it declares it
    Key& key = *it->second;
    for (Variant& variant : key.variants) {
      for (auto* known : {&variant.entry, &variant.new_cut}) {
        if (*known != nullptr && (*known)->variant == entry.variant)
          *known = std::make_shared<const TableEntry>(entry);
      }
    }
    for (const std::shared_ptr<Exchange>& exchange : {key.last, key.live}) {
      if (exchange == nullptr || exchange->entry == nullptr ||
          exchange->entry->variant != entry.variant)
        continue;
      if (exchange->places.size() != entry.parts.size())
        return Internal("the scheduler moved other parts than those of " + exchange->Name());
      exchange->places = entry.parts;
    }
    if (key.live != nullptr && key.live->entry != nullptr &&
        key.live->entry->variant == entry.variant)
      PushAgain(key.live, moved.version);
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
  const auto it = keys_.find(part.key);
  if (it == keys_.end()) return;
  for (const std::shared_ptr<Exchange>& exchange : {it->second->live, it->second->last}) {
    if (exchange == nullptr || exchange->entry == nullptr ||
        exchange->round + 1 != part.next_round || !exchange->HasResult(part.part))
      continue;
    ServerLink& link = servers_[exchange->places[part.part].server];
    const OutgoingFrame frame = exchange->ResultFrame(exchange, part.part, rank_, job_.epoch);
    link.results.push_back(frame);
    for (const Path& path : link.paths) {
      if (!path.is_ready) continue;
      actions->frames.emplace_back(path.connection, frame);
      break;
    }
    return;
  }
}

// Rounds that were given up at a server which has the part no more.
void Worker::MoveWithdrawals(Actions* actions) {
  const auto stays = [this](const OutgoingFrame& frame) {
    const PartPlacement* const place = FindPlace(frame.header);
    return place == nullptr || frame.header.placement_version >= place->version;
  };
  std::vector<OutgoingFrame> moved;
  for (ServerLink& link : servers_) {
    const auto first = std::stable_partition(link.given_up.begin(), link.given_up.end(), stays);
    std::move(first, link.given_up.end(), std::back_inserter(moved));
    link.given_up.erase(first, link.given_up.end());
    const auto result = std::stable_partition(link.results.begin(), link.results.end(), stays);
    for (auto it = result; it != link.results.end(); ++it)
      actions->dropped.push_back(std::move(it->keep_alive));
    link.results.erase(result, link.results.end());
  }
  for (OutgoingFrame& frame : moved) {
    const PartPlacement& place = *FindPlace(frame.header);
    frame.header.placement_version = place.version;
    GiveUp(place.server, std::move(frame), actions);
  }
}

// Where the part that a frame is of lives now; null if that is not known.
const PartPlacement* Worker::FindPlace(const FrameHeader& header) const {
  const auto it = keys_.find(header.key);
  if (it == keys_.end()) return nullptr;
  for (const Variant& variant : it->second->variants) {
    for (const auto* known : {&variant.entry, &variant.new_cut}) {
      if (*known != nullptr && (*known)->variant == header.variant)
        return header.part < (*known)->parts.size() ? &(*known)->parts[header.part] : nullptr;
    }
  }
  return nullptr;
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
  ResultsHeld held;
  for (const auto& [id, key] : keys_) {
    const bool has_result = key->live == nullptr && key->ended_ns > 0 && !key->has_failed;
    if (!has_result || key->is_reported || now - key->ended_ns < kIdleNanos) continue;
    key->is_reported = true;
    held.tensors.push_back({id, key->next_round});
  }
  if (!held.tensors.empty()) actions->messages.push_back(std::move(held));
}

void Worker::OnResultsHeld(const ResultsHeld& all_have, Actions* actions) {
  for (const RoundsHeld::Tensor& tensor : all_have.tensors) {
    const auto it = keys_.find(tensor.key);
    if (it == keys_.end()) continue;
    std::shared_ptr<Exchange>& last = it->second->last;
    if (last != nullptr && last->round < tensor.next_round)
      actions->dropped.push_back(std::move(last));
  }
}

// All workers have the results of all rounds below the reply's watermark.
void Worker::DropResults(Key& key, int32_t server, const FrameHeader& reply, Actions* actions) {
  if (key.last != nullptr && key.last->round < reply.watermark)
    actions->dropped.push_back(std::move(key.last));
  // Who pushes a round has the result of the one before, which this server may have been sent.
  std::vector<OutgoingFrame>& results = servers_[server].results;
  const auto kept =
      std::partition(results.begin(), results.end(), [&](const OutgoingFrame& result) {
        return result.header.key != reply.key || result.header.part != reply.part ||
               result.header.round >= reply.round;
      });
  for (auto it = kept; it != results.end(); ++it)
    actions->dropped.push_back(std::move(it->keep_alive));
  results.erase(kept, results.end());
}

}  // namespace byteps
