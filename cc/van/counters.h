// AtomicVanCounters: what all connections of a Van count together.
#pragma once

#include <atomic>
#include <cstdint>

#include "cc/van/van.h"

namespace byteps {

struct AtomicVanCounters {
  std::atomic<uint64_t> frames_sent{0};
  std::atomic<uint64_t> frames_received{0};
  std::atomic<uint64_t> payload_bytes_sent{0};
  std::atomic<uint64_t> payload_bytes_received{0};
  std::atomic<uint64_t> memory_bytes_read{0};
  std::atomic<uint64_t> rdma_bytes_sent{0};
  std::atomic<uint64_t> rdma_bytes_received{0};
  std::atomic<uint64_t> bytes_copied{0};
  std::atomic<uint64_t> wire_bytes_sent{0};
  std::atomic<uint64_t> wire_bytes_received{0};

  VanCounters Read() const {
    VanCounters counters;
    counters.frames_sent = frames_sent;
    counters.frames_received = frames_received;
    counters.payload_bytes_sent = payload_bytes_sent;
    counters.payload_bytes_received = payload_bytes_received;
    counters.memory_bytes_read = memory_bytes_read;
    counters.rdma_bytes_sent = rdma_bytes_sent;
    counters.rdma_bytes_received = rdma_bytes_received;
    counters.bytes_copied = bytes_copied;
    counters.wire_bytes_sent = wire_bytes_sent;
    counters.wire_bytes_received = wire_bytes_received;
    return counters;
  }
};

}  // namespace byteps
