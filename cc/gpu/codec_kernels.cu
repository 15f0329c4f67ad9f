// Codecs on a GPU: the bytes are those of codec/int8_codec.h, fp8_codec.h, int4_codec.h and
// thc_codec.h on a CPU, bit for bit.
//
// `make ptx` compiles this file to codec_kernels_ptx.h, which is in the repository: a driver
// compiles that for its GPU, and keeps the result, so that neither building nor running needs CUDA.
//
// One warp encodes or decodes a block with a scale: its elements are next to each other in memory.
// Blocks are short; what limits these kernels is the GPU's memory. A block of thc is rotated, by a
// group of threads.

using uint8_t = unsigned char;
using uint32_t = unsigned int;
using int32_t = int;
using uint64_t = unsigned long long;

namespace {

enum : uint32_t { kWarp = 32, kScaleBytes = 2, kInfinity = 0x7f800000 };

// What one launch encodes or decodes: groups with `blockIdx.y` i take part i. Also in
// device_codec.cc.
struct EncodedPart {
  const float* values;
  uint64_t elements;
  uint64_t random_state;
  uint64_t first;  // the first element's index in the part, by which random numbers are drawn
  uint8_t* out;
};
struct DecodedPart {
  const uint8_t* data;
  uint64_t elements;
  float* target;
};
enum : uint32_t { kMostParts = 8 };  // kPartsTogether
template <typename Part>
struct Parts {
  Part part[kMostParts];
};
using EncodedParts = Parts<EncodedPart>;
using DecodedParts = Parts<DecodedPart>;

// Without an index that the compiler does not know, for which it would copy them all to memory.
template <typename Part>
__device__ Part PartOfGroup(const Parts<Part>& parts) {
  Part own = parts.part[0];
#pragma unroll
  for (uint32_t i = 1; i < kMostParts; ++i) {
    if (blockIdx.y == i) own = parts.part[i];
  }
  return own;
}

// The warps of a part's groups share its blocks.
struct Blocks {
  uint64_t next = (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  uint64_t stride = uint64_t{gridDim.x} * blockDim.x / kWarp;
  uint32_t lane = threadIdx.x % kWarp;
};

__device__ uint32_t LargestOfWarp(uint32_t value) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

// As CounterRandom (codec/random.h), with the halves of its state.
struct Random {
  uint32_t low;
  uint32_t high;

  __device__ uint32_t Draw(uint64_t index) const {
    uint32_t bits = static_cast<uint32_t>(index) + low;
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = ((bits ^ bits >> 13) + high) * 0xc2b2ae35u;
    return bits ^ bits >> 16;
  }
  __device__ float DrawUniform(uint64_t index) const {
    return static_cast<float>(static_cast<int32_t>(Draw(index) >> 8)) * 0x1p-24f;
  }
};

__device__ Random RandomOf(const EncodedPart& part) {
  return {static_cast<uint32_t>(part.random_state), static_cast<uint32_t>(part.random_state >> 32)};
}

__device__ int32_t RoundStochastic(float value, float uniform) {
  const float down = floorf(value);
  return static_cast<int32_t>(down) + (uniform < __fsub_rn(value, down) ? 1 : 0);
}

// The one NaN that decoders give.
__device__ float OneNan(float value) {
  return value == value ? value : __uint_as_float(0x7fc00000);
}

// What an element becomes: `value` is already divided by the block's scale.
struct Int8 {
  static constexpr float kReciprocal = 1.0f / 127;
  static constexpr uint32_t kBits = 8;
  static __device__ uint32_t Encode(float value, uint64_t index, const Random& random,
                                    bool is_stochastic) {
    const int32_t level =
        is_stochastic ? RoundStochastic(value, random.DrawUniform(index)) : __float2int_rn(value);
    return static_cast<uint8_t>(max(-127, min(127, level)));
  }
  static __device__ float Decode(uint32_t bits) { return static_cast<signed char>(bits); }
};

struct Int4 {
  static constexpr float kReciprocal = 1.0f / 7;
  static constexpr uint32_t kBits = 4;
  static __device__ uint32_t Encode(float value, uint64_t index, const Random& random, bool) {
    return max(-7, min(7, RoundStochastic(value, random.DrawUniform(index)))) + 8;
  }
  static __device__ float Decode(uint32_t bits) { return static_cast<int32_t>(bits) - 8; }
};

struct Float8 {
  static constexpr float kReciprocal = 1.0f / 448;
  static constexpr uint32_t kBits = 8;
  static __device__ uint32_t Encode(float value, uint64_t, const Random&, bool) {
    const uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffff;
    const uint32_t even = magnitude + 0x7ffff + (magnitude >> 20 & 1);
    const uint32_t normal = (even >> 20) - (120 << 3);
    const float shifted = __fadd_rn(__uint_as_float(magnitude), 0x1p14f);
    const uint32_t subnormal = __float_as_uint(shifted) - __float_as_uint(0x1p14f);
    const uint32_t rounded = magnitude < 0x3c800000 ? subnormal : normal;
    return (bits >> 24 & 0x80) | min(rounded, 0x7eu);
  }
  static __device__ float Decode(uint32_t bits) {
    const uint32_t magnitude = bits & 0x7f;
    if (magnitude == 0x7f) return __uint_as_float(0x7fc00000);
    const float value = __fmul_rn(__uint_as_float(magnitude << 20), 0x1p120f);
    return bits < 0x80 ? value : -value;
  }
};

template <typename Element>
__device__ void Encode(const EncodedPart& part, uint32_t block, bool is_stochastic) {
  const float* const values = part.values;
  const uint64_t elements = part.elements;
  const Random random = RandomOf(part);
  const uint32_t block_bytes = kScaleBytes + block * Element::kBits / 8;
  Blocks blocks;
#pragma unroll 1
  for (; blocks.next * block < elements; blocks.next += blocks.stride) {
    const uint64_t begin = blocks.next * block;
    const uint64_t count = min(static_cast<uint64_t>(block), elements - begin);
    uint32_t largest = 0;
#pragma unroll 1
    for (uint64_t i = blocks.lane; i < count; i += kWarp) {
      largest = max(largest, __float_as_uint(values[begin + i]) & 0x7fffffff);
    }
    largest = LargestOfWarp(largest);

    // As ScaleFor (codec/scale.h): rounded up, so that no element exceeds the levels.
    uint32_t wire = 0;
    float inverse = 0;
    if (largest >= kInfinity) {
      wire = 0x7fc0;
    } else if (largest > 0) {
      const float exact = __fmul_rn(__uint_as_float(largest), Element::kReciprocal);
      wire = (__float_as_uint(fmaxf(exact, 0x1p-126f)) + 0xffff) >> 16;
      inverse = __frcp_rn(__uint_as_float(wire << 16));
    }

    uint8_t* const to = part.out + blocks.next * block_bytes;
    if (blocks.lane < kScaleBytes) to[blocks.lane] = wire >> (8 * blocks.lane);
#pragma unroll 1
    for (uint64_t base = 0; base < count; base += kWarp) {
      const uint64_t i = base + blocks.lane;
      // Without a scale all elements are zeros.
      const float value = inverse != 0 && i < count ? __fmul_rn(values[begin + i], inverse) : 0;
      uint32_t bits = Element::Encode(value, part.first + begin + i, random, is_stochastic);
      if (Element::kBits == 8) {
        if (i < count) to[kScaleBytes + i] = bits;
      } else {
        bits |= __shfl_down_sync(0xffffffff, bits, 1) << 4;
        if (i < count && i % 2 == 0) to[kScaleBytes + i / 2] = bits;
      }
    }
  }
}

template <typename Element>
__device__ void Decode(const DecodedPart& part, uint32_t block) {
  const uint64_t elements = part.elements;
  const uint32_t block_bytes = kScaleBytes + block * Element::kBits / 8;
  Blocks blocks;
#pragma unroll 1
  for (; blocks.next * block < elements; blocks.next += blocks.stride) {
    const uint64_t begin = blocks.next * block;
    const uint64_t count = min(static_cast<uint64_t>(block), elements - begin);
    const uint8_t* const from = part.data + blocks.next * block_bytes;
    const float scale = __uint_as_float((from[0] | from[1] << 8) << 16);
#pragma unroll 1
    for (uint64_t i = blocks.lane; i < count; i += kWarp) {
      uint32_t bits = from[kScaleBytes + i * Element::kBits / 8];
      if (Element::kBits == 4) bits = i % 2 == 0 ? bits & 0xf : bits >> 4;
      part.target[begin + i] = OneNan(__fmul_rn(Element::Decode(bits), scale));
    }
  }
}

// ---- thc
//
// A block is a square of 64 x 64 elements. Each of a group's 64 threads transforms a column in its
// registers, and then a row; in between the block is in the GPU's memory. So a group is small and
// needs no shared memory: it finds a place beside whatever else the GPU computes.

enum : uint32_t { kSide = 64, kRotated = kSide * kSide };

// Random signs of a thread's elements, the same in all blocks: bit i is that of element i of its
// column.
__device__ uint64_t SignsOfThread() {
  uint64_t signs = 0;
#pragma unroll 4
  for (uint32_t i = 0; i < kSide; ++i)
    signs |= uint64_t{Random{0, 0}.Draw(kSide * i + threadIdx.x) >> 31} << i;
  return signs;
}

// What follows from the result is computed anew for each block, instead of staying in registers.
__device__ uint64_t Opaque(uint64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}

__device__ float WithSign(float value, uint64_t signs, uint32_t i) {
  const uint32_t sign = static_cast<uint32_t>(signs >> i) << 31;
  return __uint_as_float(__float_as_uint(value) ^ sign);
}

// A Hadamard transform of 64 elements, in the order of codec/rounding_loops.h: sums of two are
// rounded, so that the order counts.
__device__ void RotateSide(float* x) {
#pragma unroll
  for (uint32_t step = kSide / 2; step > 0; step /= 2) {
#pragma unroll
    for (uint32_t i = 0; i < kSide; ++i) {
      if ((i & step) != 0) continue;
      const float low = x[i], high = x[i + step];
      x[i] = __fadd_rn(low, high);
      x[i + step] = __fsub_rn(low, high);
    }
  }
}

// Of `rotated`, which has memory for one block of each group.
__device__ float* BlockOfGroup(float* rotated) {
  return rotated + (blockIdx.y * gridDim.x + blockIdx.x) * kRotated;
}

// The transform of a block, of which a thread has a column. Of the result it has a row, which
// belongs into the same column. `block` is memory of this group.
__device__ void RotateBlock(float* x, float* block) {
  RotateSide(x);
#pragma unroll
  for (uint32_t i = 0; i < kSide; ++i) block[kSide * i + threadIdx.x] = x[i];
  __syncthreads();
  const auto* const row = reinterpret_cast<const float4*>(block + kSide * threadIdx.x);
#pragma unroll
  for (uint32_t i = 0; i < kSide / 4; ++i) {
    const float4 four = row[i];
    x[4 * i] = four.x;
    x[4 * i + 1] = four.y;
    x[4 * i + 2] = four.z;
    x[4 * i + 3] = four.w;
  }
  __syncthreads();  // the memory is free for the next block
  RotateSide(x);
}

// As Levels of codec/rounding_loops.h.
__device__ uint32_t LevelOf(float value, float inverse, int32_t most, uint64_t index,
                            const Random& random) {
  const float exact = __fmul_rn(value, inverse);
  if ((__float_as_uint(exact) & 0x7fffffff) >= kInfinity) return 0;
  const auto limit = static_cast<float>(most);
  const float kept = fminf(fmaxf(exact, -limit), limit);
  return RoundStochastic(kept, random.DrawUniform(index)) + most + 1;
}

__device__ void EncodeThcBlock(const float* values, uint64_t signs, uint64_t index,
                               const Random& random, float* block, uint8_t* out) {
  float x[kSide];
#pragma unroll
  for (uint32_t i = 0; i < kSide; ++i) x[i] = WithSign(values[kSide * i + threadIdx.x], signs, i);
  RotateBlock(x, block);
#pragma unroll
  for (uint32_t i = 0; i < kSide; ++i) {
    const uint32_t to = kSide * i + threadIdx.x;
    const uint32_t level = LevelOf(x[i], 2.0f / kSide, 7, index + to, random);
    const uint32_t next = __shfl_down_sync(0xffffffff, level, 1);
    if (to % 2 == 0) out[to / 2] = level | next << 4;
  }
}

// What a code of `bits` bits stands for: a whole number, or NaN.
__device__ float LevelOfCode(uint32_t code, int32_t offset) {
  return code == 0 ? __uint_as_float(0x7fc00000)
                   : static_cast<float>(static_cast<int32_t>(code) - offset);
}

__device__ void DecodeThcBlock(const uint8_t* data, uint64_t signs, uint32_t bits, uint32_t workers,
                               float divisor, float* block, float* target) {
  float x[kSide];
  // A row has whole bytes, so that a column's codes are at the same place in theirs.
  const uint8_t* from = data + threadIdx.x * bits / 8;
  const uint32_t shift = threadIdx.x * bits % 8, mask = (1u << bits) - 1;
  const bool is_in_two = shift + bits > 8;  // bytes; the last code may end with the block
#pragma unroll
  for (uint32_t i = 0; i < kSide; ++i, from += kSide * bits / 8) {
    const uint32_t high = is_in_two ? from[1] : 0;
    const uint32_t code = (from[0] | high << 8) >> shift & mask;
    x[i] = LevelOfCode(code, static_cast<int32_t>(7 * workers) + 1);
  }
  RotateBlock(x, block);
#pragma unroll
  for (uint32_t i = 0; i < kSide; ++i) {
    const float sum = __fdiv_rn(WithSign(x[i], signs, i), 2 * kSide * divisor);
    target[kSide * i + threadIdx.x] = OneNan(sum);
  }
}

}  // namespace

// Blocks of 4096 elements, and perhaps a last, shorter one, which is not rotated. `rotated` has
// memory for one block of each group of 64 threads. `bits` are those of a code in the sum's whole
// blocks; `divisor` is 1 or, of an average, the number of workers.
extern "C" __global__ void __launch_bounds__(kSide, 10)
    EncodeThc(EncodedParts parts, float* rotated) {
  const EncodedPart part = PartOfGroup(parts);
  const Random random = RandomOf(part);
  const uint64_t signs = SignsOfThread();
  float* const block = BlockOfGroup(rotated);
  uint64_t begin = uint64_t{blockIdx.x} * kRotated;
#pragma unroll 1
  for (; begin + kRotated <= part.elements; begin += uint64_t{gridDim.x} * kRotated) {
    EncodeThcBlock(part.values + begin, Opaque(signs), part.first + begin, random, block,
                   part.out + begin / 2);
  }
  for (uint64_t i = begin + threadIdx.x; i < part.elements; i += kSide) {
    const uint32_t level = LevelOf(part.values[i], 2, 127, part.first + i, random);
    part.out[begin / 2 + (i - begin)] = level;
  }
}

extern "C" __global__ void __launch_bounds__(kSide, 10)
    DecodeThcSum(DecodedParts parts, uint32_t bits, uint32_t workers, float divisor,
                 float* rotated) {
  const DecodedPart part = PartOfGroup(parts);
  const uint64_t signs = SignsOfThread();
  float* const block = BlockOfGroup(rotated);
  uint64_t begin = uint64_t{blockIdx.x} * kRotated;
#pragma unroll 1
  for (; begin + kRotated <= part.elements; begin += uint64_t{gridDim.x} * kRotated)
    DecodeThcBlock(part.data + begin / 8 * bits, Opaque(signs), bits, workers, divisor, block,
                   part.target + begin);
  const uint8_t* const rest = part.data + begin / 8 * bits;
  for (uint64_t i = begin + threadIdx.x; i < part.elements; i += kSide) {
    const uint32_t code = rest[2 * (i - begin)] | rest[2 * (i - begin) + 1] << 8;
    const float level = LevelOfCode(code, static_cast<int32_t>(127 * workers) + 1);
    part.target[i] = OneNan(__fdiv_rn(level, 2 * divisor));
  }
}

// Blocks of `block` elements, a scale in front of each; the last one may be shorter.
#define ENCODE(Name, Element)                                                                   \
  extern "C" __global__ void Name(EncodedParts parts, uint32_t block, uint32_t is_stochastic) { \
    Encode<Element>(PartOfGroup(parts), block, is_stochastic != 0);                             \
  }
#define DECODE(Name, Element)                                           \
  extern "C" __global__ void Name(DecodedParts parts, uint32_t block) { \
    Decode<Element>(PartOfGroup(parts), block);                         \
  }

ENCODE(EncodeInt8, Int8)
ENCODE(EncodeInt4, Int4)
ENCODE(EncodeFloat8, Float8)
DECODE(DecodeInt8, Int8)
DECODE(DecodeInt4, Int4)
DECODE(DecodeFloat8, Float8)
