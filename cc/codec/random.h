// Random numbers from counters: element i of a part always draws the same number.
#pragma once

#include <cstdint>

#include "cc/codec/codec.h"

namespace byteps {

class CounterRandom {
 public:
  explicit CounterRandom(const PartSeed& seed) {
    uint64_t state = 0;
    for (const uint64_t word : {seed.job, seed.key, seed.part, seed.round, seed.sender}) {
      state = Mix(state ^ word);
    }
    *this = CounterRandom(state);
  }

  // That of which this is the state().
  explicit CounterRandom(uint64_t state)
      : low_(static_cast<uint32_t>(state)), high_(static_cast<uint32_t>(state >> 32)) {}

  uint64_t state() const { return uint64_t{high_} << 32 | low_; }

  // 32 random bits. Two rounds of multiplication, as in MurmurHash3's finalizer, with the second
  // half of the key between them.
  uint32_t Draw(uint64_t index) const {
    uint32_t bits = static_cast<uint32_t>(index) + low_;
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = ((bits ^ bits >> 13) + high_) * 0xc2b2ae35u;
    return bits ^ bits >> 16;
  }

  // In [0, 1), a multiple of 2^-24.
  float DrawUniform(uint64_t index) const {
    return static_cast<float>(static_cast<int32_t>(Draw(index) >> 8)) * 0x1p-24f;
  }

 private:
  // SplitMix64.
  static uint64_t Mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }

  uint32_t low_;
  uint32_t high_;
};

}  // namespace byteps
