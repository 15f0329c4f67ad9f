// Inner loops of int8 with rounding to nearest, one implementation per instruction set; all give
// the same bits. Private to codec/.
#pragma once

#include <cstdint>

namespace byteps::codec_internal {

// On whole blocks of `block` elements, a multiple of 32. No alignment is needed.
struct Int8Kernels {
  const char* name;  // as in SumKernels
  void (*encode)(uint8_t* out, const float* values, uint64_t blocks, uint64_t block);
  void (*store)(float* target, const uint8_t* data, uint64_t blocks, uint64_t block);
  void (*add)(float* target, const uint8_t* data, uint64_t blocks, uint64_t block);
};

// The twin of ActiveSumKernels(), so that one choice holds for a process.
const Int8Kernels& ActiveInt8Kernels();

// Blocks of any length; the vector kernels agree with them.
void EncodeInt8Block(uint8_t* out, const float* values, uint64_t elements);
void StoreInt8Block(float* target, const uint8_t* data, uint64_t elements);
void AddInt8Block(float* target, const uint8_t* data, uint64_t elements);

// Null in a build without code for the instruction set.
const Int8Kernels* Avx2Int8Kernels();
const Int8Kernels* Avx512Int8Kernels();

}  // namespace byteps::codec_internal
