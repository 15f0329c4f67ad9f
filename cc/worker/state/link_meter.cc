#include "cc/worker/state/link_meter.h"

#include <algorithm>
#include <functional>

namespace byteps {

void LinkMeter::Note(int64_t now_ns, uint64_t taken_in, bool waiting) {
  if (waiting_ && warm_up_ns_ < kWarmUpNanos) {
    warm_up_ns_ += now_ns - last_ns_;
  } else if (waiting_) {
    busy_ns_ += now_ns - last_ns_;
    bytes_ += taken_in;
    if (busy_ns_ >= kWindowNanos) EndWindow();
  }
  waiting_ = waiting;
  last_ns_ = now_ns;
}

void LinkMeter::EndWindow() {
  windows_.push_back(static_cast<uint64_t>(1e9 * bytes_ / busy_ns_));
  busy_ns_ = 0;
  bytes_ = 0;
  if (windows_.size() == kWindows) EndSample();
}

void LinkMeter::EndSample() {
  const auto chosen = windows_.begin() + kWindows / 5;
  std::nth_element(windows_.begin(), chosen, windows_.end(), std::greater<>());
  const uint64_t sample = *chosen;
  windows_.clear();
  ++samples_;
  // Not much faster than the fastest before, and not much slower.
  const bool agrees =
      samples_ > 1 && sample <= fastest_ + fastest_ / 4 && sample + fastest_ / 4 >= fastest_;
  fastest_ = std::max(fastest_, sample);
  is_complete_ = agrees || samples_ == kMostSamples;
}

}  // namespace byteps
