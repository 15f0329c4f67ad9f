// Coordinator: the one author of a job's tensor table, and the one who knows who is still there.
// Lives in the scheduler's process; speaks control frames with every worker and server.
//
// It is C++ so that no heartbeat and no declaration waits for a Python lock (protocol rule 20).
//
// What one process says costs the same with any number of others, but for what all must hear
// (protocol rule 30); that is encoded once.
#ifndef TF_BYTEPS_CC_COORDINATOR_COORDINATOR_H_
#define TF_BYTEPS_CC_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/logging.h"
#include "cc/base/lowest_round.h"
#include "cc/base/mutex.h"
#include "cc/base/periodic_thread.h"
#include "cc/coordinator/absent_peers.h"
#include "cc/coordinator/control_session.h"
#include "cc/coordinator/coordinator_link.h"
#include "cc/coordinator/state/failover.h"
#include "cc/coordinator/state/stall_digest.h"
#include "cc/coordinator/state/tensor_table.h"
#include "cc/coordinator/state/tuning.h"
#include "cc/van/van.h"

namespace byteps {

// Thread-safe.
class Coordinator : private ControlHandler, public ConnectionAcceptor {
 public:
  // `van`: null for one of TCP.
  explicit Coordinator(const EngineOptions& options, std::unique_ptr<Van> van = nullptr);
  ~Coordinator() override;

  // Takes a port, so that the address book can name it. Peers that come before Start are told to
  // try again.
  Status Listen(const std::string& address, uint16_t port);
  const Endpoint& endpoint() const { return endpoint_; }

  // Serves `job` from now on; once.
  Status Start(const JobDescription& job);

  // The servers that are lost while training goes on: what each of them was can be started again.
  // None once a worker has left, who may have a result that others lack.
  std::vector<int32_t> lost_servers() const;

  // Server `rank`, one of these, has been started again, listens at `endpoint`, and is about to
  // join. Once it has, it gets its share of the parts. It must come within the heartbeat timeout,
  // else it is lost again. FAILED_PRECONDITION if it is not lost.
  Status TakeBack(int32_t rank, const Endpoint& endpoint, const std::string& host);

  // Waits up to `timeout` seconds; true once the job is over: every worker has left, or somebody
  // was lost and the rest has had time to say goodbye. It returns false before its time once, when
  // somebody has been lost.
  bool Wait(double timeout);

  // Who was lost first, or "".
  std::string failure() const;

  // Closes all connections. Idempotent.
  void Stop();

  Status OnHello(const Hello& hello, const std::string& peer_address,
                 ConnectionHandler** handler) override;

 private:
  enum class Presence { kExpected, kConnected, kLeft, kLost };
  struct Peer {
    Role role = Role::kWorker;
    int32_t rank = -1;
    Presence presence = Presence::kExpected;
    std::shared_ptr<ControlSession> session = std::make_shared<ControlSession>();
    std::string name;        // as its connection says it; "" before that
    std::string closed_why;  // its connection has broken
    Endpoint listens_at;     // port 0: unknown
    int64_t last_seen_ns = 0;
    bool is_returning = false;   // servers: TakeBack was called, and nothing can be there yet
    bool is_declaring = false;   // workers: waits for DeclareReply
    std::vector<Relay> relayed;  // workers: for when they come
  };
  // What the log says of it.
  static LogFields FieldsOf(const Peer& peer) {
    return {{"peer_role", RoleName(peer.role)}, {"peer_rank", peer.rank}};
  }
  struct PendingReply {
    int32_t worker = -1;
    uint64_t request_id = 0;
    // The status of each, and the table's row if it is OK: where its parts are is read when the
    // reply is sent.
    std::vector<std::pair<Status, const TensorTable::Row*>> results;
    uint64_t needed_update = 0;  // every server must have acknowledged this one
  };
  // The answer to a declaration. Most workers make the same one.
  struct EncodedReply {
    uint64_t request_id = 0;
    std::vector<std::pair<Status, const TensorTable::Row*>> results;
    OutgoingFrame frame;
  };
  // What is to be sent before the mutex is free again.
  struct Outbox;

  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  std::shared_ptr<ControlSession> SessionOf(Connection& connection) override;
  Status OnMessage(Connection& connection, ControlMessage message) override;
  void OnClosed(Connection& connection, const Status& reason) override;

  // With mutex_ held.
  // Why the message cannot be, to go after the sender's name; see coordinator_messages.cc.
  Status On(const Heartbeat& beat, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const Reachable& at, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const DeclareRequest& request, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const TableAck& ack, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const Goodbye& goodbye, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const PeerLost& lost, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const LinkReport& report, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const RoundsHeld& held, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const PartsHeld& held, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const ResultsHeld& held, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(Relay& relay, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const StallQuery& query, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  Status On(const StallAnswer& answer, Peer* from, Outbox* outbox) BYTEPS_REQUIRES(mutex_);

  Status CheckMayCome(const Hello& hello, const Peer& peer) const BYTEPS_REQUIRES(mutex_);
  Peer* FindPeer(Role role, int32_t rank) BYTEPS_REQUIRES(mutex_);
  size_t IndexOf(const Peer& peer) const BYTEPS_REQUIRES(mutex_) { return &peer - peers_.data(); }
  Peer* FindPeer(const Hello& hello) BYTEPS_REQUIRES(mutex_) {
    return FindPeer(hello.role, hello.rank);
  }
  void Declare(const DeclareRequest& request, const Peer& from, Outbox* outbox)
      BYTEPS_REQUIRES(mutex_);
  void SendReadyReplies(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void SendReply(const PendingReply& pending, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  // Updates that all servers have taken in, but for those that are lost.
  uint64_t AckedByAll() const BYTEPS_REQUIRES(mutex_) { return acked_updates_->lowest(); }
  void OnServersAck(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void Tune(const TunedSizes& sizes, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void RetuneIfReady(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void SetPresence(Peer* peer, Presence presence) BYTEPS_REQUIRES(mutex_);
  void Leave(Peer* peer, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void DoSoon();
  void AttendToStalls(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void EndJobIfOver(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void Lose(Peer* peer, const std::string& what, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  bool CanGoOnWithout(const Peer& server) const BYTEPS_REQUIRES(mutex_);
  void GoOnWithout(Peer* server, const std::string& what, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void LoseReturning(Peer* server, const std::string& what, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void Greet(const Peer& server, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void WelcomeBackIfReady(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void MovePartsIfReady(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void EndFailoverIfReady(Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void ToAll(const ControlMessage& message, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  void ToRole(Role role, const ControlMessage& message, Outbox* outbox) BYTEPS_REQUIRES(mutex_);
  bool AllWorkersGone() const BYTEPS_REQUIRES(mutex_) {
    return job_.has_value() && workers_here_ == 0;
  }
  bool AnyWorkerHasLeft() const BYTEPS_REQUIRES(mutex_) { return workers_left_ > 0; }

  void BeatAndCheck();
  bool IsSilent(const Peer& peer, int64_t now_ns, int64_t limit_ns) const BYTEPS_REQUIRES(mutex_);
  std::vector<int32_t> SilentServers(int64_t now_ns) const BYTEPS_REQUIRES(mutex_);
  void BeginSoon() BYTEPS_REQUIRES(mutex_);
  void SetListensAt(Peer* peer, const Endpoint& endpoint) BYTEPS_REQUIRES(mutex_);
  void OnStaysAway(size_t peer, const std::string& why);

  const EngineOptions options_;
  Endpoint endpoint_;
  std::unique_ptr<Van> van_;
  PeriodicThread heartbeat_;
  PeriodicThread soon_;  // what is worth collecting for a moment; from the first time on
  AbsentPeers absent_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<JobDescription> job_ BYTEPS_GUARDED_BY(mutex_);
  std::unique_ptr<TensorTable> table_ BYTEPS_GUARDED_BY(mutex_);
  std::vector<Peer> peers_ BYTEPS_GUARDED_BY(mutex_);   // workers by rank, then servers by rank
  int32_t workers_here_ BYTEPS_GUARDED_BY(mutex_) = 0;  // or expected
  int32_t workers_left_ BYTEPS_GUARDED_BY(mutex_) = 0;
  int32_t connected_ BYTEPS_GUARDED_BY(mutex_) = 0;  // that are not lost
  std::vector<int32_t> have_left_
      BYTEPS_GUARDED_BY(mutex_);  // workers of which the servers have not been told
  uint64_t next_update_id_ BYTEPS_GUARDED_BY(mutex_) = 1;
  std::unique_ptr<LowestRound> acked_updates_ BYTEPS_GUARDED_BY(mutex_);  // by server
  std::deque<PendingReply> pending_replies_ BYTEPS_GUARDED_BY(mutex_);
  EncodedReply encoded_reply_
      BYTEPS_GUARDED_BY(mutex_);  // the last one; void once parts have moved
  std::unique_ptr<Tuning> tuning_ BYTEPS_GUARDED_BY(mutex_);
  std::optional<Retune> retune_
      BYTEPS_GUARDED_BY(mutex_);  // waits until all hold their rounds and the servers know
  uint64_t retune_update_ BYTEPS_GUARDED_BY(mutex_) = 0;  // what the servers must have taken in
  std::unique_ptr<Failover> failover_ BYTEPS_GUARDED_BY(mutex_);
  std::optional<PartsMoved> moved_ BYTEPS_GUARDED_BY(mutex_);  // waits until the servers know
  uint64_t unsent_bytes_ BYTEPS_GUARDED_BY(mutex_) =
      0;  // what Retune has told the servers; 0: nothing
  std::unique_ptr<StallDigest> stall_digest_ BYTEPS_GUARDED_BY(mutex_);  // that waits for answers
  uint64_t next_stall_id_ BYTEPS_GUARDED_BY(mutex_) = 1;
  bool has_soon_ BYTEPS_GUARDED_BY(mutex_) = false;  // soon_ has been started
  std::string failure_ BYTEPS_GUARDED_BY(mutex_);
  std::optional<PeerLost> first_lost_ BYTEPS_GUARDED_BY(mutex_);  // that ended the job
  int64_t failed_at_ns_ BYTEPS_GUARDED_BY(mutex_) = 0;
  bool failure_is_news_ BYTEPS_GUARDED_BY(mutex_) = false;  // to who waits
  int64_t over_at_ns_ BYTEPS_GUARDED_BY(mutex_) =
      0;  // when Wait first saw that all workers have gone
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_COORDINATOR_COORDINATOR_H_
