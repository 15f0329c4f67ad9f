// PeerConnections: who may connect to the coordinator, and what it is by that; whose connection has
// broken; who is silent (protocol rule 20).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/coordinator/state/departures.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/job_phase.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/server_losses.h"
#include "cc/wire/handshake.h"

namespace byteps {

// Not thread-safe.
class PeerConnections {
 public:
  // All of them outlive it.
  PeerConnections(const JobDescription& job, const TimeoutOptions& timeouts, const JobPhase& phase,
                  PeerTable* peers, ServerLosses* losses, Departures* departures)
      : job_(job),
        timeouts_(timeouts),
        phase_(phase),
        peers_(*peers),
        losses_(*losses),
        departures_(*departures) {}

  // `has_heard`: something has come from it. Who has said nothing yet may not have heard that it
  // was let in, and tries again.
  Status CheckMayConnect(const Hello& hello, const JobPeer& peer, bool has_heard) const;

  // It has a connection of this name. Whatever it was not sent before goes over that, first.
  void OnOpen(JobPeer* peer, const std::string& name, bool again, CoordinatorEffects* effects);
  // It has none any more.
  void OnClosed(JobPeer* peer, const Status& reason, CoordinatorEffects* effects);
  // One whose connection is broken will not come again.
  void OnJoinTimeout(JobPeer* peer, const std::string& why, CoordinatorEffects* effects);
  // Only where it comes from: behind a translation of addresses another process may refuse for it.
  static void SetListensAt(JobPeer* peer, const Endpoint& endpoint);

  // Those of which it is to be found out whether something has arrived that nobody has read
  // (PeerTable::NoteHeard): that is no silence. It costs a system call, which is made for them
  // alone.
  std::vector<size_t> SilentPeers(int64_t now_ns);
  // Time has passed: all are sent a heartbeat, and those that are silent for too long are lost.
  void OnBeat(CoordinatorEffects* effects);

 private:
  int64_t SilenceLimit(const JobPeer& peer) const;
  // A beat, and what it may be late.
  bool MissesBeat(const JobPeer& peer, int64_t now_ns) const;
  bool IsNoLoss(const JobPeer& peer) const;

  const JobDescription& job_;
  const TimeoutOptions timeouts_;
  const JobPhase& phase_;
  PeerTable& peers_;
  ServerLosses& losses_;
  Departures& departures_;
};

}  // namespace byteps
