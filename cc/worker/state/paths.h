// ServerLinks: the paths from a worker to its servers, and what waits for one of them to be ready.
//
// A connection is a name here, whose type is not complete: nothing can be done with it but to
// compare it, and to hand it on.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/transition.h"
#include "cc/wire/outgoing_frame.h"
#include "cc/worker/state/part_id.h"
#include "cc/worker/state/part_queue.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

class Connection;

// The connection over which something has come, and who is at its other end.
struct Source {
  int32_t server = 0;
  uint32_t path = 0;
  const Connection* connection = nullptr;
  const std::string& peer_name;
};

// One of the connections to a server; each part takes the one with the least in flight.
struct ServerPath {
  enum class State {
    kClosed,
    kAsking,  // the server is asked what it has of the pushes before
    kReady,   // pushes may be sent
  };
  // docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kClosed, "first connection", State::kReady},
      {State::kClosed, "connection again", State::kAsking},
      {State::kAsking, "ResumeAnswer", State::kReady},
      {State::kAsking, "closed", State::kClosed},
      {State::kReady, "closed", State::kClosed},
  };

  std::shared_ptr<Connection> connection;  // null: broken
  bool was_open = false;                   // to the process that the server is now
  int attempt_life = 0;                    // which life of the server is being connected to
  // The replies whose payloads are arriving; the last one ends first
  // (ConnectionHandler::OnHeader).
  std::vector<PartId> receives;
  // Pushes may be sent: not while it is broken, nor before the server has said what it has.
  bool is_ready = false;
  bool has_broken = false;  // once
  uint64_t in_flight_bytes = 0;
  uint64_t pushed_bytes = 0;  // these three: see PathCounters
  uint64_t received_bytes = 0;
  uint64_t reconnects = 0;

  State state() const {
    if (connection == nullptr) return State::kClosed;
    return is_ready ? State::kReady : State::kAsking;
  }
  // Not ready yet.
  void Open(const std::shared_ptr<Connection>& opened);
  // Returns the bytes that were in flight.
  uint64_t Break();
  // The reply has arrived; whether this path had begun to receive its payload.
  bool EndReceive(const FrameHeader& reply);
};

struct ServerLink {
  Endpoint endpoint;
  std::string host;                    // see JobDescription::server_hosts
  std::vector<ServerPath> paths;       // set by Prepare, then as many
  std::vector<PartTask> parked;        // no path is ready
  std::deque<OutgoingFrame> given_up;  // rounds, for when a path comes again
  std::vector<OutgoingFrame> results;  // that it has been sent, for the same
  bool is_lost = false;                // and training goes on
  int lives = 0;                       // how often it has been started again
  bool was_lost = false;               // once

  bool is_open() const;
  // Of those that are ready; null if none is.
  ServerPath* LeastLoadedPath();
  // The first that is ready; null if none is.
  std::shared_ptr<Connection> ReadyConnection() const;
  // For when a path comes again.
  void RememberWithdrawal(const OutgoingFrame& withdrawal);
  // Another process has taken the server's place.
  void Restart(Endpoint at, std::string on_host);
};

// Shares the connections. Not thread-safe. Nothing blocks, and nothing is sent.
class ServerLinks {
 public:
  // Keeps callers' memory alive, for later: to drop it may need Python's lock.
  using Dropped = std::vector<std::shared_ptr<const void>>;

  // Once.
  void Prepare(const JobDescription& job);

  ServerLink& operator[](int32_t server) { return links_[server]; }
  const ServerLink& operator[](int32_t server) const { return links_[server]; }
  std::vector<ServerLink>::iterator begin() { return links_.begin(); }
  std::vector<ServerLink>::iterator end() { return links_.end(); }
  std::vector<ServerLink>::const_iterator begin() const { return links_.begin(); }
  std::vector<ServerLink>::const_iterator end() const { return links_.end(); }

  // Null if it is no longer the one of its path.
  ServerPath* Find(const Source& source);

  // Whether another server than this one is left.
  bool HasOtherThan(int32_t server) const;

  // Those that there are.
  std::vector<std::shared_ptr<Connection>> connections() const;
  // Of all connections, those to come, too; see Connection::LimitUnsent.
  void LimitUnsent(uint64_t bytes) { unsent_bytes_ = bytes; }
  uint64_t unsent_bytes() const { return unsent_bytes_; }  // 0: as it is
  std::vector<PathCounters> counters() const;

  // Whoever pushed the reply's round has the result of the one before, which this server may have
  // been sent.
  void DropResults(const FrameHeader& reply, int32_t server, Dropped* dropped);
  // Of the frames that are kept for servers, takes out those whose part has gone to another one:
  // withdrawals are returned, results dropped.
  std::vector<OutgoingFrame> TakeMoved(const std::function<bool(const OutgoingFrame& frame)>& stays,
                                       Dropped* dropped);
  // Nothing will be sent any more but what is.
  void Clear(Dropped* dropped);

 private:
  std::vector<ServerLink> links_;
  uint64_t unsent_bytes_ = 0;
};

}  // namespace byteps
