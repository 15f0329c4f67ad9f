#include "cc/coordinator/state/connections.h"

#include <utility>

#include "cc/base/seconds.h"
#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

// How the end of a peer without a goodbye begins to be told. One that hosts a server is a worker.
std::string DescribeEnd(const JobDescription& job, const JobPeer& peer) {
  const std::string ended = " ended without a goodbye: ";
  const int32_t worker = peer.role == Role::kServer ? job.HostOfServer(peer.rank) : -1;
  if (worker < 0) return peer.name + ended;
  return "worker " + std::to_string(worker) + ended + peer.name + job.InProcessOf(peer.rank) + ": ";
}

}  // namespace

Status PeerConnections::CheckMayConnect(const Hello& hello, const JobPeer& peer,
                                        bool has_heard) const {
  const bool was_here = peer.is_connected() || peer.state == JobPeer::State::kLeft;
  const bool is_expected = peer.is_awaited() || (peer.is_connected() && !has_heard);
  if (hello.again ? was_here : is_expected) return OkStatus();
  return FailedPrecondition(hello.PeerName() +
                            " has been here already; a process cannot come back to a running job");
}

void PeerConnections::OnOpen(JobPeer* peer, const std::string& name, bool again,
                             CoordinatorEffects* effects) {
  const bool is_new = peers_.Connect(peer);
  peer->name = name;
  peer->closed_why.clear();
  peer->last_seen_ns = effects->now_ns;
  if (peer->role == Role::kServer) SetListensAt(peer, job_.server_endpoints[peer->rank]);
  if (peer->is_unannounced() && !again) losses_.Greet(*peer, effects);
  if (is_new && phase_.first_lost().has_value()) peers_.Send(*peer, *phase_.first_lost(), effects);
  for (Relay& relay : peer->relayed) peers_.Send(*peer, std::move(relay), effects);
  peer->relayed.clear();
  effects->notices.push_back({CoordinatorEffects::Notice::Level::kInfo,
                              name + (again ? " is here again" : " is here"),
                              again ? "process_back" : "process_here",
                              RankOf(*peer),
                              {}});
  losses_.ReadmitIfReady(effects);
}

void PeerConnections::SetListensAt(JobPeer* peer, const Endpoint& endpoint) {
  if (peer->name.find(" at " + endpoint.host + ":") != std::string::npos)
    peer->listens_at = endpoint;
}

// Servers end with the job, and so does this process.
bool PeerConnections::IsNoLoss(const JobPeer& peer) const {
  return phase_.is_stopped() || !peer.is_connected() ||
         (peer.role == Role::kServer && peers_.all_workers_departed());
}

void PeerConnections::OnClosed(JobPeer* peer, const Status& reason, CoordinatorEffects* effects) {
  peers_.Disconnect(peer);
  effects->wakes_waiter = peers_.connected() == 0;
  if (IsNoLoss(*peer)) return;
  peer->closed_why = DescribeEnd(job_, *peer) + reason.message();
  if (reason.code() == StatusCode::kUnavailable)
    effects->absence = {peers_.IndexOf(*peer), peer->listens_at};
  else
    departures_.Lose(peer, peer->closed_why, effects);
}

void PeerConnections::OnJoinTimeout(JobPeer* peer, const std::string& why,
                                    CoordinatorEffects* effects) {
  if (peer->has_connection || IsNoLoss(*peer)) return;
  departures_.Lose(peer, peer->closed_why + "; " + why, effects);
}

// A peer that has the address book but does not come has as long as it may take to connect. One
// that is to come back was there a moment ago.
int64_t PeerConnections::SilenceLimit(const JobPeer& peer) const {
  const bool is_new = peer.state == JobPeer::State::kExpected;
  return SecondsToNanos(is_new ? timeouts_.connect_timeout : timeouts_.heartbeat_timeout);
}

bool PeerConnections::MissesBeat(const JobPeer& peer, int64_t now_ns) const {
  return peer.role == Role::kServer && peer.is_connected() &&
         now_ns - peer.last_seen_ns > SecondsToNanos(1.2 * timeouts_.heartbeat_interval);
}

std::vector<size_t> PeerConnections::SilentPeers(int64_t now_ns) {
  std::vector<size_t> silent;
  for (const JobPeer& peer : peers_) {
    if (MissesBeat(peer, now_ns) ||
        (peer.is_connected() && now_ns - peer.last_seen_ns > SilenceLimit(peer)))
      silent.push_back(peers_.IndexOf(peer));
  }
  return silent;
}

void PeerConnections::OnBeat(CoordinatorEffects* effects) {
  const int64_t now = effects->now_ns;
  Heartbeat of_silent_servers;
  for (const JobPeer& peer : peers_) {
    if (MissesBeat(peer, now)) of_silent_servers.silent_servers.push_back(peer.rank);
  }
  const OutgoingFrame to_workers = ControlFrame(of_silent_servers);
  const OutgoingFrame to_servers = ControlFrame(Heartbeat{});
  for (JobPeer& peer : peers_) {
    const bool is_worker = peer.role == Role::kWorker;
    peers_.Send(peer, is_worker ? to_workers : to_servers, effects, /*is_heartbeat=*/true);
    const bool is_awaited = peer.is_awaited();
    if (!is_awaited && !peer.is_connected()) continue;
    if (now - peer.last_seen_ns <= SilenceLimit(peer)) continue;
    const std::string name =
        !peer.name.empty() ? peer.name
                           : std::string(RoleName(peer.role)) + " " + std::to_string(peer.rank);
    std::string reason = name + (is_awaited ? " never connected, for " : " has been silent for ");
    reason += std::to_string((now - peer.last_seen_ns) / 1000000000) + " s";
    departures_.Lose(&peer, reason, effects);
  }
}

}  // namespace byteps
