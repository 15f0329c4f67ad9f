#include "cc/coordinator/state/departures.h"

#include <utility>

namespace byteps {

void Departures::Leave(JobPeer* peer, CoordinatorEffects* effects) {
  if (!peers_.Leave(peer)) return;
  // That is how it knows that it may close its connection.
  peers_.Send(*peer, Goodbye{{peer->rank}}, effects);
  have_left_.push_back(peer->rank);
  effects->begins_deferred = true;
  effects->wakes_waiter = true;
  EndJobIfOver(effects);
  joins_.OnDeparted(*peer, effects);
  retuning_.OnDeparted(*peer, effects);
  reassignment_.OnDeparted(*peer, effects);
}

void Departures::Lose(JobPeer* peer, const std::string& what, CoordinatorEffects* effects) {
  using Level = CoordinatorEffects::Notice::Level;
  if (peer->role == Role::kServer && losses_.CanLose(*peer))
    return losses_.Lose(peer, what, effects);
  peers_.Lose(peer);
  const PeerLost lost{peer->role, peer->rank, what};
  // The first one ends the job for all. The peer, too: one that was only stopped learns what it has
  // missed. Others may follow it by the hundred, because of it.
  const bool is_first = phase_.Fail(lost, effects->now_ns);
  effects->notices.push_back(
      {is_first ? Level::kError : Level::kInfo, what, "process_lost", RankOf(*peer), {}});
  if (is_first)
    peers_.SendToAll(lost, effects);
  else
    peers_.Send(*peer, lost, effects);
  effects->forgotten.push_back(peers_.IndexOf(*peer));
  effects->wakes_waiter = true;
  EndJobIfOver(effects);
}

void Departures::OnDeferred(CoordinatorEffects* effects) {
  if (have_left_.empty()) return;
  peers_.SendToRole(Role::kServer, Goodbye{std::exchange(have_left_, {})}, effects);
}

void Departures::EndJobIfOver(CoordinatorEffects* effects) {
  if (!peers_.all_workers_departed()) return;
  phase_.End(effects->now_ns);
  OnDeferred(effects);
  peers_.SendToAll(JobEnded{}, effects);
}

}  // namespace byteps
