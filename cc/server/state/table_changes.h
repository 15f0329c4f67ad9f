// TableChanges: which changes of a block of a table the workers have asked for. It knows numbers,
// but neither rows nor replies.
//
// All workers ask for the same changes in the same order. A change is made when all of them have
// asked for it, and is counted only if it is made: after an error all ask for the same number
// again. Reads are each worker's own, and wait for nobody: whoever has made n changes reads the
// rows with exactly n.
//
// A copy that has lost its rows gets them again from another one (docs/protocol.md, rule 39),
// between changes: what is filled in at change n has all changes before n. It takes part from the
// first change on that nobody can have asked for before the filling begins.
//
// When a worker has released the table, no change can be made any more. When all have, the copy is
// freed, and stays so (docs/protocol.md, rule 41).
#pragma once

#include <cstdint>
#include <vector>

namespace byteps {

// Not thread-safe: the part's mutex guards every call.
class TableChanges {
 public:
  enum class Verdict {
    kWait,    // others have not asked for it yet
    kReady,   // all have: make it, then call Made or Failed
    kIsIn,    // it was made, and its answer is lost
    kLost,    // there are changes before it that are not here: the rows are of no use any more
    kMissed,  // it is made without this copy, which will have its result
    kLeft,    // a worker has left this training, and will not ask for it there
  };

  explicit TableChanges(int32_t num_workers);

  // `worker` asks for the change of this number, in a round of this training (base/
  // training_rounds.h). What it has asked for before and has no answer to, it has given up.
  Verdict OnChange(int32_t worker, uint64_t number, uint64_t training);
  bool MayRead(uint64_t number) const { return state_ == State::kWhole && made_ >= number; }
  // Whether rows that are read now have exactly so many changes, as those that are filled in must.
  bool MayCopy(uint64_t number) const { return state_ == State::kWhole && made_ == number; }
  bool MayFill(uint64_t number) const { return state_ == State::kFilling && made_ == number; }

  // Those who wait, in rank order. After Made, Failed or Lose nobody waits.
  std::vector<int32_t> waiting() const;
  void Made();
  void Failed();
  // The first change has brought rows here that have so many changes.
  void BeginAt(uint64_t number) { made_ = number; }
  // A change was made elsewhere that is not here, or all is gone. Nothing of a freed copy is.
  void Lose();
  // Only of a lost copy: it is filled by a worker who has made so many changes. Others may have
  // asked for the next one, here or where the copy was before, and been refused.
  void Refill(uint64_t number);
  // All rows have been filled in.
  void EndFilling() { state_ = State::kWhole; }

  // A worker has left all trainings before this one. Returns who waits there for a change, in rank
  // order: they wait no more.
  std::vector<int32_t> Leave(uint64_t training);

  // `worker` asks for nothing any more. Once is enough; those who wait do so in vain.
  void Release(int32_t worker);
  // The first worker that has released the table; -1: nobody has.
  int32_t released_by() const { return released_by_; }

  // `worker` has given up what it has asked for, and what it could yet ask for in trainings up to
  // this one. Returns whether the change fails for those who wait.
  bool Withdraw(int32_t worker, uint64_t training);

  bool is_lost() const { return state_ == State::kLost; }
  bool is_whole() const { return state_ == State::kWhole; }
  bool is_freed() const { return state_ == State::kFreed; }
  // The first change that this copy takes part in.
  uint64_t begun() const { return begun_; }
  uint64_t made() const { return made_; }

 private:
  enum class State { kWhole, kLost, kFilling, kFreed };
  struct Asked {
    bool waits = false;
    uint64_t training = 0;
  };

  std::vector<Asked> workers_;  // by rank
  int32_t num_waiting_ = 0;
  uint64_t made_ = 0;
  State state_ = State::kWhole;
  uint64_t begun_ = 0;
  uint64_t left_before_ = 0;        // some worker has left all trainings before this one
  std::vector<bool> has_released_;  // by rank
  int32_t num_released_ = 0, released_by_ = -1;
};

}  // namespace byteps
