#include "cc/worker/state/lost_servers.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace byteps {

void LostServers::OnServerLost(const ServerLost& lost, Effects* effects) {
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
  path_events_->ReportIfDrained(effects);
}

Status LostServers::OnServerRejoined(const ServerRejoined& back, Effects* effects) {
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
  ExpectNoAnswers(back);
  for (ServerPath& path : link.paths) path.was_open = false;
  effects->revivals.push_back({back.server, Unavailable(name + " has been started again")});
  path_events_->ReportIfDrained(effects);
  return OkStatus();
}

void LostServers::ExpectNoAnswers(const ServerRejoined& back) {
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
}

void LostServers::AddTo(StateCounters* counters) const {
  counters->lost_servers = lost_servers_;
  counters->returned_servers = returned_servers_;
}

}  // namespace byteps
