// PeerTable: the processes of a job, how far each of them is, and what all of them are told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/transition.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/wire/control.h"

namespace byteps {

// A worker or a server.
struct JobPeer {
  enum class State {
    kExpected,
    kConnected,  // or has been: it may come again within kReconnectSeconds
    kLeft,
    kLost,
    kReturning,  // a server that is started again, and is not here yet
    kRejoining,  // it is here, and waits for its share of the parts
  };

  // docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kExpected, "connects", State::kConnected},
      {State::kExpected, "lost", State::kLost},
      {State::kConnected, "Goodbye", State::kLeft},
      {State::kConnected, "lost", State::kLost},
      {State::kLost, "Goodbye", State::kLeft},
      {State::kLost, "Readmit", State::kReturning},
      {State::kReturning, "connects", State::kRejoining},
      {State::kReturning, "lost", State::kLost},
      {State::kRejoining, "ServerRejoined", State::kConnected},
      {State::kRejoining, "lost", State::kLost},
  };

  // Nothing has been heard of it, since it was started or started again.
  bool is_awaited() const { return state == State::kExpected || state == State::kReturning; }
  bool is_connected() const { return state == State::kConnected || state == State::kRejoining; }
  // Nobody has been told that it is here again.
  bool is_unannounced() const { return state == State::kReturning || state == State::kRejoining; }

  Role role = Role::kWorker;
  int32_t rank = -1;
  State state = State::kExpected;  // PeerTable changes it
  bool has_connection = false;
  std::string name;        // as its connection says it; "" before that
  std::string closed_why;  // its connection has broken
  Endpoint listens_at;     // port 0: unknown
  int64_t last_seen_ns = 0;
  bool is_declaring = false;   // workers: waits for DeclareReply
  std::vector<Relay> relayed;  // workers: for when they come
};

// Not thread-safe.
class PeerTable {
 public:
  // `updates` outlives it.
  PeerTable(const JobDescription& job, TableUpdates* updates, int64_t now_ns);

  // Null if the job has none such.
  JobPeer* Find(Role role, int32_t rank);
  // Workers by rank, then servers by rank.
  size_t IndexOf(const JobPeer& peer) const { return &peer - peers_.data(); }
  JobPeer& operator[](size_t index) { return peers_[index]; }
  std::vector<JobPeer>::iterator begin() { return peers_.begin(); }
  std::vector<JobPeer>::iterator end() { return peers_.end(); }

  // A connection, in place of the one that there may be. Whether the process is new.
  bool Connect(JobPeer* peer);
  void Disconnect(JobPeer* peer);
  // Whether that is news.
  bool Leave(JobPeer* peer);
  void Lose(JobPeer* peer);
  // A lost server has been started again. What the process before may still say is nobody's.
  void Readmit(JobPeer* server, int64_t now_ns);
  // The others hear of a server that has been started again.
  void Announce(JobPeer* server);
  // Something of it has arrived, and may wait to be read.
  void NoteHeard(size_t index, int64_t heard_ns);
  // This process was stopped for so long, and could hear nobody: that is no silence of others.
  void ExcuseSilence(int64_t stopped_ns, int64_t now_ns);

  bool all_workers_departed() const { return workers_here_ == 0; }
  bool any_worker_has_left() const { return workers_left_ > 0; }
  int32_t connected() const { return connected_; }

  // Those who have not come yet learn what there is to know when they come.
  void Send(const JobPeer& to, const OutgoingFrame& frame, CoordinatorEffects* effects,
            bool is_heartbeat = false) const;
  void Send(const JobPeer& to, const ControlMessage& message, CoordinatorEffects* effects) const;
  // Encoded once.
  void SendToAll(const ControlMessage& message, CoordinatorEffects* effects) const;
  void SendToRole(Role role, const ControlMessage& message, CoordinatorEffects* effects) const;

 private:
  // Where the table says that the event leads. Whether it leads anywhere.
  bool Follow(JobPeer* peer, std::string_view event);
  void SetState(JobPeer* peer, JobPeer::State state);

  const int32_t num_workers_;
  const int32_t num_servers_;
  TableUpdates* const updates_;
  std::vector<JobPeer> peers_;
  int32_t workers_here_;  // or expected
  int32_t workers_left_ = 0;
  int32_t connected_ = 0;  // that are not lost
};

// For the log.
inline std::pair<Role, int32_t> RankOf(const JobPeer& peer) { return {peer.role, peer.rank}; }

}  // namespace byteps
