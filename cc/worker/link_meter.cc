#include "cc/worker/link_meter.h"

namespace byteps {

void LinkMeter::Note(int64_t now_ns, uint64_t taken_in, bool waiting) {
  if (waiting_ && warm_up_ns_ < kWarmUpNanos) {
    warm_up_ns_ += now_ns - last_ns_;
  } else if (waiting_) {
    busy_ns_ += now_ns - last_ns_;
    bytes_ += taken_in;
  }
  waiting_ = waiting;
  last_ns_ = now_ns;
}

uint64_t LinkMeter::bytes_per_second() const {
  return busy_ns_ == 0 ? 0 : static_cast<uint64_t>(1e9 * bytes_ / busy_ns_);
}

}  // namespace byteps
