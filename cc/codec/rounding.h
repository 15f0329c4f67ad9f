// Inner loops that compilers vectorize, written once (codec/rounding_loops.h) and compiled for each
// instruction set; all give the same bits. Private to codec/.
#pragma once

#include <cstdint>

#include "cc/codec/random.h"
#include "cc/codec/scale.h"

namespace byteps::codec_internal {

// How elements become whole levels: at random, so that they are right on average.
struct Rounding {
  CounterRandom random;
  float inverse;   // of a level; RoundBlocks finds those of its blocks
  int32_t most;    // levels are -most .. most, at most 127
  int32_t offset;  // what is added to a level
};

// No alignment is needed, and memory does not overlap. `index` is the first element's in its part.
struct RoundingLoops {
  const char* name;  // as in SumKernels
  // The largest magnitude, as LargestBits.
  uint32_t (*largest)(const float* values, uint64_t count);
  // A byte for each element: its level plus offset, or 0 if it is not finite.
  void (*levels)(uint8_t* out, const float* values, uint64_t count, const Rounding& rounding,
                 uint64_t index);
  // Two bytes below 16 become one, the first one its low half.
  void (*pack)(uint8_t* out, const uint8_t* nibbles, uint64_t pairs);
  void (*unpack)(uint8_t* nibbles, const uint8_t* bytes, uint64_t pairs);
  // Stores or adds, by DecodeMode: a byte less an offset, or NaN if it is 0.
  void (*put_levels[2])(float* target, const uint8_t* codes, uint64_t count, int32_t offset);
  // Stores such levels.
  void (*store_levels)(float* target, const uint16_t* codes, uint64_t count, int32_t offset);
  // Values times a factor, rounded to the nearest whole number from -top to top, plus top + 1; or 0
  // if they are not finite.
  void (*codes)(uint16_t* out, const float* values, uint64_t count, float factor, int32_t top);
  // Eight codes of `bits` bits, 8 at most, become the low bits of a word, the first one the lowest;
  // and back. Up to kRotatedElements codes in all.
  void (*narrow)(uint64_t* words, const uint16_t* codes, uint64_t count, uint32_t bits);
  void (*widen)(uint16_t* codes, const uint64_t* words, uint64_t count, uint32_t bits);
  // Stores or adds values divided by a number; `signs` has sign bits that turn theirs round.
  void (*put_quotients[2])(float* target, const float* values, const uint32_t* signs,
                           uint64_t count, float divisor);
  // 4096 elements times a Hadamard matrix of which each entry is 1 or -1, then times that again:
  // 4096 times what there was. `from` is lost.
  void (*rotate)(float* to, float* from);
};

// The twin of ActiveSumKernels(), so that one choice holds for a process.
const RoundingLoops& ActiveRoundingLoops();

inline constexpr uint64_t kRotatedElements = 4096;

inline constexpr uint64_t kMostRounded = 4096;

// Rounds whole blocks, and perhaps a last shorter one, of up to kMostRounded elements: short blocks
// alone would be too short for vectors. Each gets the scale with which its largest element is the
// level `most`. The levels of one that is not finite are 0.
void RoundBlocks(const float* values, uint64_t elements, uint64_t block, const Rounding& rounding,
                 uint64_t index, BFloat16* scales, uint8_t* levels);

// Null in a build without code for the instruction set.
const RoundingLoops* Avx2RoundingLoops();
const RoundingLoops* Avx512RoundingLoops();

}  // namespace byteps::codec_internal
