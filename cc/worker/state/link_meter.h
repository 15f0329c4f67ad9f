// LinkMeter: what this worker's pushes achieve while more of them wait: the rate of its link, or of
// what else is slower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace byteps {

// Measures once. Not thread-safe.
class LinkMeter {
 public:
  // To be called after whatever changes the queue. `taken_in` bytes have reached their servers
  // since the last call; `waiting`: there are parts that the credit does not admit.
  void Note(int64_t now_ns, uint64_t taken_in, bool waiting);

  // Two samples in a row agree, or there have been many.
  bool is_complete() const { return is_complete_; }
  // What the fastest sample says; 0 before there is one.
  uint64_t bytes_per_second() const { return fastest_; }

 private:
  void EndWindow();
  void EndSample();

  // The first part is not counted: connections have not got their speed yet, and servers allocate.
  static constexpr int64_t kWarmUpNanos = 100 * 1000 * 1000;
  static constexpr int64_t kWindowNanos = 20 * 1000 * 1000;
  // A sample is what the fastest fifth of so many windows reach: where workers wait for each other
  // the link does nothing, and nobody here can tell. Where servers wait for memory, which may take
  // some steps, that goes for whole samples.
  static constexpr size_t kWindows = 15;
  static constexpr size_t kMostSamples = 10;

  bool waiting_ = false;
  int64_t last_ns_ = 0;
  int64_t warm_up_ns_ = 0;
  int64_t busy_ns_ = 0;  // of this window, as bytes_
  uint64_t bytes_ = 0;
  std::vector<uint64_t> windows_;  // bytes per second
  size_t samples_ = 0;
  uint64_t fastest_ = 0;
  bool is_complete_ = false;
};

}  // namespace byteps
