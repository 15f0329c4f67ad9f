// For tests: the kernels of codec_kernels.cu on the CPU, where each of a group's threads is one of
// the operating system's. Slow, and the same numbers.
#pragma once

#include <pthread.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace byteps::emulated {

constexpr unsigned kMostThreads = 256, kLanes = 32;

struct Index {
  unsigned x, y;
};
inline thread_local Index threadIdx, blockIdx;
inline Index blockDim, gridDim;
struct float4 {
  float x, y, z, w;
};

class Barrier {
 public:
  explicit Barrier(unsigned threads) { pthread_barrier_init(&barrier_, nullptr, threads); }
  ~Barrier() { pthread_barrier_destroy(&barrier_); }
  void Wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

inline std::unique_ptr<Barrier> group_barrier;
struct Warp {
  Barrier barrier{kLanes};
  unsigned values[kLanes];
};
inline Warp warps[kMostThreads / kLanes];

inline void SyncThreads() { group_barrier->Wait(); }

inline unsigned Shuffle(unsigned value, unsigned from) {
  Warp& warp = warps[threadIdx.x / kLanes];
  warp.values[threadIdx.x % kLanes] = value;
  warp.barrier.Wait();
  const unsigned got = warp.values[from % kLanes];
  warp.barrier.Wait();
  return got;
}
inline unsigned ShuffleXor(unsigned, unsigned value, unsigned mask) {
  return Shuffle(value, threadIdx.x % kLanes ^ mask);
}
inline unsigned ShuffleDown(unsigned, unsigned value, unsigned distance) {
  const unsigned from = threadIdx.x % kLanes + distance;
  return Shuffle(value, from < kLanes ? from : threadIdx.x % kLanes);
}

inline unsigned AsUint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float AsFloat(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}

// Calls a kernel with `groups.x` by `groups.y` groups of so many threads, whole warps, one after
// the other.
inline void Launch(Index groups, unsigned group_threads, const std::function<void()>& kernel) {
  gridDim = groups;
  blockDim.x = group_threads;
  group_barrier = std::make_unique<Barrier>(group_threads);
  for (unsigned group = 0; group < groups.x * groups.y; ++group) {
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < group_threads; ++number) {
      threads.emplace_back([&, group, number] {
        threadIdx.x = number;
        blockIdx = {group % groups.x, group / groups.x};
        kernel();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

#define __device__ inline
#define __global__ inline
#define __launch_bounds__(...)
#define __syncthreads SyncThreads
#define __shfl_xor_sync ShuffleXor
#define __shfl_down_sync ShuffleDown
#define __float_as_uint AsUint
#define __uint_as_float AsFloat
#define __fadd_rn(a, b) ((a) + (b))
#define __fsub_rn(a, b) ((a) - (b))
#define __fmul_rn(a, b) ((a) * (b))
#define __fdiv_rn(a, b) ((a) / (b))
#define __frcp_rn(a) (1.0f / (a))
#define __float2int_rn(a) static_cast<int>(std::nearbyint(a))

#include "cc/gpu/codec_kernels.cu"  // NOLINT(build/include)

#undef __device__
#undef __global__
#undef __launch_bounds__
#undef __syncthreads

}  // namespace byteps::emulated
