#include "cc/worker/link_meter.h"

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
}

uint64_t LinkMeter::bytes_per_second() const {
  if (windows_.empty()) return 0;
  std::vector<uint64_t> sorted = windows_;
  const auto chosen = sorted.begin() + sorted.size() / 5;
  std::nth_element(sorted.begin(), chosen, sorted.end(), std::greater<>());
  return *chosen;
}

}  // namespace byteps
