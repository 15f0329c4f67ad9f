#include "cc/worker/state/path_events.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace byteps {
namespace {

// Whether another worker may lack the result of `earlier`, too, and that is here.
bool IsRoundBefore(const Exchange* earlier, const Exchange& exchange, uint32_t part) {
  return exchange.request.tensor.IsQuorumSum() && earlier != nullptr && earlier->HasResult(part) &&
         earlier->round + 1 == exchange.round;
}

PartProgress::Part ProgressOf(uint64_t id, const KeyTable::Key& key, uint32_t part) {
  const Exchange* live = key.live.get();
  if (live != nullptr && live->entry != nullptr && part < live->part_done.size() &&
      live->part_done[part]) {
    return {id, part, live->NextRound(part), live->HasResult(part),
            IsRoundBefore(key.last.get(), *live, part)};
  }
  const Exchange* last = key.last.get();
  if (last != nullptr && last->HasResult(part)) {
    return {id, part, last->NextRound(part), true, IsRoundBefore(key.earlier.get(), *last, part)};
  }
  // A store's rounds are this worker's own, and say nothing of what is in it.
  if (last != nullptr && last->IsStore()) return {id, part, last->NextRound(part), false};
  if (key.IsStore()) return {id, part, 0, false};
  // Rounds that have failed here are not over: the new owner is told why they fail
  // (MovedParts::MoveWithdrawals), and gets the last result from who has it, for those who lack it.
  return {id, part, key.rounds_with_result, false};
}

}  // namespace

PathEvents::Attempt PathEvents::BeginAttempt(int32_t server, uint32_t path) {
  ServerLink& link = (*servers_)[server];
  if (link.paths[path].connection != nullptr) return {true, false, {}, {}};
  link.paths[path].attempt_life = link.lives;
  return {false, link.paths[path].was_open, link.endpoint, link.host};
}

Status PathEvents::CheckMayConnect(int32_t server) const {
  BYTEPS_RETURN_IF_ERROR(lifecycle_.Refusal());
  if (!(*servers_)[server].is_lost) return OkStatus();
  return FailedPrecondition("server " + std::to_string(server) + " has been given up");
}

void PathEvents::OnOpen(const std::shared_ptr<Connection>& connection, const Source& source,
                        bool again, Effects* effects) {
  ServerLink& server = (*servers_)[source.server];
  ServerPath& path = server.paths[source.path];
  // The others: a connection to the process before, or one too many.
  if (server.is_lost || path.attempt_life != server.lives || again != path.was_open ||
      path.connection != nullptr) {
    return effects->closes.push_back(
        {connection, Unavailable("the scheduler has given the server up")});
  }
  path.Open(connection);
  if (servers_->unsent_bytes() > 0)
    effects->limits.push_back({connection, servers_->unsent_bytes()});
  if (again) {
    ++path.reconnects;
    effects->queries.push_back({connection, keys_->UnansweredOn(source.server, source.path)});
  } else {
    const bool is_waited_for = !server.parked.empty();
    transmission_->Use(&server, &path, effects);
    if (is_waited_for) transmission_->Pump(effects);
  }
}

Status PathEvents::OnResumeAnswer(const Source& source, const ResumeAnswer& answer,
                                  Effects* effects) {
  ServerPath* const path = servers_->Find(source);
  if (path == nullptr) return OkStatus();  // it has broken again
  if (path->is_ready) return Internal(source.peer_name + " answered what it was not asked");
  for (const ResumeAnswer::Push& push : answer.incomplete) {
    const KeyTable::Key* const key = keys_->FindPlaced(push.key);
    const std::shared_ptr<Exchange> live = key == nullptr ? nullptr : key->live;
    // An exchange may have ended with an error meanwhile.
    if (live == nullptr || live->round != push.round || live->entry == nullptr) continue;
    const bool is_known = push.part < live->places.size();
    // Or the part has left that server.
    if (is_known && (live->places[push.part].server != source.server ||
                     failover_->IsMoving(live->IdOf(push.part))))
      continue;
    const bool was_asked = push.part < live->part_done.size() && !live->part_done[push.part] &&
                           live->sent_on[push.part] == static_cast<int32_t>(source.path);
    const uint64_t bytes = was_asked ? live->PushBytes(push.part, rank_) : 0;
    if (!was_asked || (push.received_bytes > 0 && push.received_bytes >= bytes))
      return Internal(source.peer_name + " has another part than it was sent");
    transmission_->ExpectNoAnswer(live.get(), push.part);
    ++retried_parts_;
    live->has_moved = live->has_moved || live->PushCodec(push.part) != nullptr;
    transmission_->QueueAgain(live, push.part, push.received_bytes);
  }
  transmission_->Use(&(*servers_)[source.server], path, effects);
  transmission_->Pump(effects);
  return OkStatus();
}

bool PathEvents::OnClosed(const Source& source, int* life, Effects* effects) {
  ServerPath* const path = servers_->Find(source);
  if (path == nullptr || !lifecycle_.is_running()) return false;
  *life = (*servers_)[source.server].lives;
  transmission_->Break(path);
  transmission_->Pump(effects);
  ReportIfDrained(effects);
  return true;
}

void PathEvents::ReportIfDrained(Effects* effects) {
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
  progress.parts = ProgressOfParts();
  effects->messages.push_back(std::move(progress));
}

std::vector<PartProgress::Part> PathEvents::ProgressOfParts() const {
  std::vector<PartProgress::Part> progress;
  for (const auto& [id, key] : keys_->placed()) {
    std::set<uint32_t> parts;
    const auto add = [&, id = id](uint32_t variant, const std::vector<PartPlacement>& places) {
      for (uint32_t part = 0; part < places.size(); ++part) {
        const bool is_lost = (*servers_)[places[part].server].is_lost;
        if (is_lost || failover_->IsMoving({id, variant, part})) parts.insert(part);
      }
    };
    for (const KeyTable::Variant& variant : key->variants) {
      for (const auto& known : {variant.entry, variant.new_cut}) {
        if (known != nullptr) add(known->variant, known->parts);
      }
    }
    if (key->live != nullptr && key->live->entry != nullptr)
      add(key->live->entry->variant, key->live->places);
    for (const uint32_t part : parts) progress.push_back(ProgressOf(id, *key, part));
  }
  return progress;
}

void PathEvents::OnRevoked(const Source& source, uint64_t bytes, Effects* effects) {
  transmission_->ReturnCredit(source, bytes);
  if (lifecycle_.is_running()) transmission_->Pump(effects);
}

PathEvents::Loss PathEvents::OnServerUnreachable(int32_t server, int life) const {
  const ServerLink& link = (*servers_)[server];
  if (!lifecycle_.is_running() || link.is_lost || link.lives != life) return Loss::kNothing;
  // Whether the coordinator may have training continue; it decides.
  const bool may_fail_over =
      job_.MayLoseServers() && job_.HostOfServer(server) < 0 && servers_->HasOtherThan(server);
  return may_fail_over ? Loss::kFailOver : Loss::kEndsJob;
}

}  // namespace byteps
