// Failover: training goes on when a server is lost (protocol rule 15). Asks all workers how far
// they are with the parts that it had; the coordinator then gives the parts to others.
//
// The results of a part's rounds reach the workers one after another, so that some may have that of
// a round which others still lack, but never of two rounds: nobody's next round ends before all
// have pushed it. What a part goes on with follows: the newest round that anybody has no result of.
// Who is a round behind gets its result from one who has it. The next round of a quorum may end
// before all have pushed it, that after it may not: who is two rounds behind gets both results.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/transition.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class Failover {
 public:
  enum class State {
    kIdle,
    kAsking,  // until all workers have said how far they are
    kMoving,  // until all servers know of the new owners
  };

  // "PartProgress": that of the last worker, or the last of the others leaves. "TableAck": that of
  // the last server. docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kIdle, "ServerLost", State::kAsking},
      {State::kIdle, "ServerRejoined", State::kAsking},
      {State::kAsking, "ServerLost", State::kAsking},
      {State::kAsking, "PartProgress", State::kMoving},
      {State::kMoving, "ServerLost", State::kAsking},
      {State::kMoving, "TableAck", State::kIdle},
  };

  explicit Failover(int32_t num_workers);

  State state() const { return state_; }

  // A server is lost: begins, or begins anew if one is being made up for. Returns the version of
  // the placement to come.
  uint32_t Begin();

  // The servers are told of the new owners.
  void Move() { state_ = State::kMoving; }
  // Ends it: the workers have been told.
  void End() { state_ = State::kIdle; }

  bool is_running() const { return state_ != State::kIdle; }
  uint32_t version() const { return version_; }

  // Answers to an earlier Begin are ignored.
  void OnPartProgress(int32_t rank, const PartProgress& progress);
  // A worker that has left is not waited for.
  void OnDeparted(int32_t rank);
  // Whether all have answered.
  bool all_paused() const { return state_ == State::kAsking && awaited_.empty(); }

  // A worker has results. Returns those of which it is now known that all workers have them, so
  // that none need be kept. Not once a worker has left: then all are about to.
  // `num_members`: how many workers take part in the rounds of a key; null: all.
  std::vector<RoundProgress::Tensor> OnResults(
      int32_t rank, const ResultProgress& progress,
      const std::function<size_t(uint64_t key)>& num_members = nullptr);

  // What the moved parts of these entries go on with.
  std::vector<PartsMoved::Part> Agree(const std::vector<TableEntry>& entries) const;

 private:
  struct Standing {
    int32_t worker = -1;
    uint64_t next_round = 0;
    bool has_result = false;
    bool has_earlier = false;
  };
  // Who may lack results that others have, and of how many rounds.
  enum class Lag {
    kOneRound,   // a worker
    kTwoRounds,  // a worker: there are sums of a quorum
    kServer,     // of a store: the server itself, too
  };

  PartsMoved::Part AgreeOn(const std::vector<Standing>& standings, Lag lag,
                           size_t num_members) const;

  std::set<int32_t> workers_;  // that are here
  State state_ = State::kIdle;
  uint32_t version_ = 0;
  std::set<int32_t> awaited_;
  std::map<std::pair<uint64_t, uint32_t>, std::vector<Standing>> standings_;  // by key and part
  // Of tensors of which some workers have said that they have all results, and not all have.
  struct Holders {
    uint64_t next_round = 0;      // the newest that was said
    std::vector<bool> have_said;  // by rank
    size_t count = 0;             // of them
  };
  const size_t num_workers_;
  std::unordered_map<uint64_t, Holders> results_;  // by key
};

}  // namespace byteps
