// GraceWindow: how long a round waits for more workers once those are there that it needs.
//
// With kAdaptiveGrace that is twice as long as workers lately came after the quorum, but no longer
// than a twentieth of the time from one round to the next: that is what a straggler may cost the
// others. Who comes later than that does not count, since no window would have helped.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/base/tensor_description.h"

namespace byteps {

// Not thread-safe. Times are nanoseconds of one clock.
class GraceWindow {
 public:
  // Before anything has been measured.
  static constexpr int64_t kFirstNanos = 1000000000;
  static constexpr int64_t kMostShare = 20;

  // The quorum is there, the first time in this round.
  void Begin(int32_t grace_ms, int64_t now_ns) {
    const int64_t before_ns = begin_ns_;
    begin_ns_ = now_ns;
    is_open_ = true;
    if (before_ns != 0) most_ns_ = std::max<int64_t>(0, (now_ns - before_ns) / kMostShare);
    int64_t wait_ns = 0;
    if (grace_ms >= 0)
      wait_ns = grace_ms * int64_t{1000000};
    else if (grace_ms == kAdaptiveGrace)
      wait_ns = has_lags_ ? std::min(2 * lag_ns_, most_ns_) : std::min(kFirstNanos, most_ns_);
    end_ns_ = now_ns + wait_ns;
  }
  bool has_begun() const { return is_open_; }
  int64_t begin_ns() const { return begin_ns_; }
  int64_t end_ns() const { return end_ns_; }
  bool IsOver(int64_t now_ns) const { return now_ns >= end_ns_; }
  void EndRound() { is_open_ = false; }

  // A worker came so much later than the quorum, in time or not.
  void NoteLag(int64_t lag_ns) {
    if (lag_ns < 0 || lag_ns > most_ns_) return;
    lag_ns_ = has_lags_ ? lag_ns_ + (lag_ns - lag_ns_) / 8 : lag_ns;
    has_lags_ = true;
  }

 private:
  bool is_open_ = false;
  bool has_lags_ = false;
  int64_t begin_ns_ = 0;  // of the last one; 0: there was none
  int64_t end_ns_ = 0;
  int64_t most_ns_ = kFirstNanos;  // of an adaptive one
  int64_t lag_ns_ = 0;             // the mean of about the last eight
};

}  // namespace byteps
