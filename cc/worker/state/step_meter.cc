#include "cc/worker/state/step_meter.h"

#include <algorithm>

namespace byteps {
namespace {

// "gradient/dense/kernel", or "gradient@train.py:12:step/0", in a scope or not.
bool IsGradient(const std::string& name) {
  const std::string path = "/" + name;
  return path.find("/gradient/") != std::string::npos ||
         path.find("/gradient@") != std::string::npos;
}

}  // namespace

uint64_t StepMeter::Begin(const std::string& name, bool is_awaited) {
  if (!IsGradient(name)) return 0;
  uint64_t& last_step = last_steps_[name];
  if (last_step == step_) BeginStep();
  const bool was_in_last_step = last_step + 1 == step_;
  last_step = step_;
  ++used_;
  if (!was_in_last_step || is_counted_) return 0;
  ++in_flight_;
  is_awaited_ = is_awaited_ && is_awaited;
  return step_;
}

void StepMeter::NoteInput(uint64_t step, int64_t now_ns) {
  if (step == step_) last_input_ns_ = now_ns;
}

void StepMeter::NoteBatch(int64_t waited_ns, uint64_t samples, int64_t now_ns) {
  // How many gradients the first step has nobody knows before the second. This batch is for that.
  if (expected_ == 0 && ended_ > 0 && in_flight_ == 0 && !is_counted_) Count();
  samples_ += samples;
  // Gradients in flight: this is fetched for the next step, and nobody waits for it.
  if (in_flight_ > 0) return;
  input_ns_ += now_ns - std::max(now_ns - waited_ns, std::min(waited_until_ns_, now_ns));
  waited_until_ns_ = now_ns;
}

void StepMeter::End(uint64_t step, int64_t now_ns) {
  if (step == 0 || step != step_) return;
  last_end_ns_ = now_ns;
  ++ended_;
  --in_flight_;
  if (in_flight_ == 0 && ended_ == expected_) Count();
}

void StepMeter::BeginStep() {
  // A caller that begins anew without all results does not wait for them.
  if (in_flight_ > 0) is_awaited_ = false;
  if (!is_counted_ && ended_ > 0) Count();
  ++step_;
  expected_ = used_;
  used_ = in_flight_ = ended_ = 0;
  is_awaited_ = true;
  is_counted_ = false;
}

void StepMeter::Count() {
  is_counted_ = true;
  if (previous_end_ns_ > 0) {
    ++counters_.steps;
    counters_.step_ns += last_end_ns_ - previous_end_ns_;
    counters_.input_ns += input_ns_;
    counters_.samples += samples_;
    if (is_awaited_) {
      counters_.exposed_ns += last_end_ns_ - std::max(last_input_ns_, previous_end_ns_);
    } else {
      ++counters_.unmeasured_steps;
    }
  }
  previous_end_ns_ = waited_until_ns_ = last_end_ns_;
  input_ns_ = 0;
  samples_ = 0;
}

}  // namespace byteps
