// StoreClocks: what becomes of each push to one part of an asynchronous store, and who has to wait
// for whom. It knows rounds (base/store_rounds.h), but neither values nor replies.
//
// A worker's clock is the number of its pushes to the newest store. With a staleness s, nobody gets
// an answer whose clock is more than s ahead of the slowest. Who has left is not waited for. When
// all have joined their clocks are made equal: who had fewer pushes gets a lead.
//
// A push costs the same with any number of workers (protocol rule 30): all are looked at once for
// each round of the slowest, and when one comes back that had left.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/lowest_round.h"

namespace byteps {

// Not thread-safe: the part's mutex guards every call.
class StoreClocks {
 public:
  enum class Verdict {
    kBegin,    // it is the value of a new store
    kAdd,      // to the store
    kIsIn,     // the store has begun with another worker's value, or has this push already
    kOld,      // it belongs to a store before the newest
    kNoValue,  // nobody has pushed the value that the store begins with
    kLost,     // the value was on a server that is lost, and no worker has it
  };

  // `staleness`: see TensorDescription.
  StoreClocks(int32_t num_workers, int32_t staleness);

  // All of a push is here. `lead`: the worker counts as if it had pushed so many times more.
  Verdict OnPush(int32_t worker, uint64_t round, uint64_t lead = 0);

  // Nobody waits for `worker`, until it pushes again.
  void OnLeft(int32_t worker);

  // The part comes from a server that is lost, with the value of this version and its `bits`. Until
  // a worker pushes again, says how far it is, or leaves, its clock counts as 0.
  void Inherit(uint64_t version, uint64_t bits);
  // The same, but nobody has the value.
  void Lose(uint64_t version);

  // `worker` tells a server that has inherited the part that it has pushed this round, and has the
  // answer.
  void OnTold(int32_t worker, uint64_t round, uint64_t lead = 0);

  // All workers go on alike: this one's clock is `clock`, and it has not left.
  void OnAllJoined(int32_t worker, uint64_t clock);

  // Whether the answer to this push has to wait.
  bool MustWait(uint64_t round, uint64_t lead = 0) const;
  // Of those who have not left; changes when somebody need wait no longer.
  uint64_t slowest() const;

  uint64_t version() const { return version_; }  // 0: there has been none
  uint64_t bits() const { return bits_; }
  // Whether it is of the newest store.
  bool IsNewest(uint64_t round) const;

 private:
  enum class Value { kNone, kHere, kLost };

  bool IsInherited(int32_t worker, uint64_t round) const;
  void NoteClock(int32_t worker, uint64_t clock);

  const int32_t staleness_;
  LowestRound clocks_;  // the newest round of each, plus one; the highest number: it has left
  std::vector<bool> has_left_;
  std::vector<bool> has_pushed_here_;  // since the value was inherited
  Value value_ = Value::kNone;
  uint64_t version_ = 0;
  uint64_t bits_ = 0;
};

}  // namespace byteps
