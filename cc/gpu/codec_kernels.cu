// Codecs on a GPU: the bytes are those of codec/int8_codec.h, fp8_codec.h, int4_codec.h and
// thc_codec.h on a CPU, bit for bit.
//
// `make ptx` compiles this file to codec_kernels_ptx.h, which is in the repository: a driver
// compiles that for its GPU, and keeps the result, so that neither building nor running needs CUDA.
//
// One warp encodes or decodes a block with a scale: its elements are next to each other in memory.
// Blocks are short; what limits these kernels is the GPU's memory. A block of thc is rotated, by a
// whole group of threads.

using uint8_t = unsigned char;
using uint32_t = unsigned int;
using int32_t = int;
using uint64_t = unsigned long long;

namespace {

enum : uint32_t { kWarp = 32, kScaleBytes = 2, kInfinity = 0x7f800000 };

// The warps of a launch share the blocks of a part.
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

__device__ int32_t RoundStochastic(float value, float uniform) {
  const float down = floorf(value);
  return static_cast<int32_t>(down) + (uniform < __fsub_rn(value, down) ? 1 : 0);
}

// What an element becomes: `value` is already divided by the block's scale.
struct Int8 {
  static constexpr float kReciprocal = 1.0f / 127;
  static constexpr uint32_t kBits = 8;
  static __device__ uint32_t Encode(float value, uint64_t index, const Random* random) {
    const int32_t level = random == nullptr ? __float2int_rn(value)
                                            : RoundStochastic(value, random->DrawUniform(index));
    return static_cast<uint8_t>(max(-127, min(127, level)));
  }
  static __device__ float Decode(uint32_t bits) { return static_cast<signed char>(bits); }
};

struct Int4 {
  static constexpr float kReciprocal = 1.0f / 7;
  static constexpr uint32_t kBits = 4;
  static __device__ uint32_t Encode(float value, uint64_t index, const Random* random) {
    return max(-7, min(7, RoundStochastic(value, random->DrawUniform(index)))) + 8;
  }
  static __device__ float Decode(uint32_t bits) { return static_cast<int32_t>(bits) - 8; }
};

struct Float8 {
  static constexpr float kReciprocal = 1.0f / 448;
  static constexpr uint32_t kBits = 8;
  static __device__ uint32_t Encode(float value, uint64_t, const Random*) {
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
__device__ void Encode(const float* values, uint64_t elements, uint32_t block, uint64_t first,
                       const Random* random, uint8_t* out) {
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

    uint8_t* const to = out + blocks.next * block_bytes;
    if (blocks.lane < kScaleBytes) to[blocks.lane] = wire >> (8 * blocks.lane);
#pragma unroll 1
    for (uint64_t base = 0; base < count; base += kWarp) {
      const uint64_t i = base + blocks.lane;
      // Without a scale all elements are zeros.
      const float value = inverse != 0 && i < count ? __fmul_rn(values[begin + i], inverse) : 0;
      uint32_t bits = Element::Encode(value, first + begin + i, random);
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
__device__ void Decode(const uint8_t* data, uint64_t elements, uint32_t block, float* target) {
  const uint32_t block_bytes = kScaleBytes + block * Element::kBits / 8;
  Blocks blocks;
#pragma unroll 1
  for (; blocks.next * block < elements; blocks.next += blocks.stride) {
    const uint64_t begin = blocks.next * block;
    const uint64_t count = min(static_cast<uint64_t>(block), elements - begin);
    const uint8_t* const from = data + blocks.next * block_bytes;
    const float scale = __uint_as_float((from[0] | from[1] << 8) << 16);
#pragma unroll 1
    for (uint64_t i = blocks.lane; i < count; i += kWarp) {
      uint32_t bits = from[kScaleBytes + i * Element::kBits / 8];
      if (Element::kBits == 4) bits = i % 2 == 0 ? bits & 0xf : bits >> 4;
      const float value = __fmul_rn(Element::Decode(bits), scale);
      // The one NaN that decoders give.
      target[begin + i] = value == value ? value : __uint_as_float(0x7fc00000);
    }
  }
}

// ---- thc

enum : uint32_t { kRotated = 4096, kGroup = 256, kOfThread = kRotated / kGroup, kSign = 0x80000000 };

// The sign bit or 0, the same in all blocks.
__device__ uint32_t SignOf(uint32_t i) { return Random{0, 0}.Draw(i) & kSign; }

__device__ float WithSign(float value, uint32_t sign) {
  return __uint_as_float(__float_as_uint(value) ^ sign);
}

// Four steps of a Hadamard transform, in the order of codec/rounding_loops.h: sums of two are
// rounded, so that the order counts.
__device__ void RotateSixteen(float* x) {
#pragma unroll
  for (uint32_t step = kOfThread / 2; step > 0; step /= 2) {
#pragma unroll
    for (uint32_t i = 0; i < kOfThread; ++i) {
      if ((i & step) != 0) continue;
      const float low = x[i], high = x[i + step];
      x[i] = __fadd_rn(low, high);
      x[i + step] = __fsub_rn(low, high);
    }
  }
}

// Where an element lies in a group's memory: threads that are neighbours find theirs in different
// banks.
__device__ constexpr uint32_t Spread(uint32_t i) { return i + (i >> 4); }

// The transform of a block, of which a thread of the group has elements t, t + 256, ... The result
// has rows and columns of 64 x 64 exchanged: ResultIndex(i) says where x[i] belongs.
__device__ void RotateBlock(float* x, float* shared) {
  const uint32_t t = threadIdx.x, lane = t % 16, rest = t / 16;
  RotateSixteen(x);
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) shared[Spread(t + kGroup * i)] = x[i];
  __syncthreads();
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) x[i] = shared[Spread(lane + 16 * i + kGroup * rest)];
  RotateSixteen(x);
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) shared[Spread(lane + 16 * i + kGroup * rest)] = x[i];
  __syncthreads();
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) x[i] = shared[Spread(kOfThread * t + i)];
  RotateSixteen(x);
  __syncthreads();  // the memory is free for whatever comes next
}

__device__ uint32_t ResultIndex(uint32_t i) {
  const uint32_t from = kOfThread * threadIdx.x + i;
  return from % 64 * 64 + from / 64;
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

__device__ void EncodeThcBlock(const float* values, uint64_t index, const Random& random,
                               float* shared, uint8_t* out) {
  float x[kOfThread];
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) {
    const uint32_t from = threadIdx.x + kGroup * i;
    x[i] = WithSign(values[from], SignOf(from));
  }
  RotateBlock(x, shared);
  auto* const levels = reinterpret_cast<uint8_t*>(shared);
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) {
    const uint32_t to = ResultIndex(i);
    levels[to] = LevelOf(x[i], 2.0f / 64, 7, index + to, random);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kRotated / 2; i += kGroup)
    out[i] = levels[2 * i] | levels[2 * i + 1] << 4;
  __syncthreads();
}

// What a code of `bits` bits stands for: a whole number, or NaN.
__device__ float LevelOfCode(uint32_t code, int32_t offset) {
  return code == 0 ? __uint_as_float(0x7fc00000)
                   : static_cast<float>(static_cast<int32_t>(code) - offset);
}

__device__ uint32_t CodeAt(const uint8_t* data, uint32_t i, uint32_t bits) {
  const uint32_t at = i * bits, byte = at / 8;
  // The last code may end with the block.
  const uint32_t high = at % 8 + bits > 8 ? data[byte + 1] : 0;
  return (data[byte] | high << 8) >> at % 8 & ((1u << bits) - 1);
}

// The one NaN that decoders give.
__device__ float OneNan(float value) {
  return value == value ? value : __uint_as_float(0x7fc00000);
}

__device__ void DecodeThcBlock(const uint8_t* data, uint32_t bits, uint32_t workers, float divisor,
                               float* shared, float* target) {
  float x[kOfThread];
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) {
    const uint32_t code = CodeAt(data, threadIdx.x + kGroup * i, bits);
    x[i] = LevelOfCode(code, static_cast<int32_t>(7 * workers) + 1);
  }
  RotateBlock(x, shared);
#pragma unroll
  for (uint32_t i = 0; i < kOfThread; ++i) shared[ResultIndex(i)] = x[i];
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kRotated; i += kGroup)
    target[i] = OneNan(__fdiv_rn(WithSign(shared[i], SignOf(i)), 128 * divisor));
  __syncthreads();
}

}  // namespace

// Blocks of 4096 elements, and perhaps a last, shorter one, which is not rotated. `bits` are those
// of a code in the sum's whole blocks; `divisor` is 1 or, of an average, the number of workers.
extern "C" __global__ void EncodeThc(const float* values, uint64_t elements, uint32_t low,
                                     uint32_t high, uint64_t first, uint8_t* out) {
  __shared__ float shared[Spread(kRotated)];
  const Random random = {low, high};
  uint64_t begin = uint64_t{blockIdx.x} * kRotated;
#pragma unroll 1
  for (; begin + kRotated <= elements; begin += uint64_t{gridDim.x} * kRotated)
    EncodeThcBlock(values + begin, first + begin, random, shared, out + begin / 2);
  for (uint64_t i = begin + threadIdx.x; i < elements; i += kGroup)
    out[begin / 2 + (i - begin)] = LevelOf(values[i], 2, 127, first + i, random);
}

extern "C" __global__ void DecodeThcSum(const uint8_t* data, uint64_t elements, uint32_t bits,
                                        uint32_t workers, float divisor, float* target) {
  __shared__ float shared[Spread(kRotated)];
  uint64_t begin = uint64_t{blockIdx.x} * kRotated;
#pragma unroll 1
  for (; begin + kRotated <= elements; begin += uint64_t{gridDim.x} * kRotated)
    DecodeThcBlock(data + begin / 8 * bits, bits, workers, divisor, shared, target + begin);
  const uint8_t* const rest = data + begin / 8 * bits;
  for (uint64_t i = begin + threadIdx.x; i < elements; i += kGroup) {
    const uint32_t code = rest[2 * (i - begin)] | rest[2 * (i - begin) + 1] << 8;
    const float level = LevelOfCode(code, static_cast<int32_t>(127 * workers) + 1);
    target[i] = OneNan(__fdiv_rn(level, 2 * divisor));
  }
}

// Blocks of `block` elements, a scale in front of each; the last one may be shorter. `first` is the
// index of the first element in its part, by which random numbers are drawn.
#define ENCODE(Name, Element)                                                                      \
  extern "C" __global__ void Name(const float* values, uint64_t elements, uint32_t block,          \
                                  uint32_t is_stochastic, uint32_t low, uint32_t high,             \
                                  uint64_t first, uint8_t* out) {                                  \
    const Random random = {low, high};                                                             \
    Encode<Element>(values, elements, block, first, is_stochastic ? &random : nullptr, out);       \
  }
#define DECODE(Name, Element)                                                                      \
  extern "C" __global__ void Name(const uint8_t* data, uint64_t elements, uint32_t block,          \
                                  float* target) {                                                 \
    Decode<Element>(data, elements, block, target);                                                \
  }

ENCODE(EncodeInt8, Int8)
ENCODE(EncodeInt4, Int4)
ENCODE(EncodeFloat8, Float8)
DECODE(DecodeInt8, Int8)
DECODE(DecodeInt4, Int4)
DECODE(DecodeFloat8, Float8)
