#include "cc/codec/speed.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "cc/base/clock.h"
#include "cc/codec/int8_codec.h"

namespace byteps {

uint64_t Int8BytesPerSecond() {
  constexpr uint64_t kElements = 16 * 1024;
  constexpr uint64_t kBlock = 32;
  // The fastest of some: others may be at work on this core.
  constexpr int kRuns = 8;
  const Int8Codec codec(kBlock, false);
  std::vector<float> values(kElements);
  for (uint64_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i % 1000);
  std::vector<uint8_t> encoded(codec.EncodedBytes(kElements));
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  for (int run = 0; run < kRuns; ++run) {
    const int64_t begin_ns = MonotonicNanos();
    codec.EncodeBlocks(values.data(), kElements, 0, CounterRandom(uint64_t{0}), encoded.data());
    codec.DecodeBlocks(encoded.data(), kElements, DecodeMode::kAdd, values.data());
    least_ns = std::min(least_ns, MonotonicNanos() - begin_ns);
  }
  return kElements * sizeof(float) * 1000000000 / std::max<int64_t>(least_ns, 1);
}

}  // namespace byteps
