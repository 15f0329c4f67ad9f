#include "cc/worker/state/path_events.h"

#include <string>
#include <utility>

namespace byteps {

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
                     failover_.IsMoving(live->IdOf(push.part))))
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
  recovery_->OnDrained(effects);
  return true;
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
