// What a caller hands to the worker engine.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/tensor_description.h"

namespace byteps {

struct Exchange;

// Priorities that the worker learns from the order of a step's exchanges (see LearnedOrder).
//
// What comes first goes first: for steps that wait for all sums before they go on.
inline constexpr int32_t kBackwardOrder = std::numeric_limits<int32_t>::min();
// For sums that the next step waits for, one after the other: once all of a step are there, what
// came last goes first. Backpropagation ends with the gradients that the next forward pass needs
// first.
inline constexpr int32_t kForwardOrder = kBackwardOrder + 1;
// The same for the gradient that the forward pass needs as number `position`, as far as the caller
// knows: gradients of one layer, and of branches, come in any order.
inline constexpr int32_t kMostForwardPositions = 1 << 20;
constexpr int32_t ForwardOrderAt(int32_t position) {
  return kForwardOrder + 1 + (position < kMostForwardPositions ? position : kMostForwardPositions);
}
constexpr bool IsForwardOrder(int32_t priority) {
  return priority >= kForwardOrder && priority <= ForwardOrderAt(kMostForwardPositions);
}

// What is to be exchanged with the other workers, however its memory is given.
struct ExchangeTerms {
  TensorDescription tensor;

  // Parts of higher priority leave first. Ties leave in the order of Enqueue.
  int32_t priority = kBackwardOrder;

  // If tensor.HasOwnRows, be it a gather or not: the rows of this worker.
  int64_t gather_rows = 0;
  // Of a gather: the memory for its result has room for as many rows of each worker.
  bool has_fixed_rows = false;
  // kRowSum: the bytes of those rows with their indices (base/coded_rows.h).
  uint64_t coded_bytes = 0;
  // kAllToAll: how many of them go to each worker, by rank.
  std::vector<int64_t> splits;

  // Worker::training() as the caller was given the tensor, which may have been long before: a GPU
  // had to compute it. In a later one the tensor is no part of any round.
  std::optional<uint64_t> training;

  // Of a sum that does without some workers: false if this worker is not in the round, and wants
  // the result only. Its input is not read.
  bool contributes = true;

  // Called exactly once, on an engine thread or inside Enqueue. Must not block.
  std::function<void(const Status&)> done;
};

// The memory of a whole tensor.
struct ExchangeMemory {
  // tensor.ByteCount() bytes; `gather_rows` rows if it HasOwnRows, `coded_bytes` bytes for kRowSum.
  // May be null when there are none, and for kBroadcast on a worker that is not the root.
  const void* input = nullptr;

  // tensor.ByteCount() bytes that nobody else touches until `done`; never the input's memory.
  // Unused if it HasOwnRows.
  void* output = nullptr;

  // Somebody may write to it after `done`, so that its bytes cannot be sent to a worker that does
  // not get them because a server is lost.
  bool output_changes = false;

  // If it HasOwnRows: called at most once, on an engine thread, with the rows that each worker
  // sent, in rank order; returns memory for their sum of rows, or null to fail the exchange (any
  // pointer but null when there are no rows). For kRowSum: called with the number of rows of the
  // sum, and of the bytes that they take with their indices. Not called after `done`. The memory
  // must live as long as keep_alive: an exchange can end while bytes still arrive.
  std::function<void*(const std::vector<int64_t>& rows)> allocate_output;

  // Keeps input and output alive; the engine drops it after `done` has returned, or keeps it until
  // it knows that all workers have the result (worker/state/kept_results.h).
  std::shared_ptr<void> keep_alive;
  // May be set: called after `done` if the engine keeps the exchange. It needs the output only.
  std::function<void()> drop_input;
};

// One tensor in one piece: the engine does all of it.
struct ExchangeRequest : ExchangeTerms, ExchangeMemory {};

// One tensor by parts. The engine says when it knows parts and servers, and leaves all else to the
// caller, who sends those parts that are this worker's with Worker::SendPart and ends the exchange
// with Worker::End. One that HasOwnRows has one part, which cannot be sent.
struct PartedExchangeRequest : ExchangeTerms {
  // Called at most once, before `done`. Must not block.
  std::function<void(const std::shared_ptr<Exchange>&)> placed;

  // What waits for the result does so where the engine cannot see it: on a GPU's stream.
  bool is_awaited_elsewhere = false;
};

// One part of an exchange by parts.
struct PartRequest {
  uint32_t part = 0;
  // The part's bytes; null if this worker has nothing to send (kBroadcast).
  const void* input = nullptr;
  // Where the result goes; null if this worker has it already (kBroadcast). As long as the part's
  // elements, which a sum can always come as.
  void* output = nullptr;
  // Keep input and output alive; kept for as long as the exchange, the output's perhaps longer: see
  // ExchangeMemory::keep_alive.
  std::shared_ptr<void> keep_input;
  std::shared_ptr<void> keep_output;
  // The caller's codec is at work, and not the engine's. `input` is encoded in the form of
  // Exchange::PushCodec, with the seed of Exchange::PushSeed.
  bool input_is_encoded = false;
  // A sum that comes in the form of Exchange::SumCodec is left in it.
  bool takes_encoded = false;
  // Called at most once, when the result is there, on an engine thread. Must not block. Not called
  // if the exchange has ended: then its own `done` has been. `is_encoded`: the output holds the
  // form of Exchange::SumCodec, as `takes_encoded` allows.
  std::function<void(bool is_encoded)> done;
};

}  // namespace byteps
