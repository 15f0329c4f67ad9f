// StepMeter: how long a training's steps take, and how much of that is exposed communication.
//
// Nobody tells the engine where a step begins. But it knows gradients by their names, as
// tf_byteps/gradients/reducing.py gives them, and a step has the same ones as the step before: it
// ends when as many have ended, or at the latest when one comes again. When the last of them has
// its input, the backward pass has no more to give: the time from then to the end of the step is
// its exposed communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace byteps {

struct StepCounters {
  uint64_t steps = 0;             // but for the first, whose beginning is not known
  uint64_t unmeasured_steps = 0;  // of them: those whose exposed communication is not known
  int64_t step_ns = 0;            // from the end of a step to the end of the next
  int64_t exposed_ns = 0;
  int64_t input_ns = 0;  // of step_ns: until batches were there
  uint64_t samples = 0;  // in the batches of these steps
};

// Not thread-safe. Times are those of MonotonicNanos().
class StepMeter {
 public:
  // Notes an exchange that begins; its name is not in flight. `is_awaited`: its step waits for it,
  // as far as this process can see. Returns the number of the step whose time it tells; 0: of none,
  // as what is not a gradient, or one that the step before did not have.
  uint64_t Begin(const std::string& name, bool is_awaited);

  // The input of an exchange of this step is there.
  void NoteInput(uint64_t step, int64_t now_ns);

  // A batch of so many samples has come, after a wait.
  void NoteBatch(int64_t waited_ns, uint64_t samples, int64_t now_ns);

  // An exchange of this step has ended.
  void End(uint64_t step, int64_t now_ns);

  const StepCounters& counters() const { return counters_; }

 private:
  void BeginStep();
  void Count();

  std::unordered_map<std::string, uint64_t> last_steps_;  // of each gradient
  uint64_t step_ = 0;                                     // the current one
  size_t used_ = 0;       // gradients of this step, with those that the step before did not have
  size_t expected_ = 0;   // those of the step before; 0: there was none
  size_t in_flight_ = 0;  // of this step's
  size_t ended_ = 0;
  bool is_awaited_ = true;
  bool is_counted_ = false;
  int64_t last_input_ns_ = 0;
  int64_t last_end_ns_ = 0;
  int64_t previous_end_ns_ = 0;  // of the step before; 0: there was none
  int64_t waited_until_ns_ = 0;  // for a batch, or for the step before
  int64_t input_ns_ = 0;         // since the step before was counted; so the samples
  uint64_t samples_ = 0;
  StepCounters counters_;
};

}  // namespace byteps
