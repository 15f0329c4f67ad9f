// Joins: workers that have no more data, until all have none.
//
// Servers go on without them, with zeros in their place. When the last one has joined, servers are
// told to wait for all again, and only then the workers, who may begin rounds at once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class Joins {
 public:
  // All of them outlive it.
  Joins(int32_t num_workers, PeerTable* peers, TableUpdates* updates)
      : num_workers_(num_workers), peers_(*peers), updates_(*updates) {}

  // A worker joins. An error is to go after its name.
  Status On(const Joined& joined, const JobPeer& from, CoordinatorEffects* effects);
  // A worker has left: those that have joined wait for it in vain.
  void OnDeparted(const JobPeer& worker, CoordinatorEffects* effects);
  // All servers have taken in more.
  void EndIfReady(CoordinatorEffects* effects);
  // Nobody waits for these, until all have joined.
  const std::set<int32_t>& joined() const { return joined_; }
  // What a server that has been started again must know.
  void Greet(const JobPeer& server, CoordinatorEffects* effects);

 private:
  // Who has.
  Joined Now() const;
  // From now on all take part again.
  Joined AllAgain() const;
  // All have joined: they go on with each store as if all had made as many pushes.
  void AlignClocks();
  void Refuse(const JobPeer& worker, const std::string& leaver, CoordinatorEffects* effects);

  const int32_t num_workers_;
  PeerTable& peers_;
  TableUpdates& updates_;
  std::set<int32_t> joined_;
  std::map<int32_t, std::vector<Joined::Failed>> failed_;   // of these, by rank
  std::map<int32_t, std::vector<Joined::Clock>> reported_;  // of these, by rank
  std::vector<Joined::Clock> clocks_;                       // since all had joined last
  int32_t last_ = -1;
  std::string leaver_;                     // the name of a worker that has left; empty: none has
  std::optional<uint64_t> needed_update_;  // all have joined; the servers know by then
};

}  // namespace byteps
