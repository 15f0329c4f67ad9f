// TableChanges: which changes of a block of a table the workers have asked for. It knows numbers,
// but neither rows nor replies.
//
// All workers ask for the same changes in the same order. A change is made when all of them have
// asked for it, and is counted only if it is made: after an error all ask for the same number
// again. Reads are each worker's own, and wait for nobody: whoever has made n changes reads the
// rows with exactly n.
#ifndef TF_BYTEPS_CC_SERVER_STATE_TABLE_CHANGES_H_
#define TF_BYTEPS_CC_SERVER_STATE_TABLE_CHANGES_H_

#include <cstdint>
#include <vector>

namespace byteps {

// Not thread-safe: the part's mutex guards every call.
class TableChanges {
 public:
  enum class Verdict {
    kWait,   // others have not asked for it yet
    kReady,  // all have: make it, then call Made or Failed
    kIsIn,   // it was made, and its answer is lost
    kLost,   // there are changes before it that are not here: the rows are of no use any more
  };

  explicit TableChanges(int32_t num_workers);

  // `worker` asks for the change of this number, in a round of this training (base/
  // training_rounds.h). What it has asked for before and has no answer to, it has given up.
  Verdict OnChange(int32_t worker, uint64_t number, uint64_t training);
  bool MayRead(uint64_t number) const { return !is_lost_ && made_ >= number; }

  // Those who wait, in rank order. After Made, Failed or Lose nobody waits.
  std::vector<int32_t> waiting() const;
  void Made();
  void Failed();
  // A change was made elsewhere that is not here, or all is gone.
  void Lose();

  // `worker` has given up what it has asked for, and what it could yet ask for in trainings up to
  // this one. Returns whether the change fails for those who wait.
  bool Withdraw(int32_t worker, uint64_t training);

  bool is_lost() const { return is_lost_; }
  uint64_t made() const { return made_; }

 private:
  struct Asked {
    bool waits = false;
    uint64_t training = 0;
  };

  std::vector<Asked> workers_;  // by rank
  int32_t num_waiting_ = 0;
  uint64_t made_ = 0;
  bool is_lost_ = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_STATE_TABLE_CHANGES_H_
