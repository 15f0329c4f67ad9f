// ExchangeTrace: when each part of one exchange went through which stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/wire/control.h"
#include "cc/wire/frame.h"

namespace byteps {

// All times are wall clock (WallNanos), because some are the server's; 0: it did not happen.
struct PartTrace {
  uint64_t bytes = 0;  // that this worker sends
  int32_t server = -1;
  int64_t computed_ns = 0;       // GPU: the tensor was there
  int64_t reduce_ns = 0;         // GPU: the workers of this host have reduced it
  int64_t copy_out_ns = 0;       // GPU: it was in the host's memory
  int64_t push_ns = 0;           // handed to the Van
  int64_t arrival_begin_ns = 0;  // the server's clock: the push's header
  int64_t arrival_end_ns = 0;    // the server's clock: the push's last byte
  int64_t answer_ns = 0;         // the server's clock: the reply was queued
  int64_t reply_begin_ns = 0;    // the reply's header
  int64_t reply_end_ns = 0;      // the reply's last byte
  int64_t copy_in_ns = 0;        // GPU: the result was in the memory of the GPU that sent the part
  int64_t broadcast_ns = 0;      // GPU: the result was in this worker's GPU

  void OnReply(const FrameHeader& header, int64_t wall_ns);
};

// One tensor in one round. The worker fills it while the exchange lives, as it decides.
struct ExchangeTrace {
  TensorDescription tensor;
  uint64_t round = 0;
  int32_t priority = 0;
  StatusCode status = StatusCode::kOk;
  int64_t enqueue_ns = 0;
  int64_t place_ns = 0;  // parts and servers were known: they wait for their turn
  int64_t done_ns = 0;   // the callback was called
  std::vector<PartTrace> parts;

  void OnPlaced(const TableEntry& entry, int64_t wall_ns);
};

}  // namespace byteps
