// PartSum: what adds up the contributions of one part's rounds, as those see it who decide when a
// round begins and ends. The bytes are its affair (server/round_arithmetic.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/codec_id.h"
#include "cc/base/status.h"
#include "cc/server/state/served_push.h"
#include "cc/wire/outgoing_frame.h"

namespace byteps {

class PayloadSink;       // van/van.h
class ScatteredPayload;  // van/scattered_payload.h

// What a round leaves behind.
struct AggregationResult {
  std::shared_ptr<const void> memory;  // keeps the bytes; null: there are none
  const void* payload = nullptr;
  uint64_t element_count = 0;
  uint64_t payload_bytes = 0;
  CodecId codec = CodecId::kRaw;  // aggregations leave it as it is
  // Set: the bytes, instead of `payload`.
  const ScatteredPayload* scattered = nullptr;
  // Set: each worker has a result of its own, by rank, instead of all of the above.
  std::shared_ptr<const std::vector<AggregationResult>> by_rank = nullptr;

  // What `worker` gets.
  const AggregationResult& For(int32_t worker) const {
    return by_rank == nullptr ? *this : (*by_rank)[worker];
  }

  // Makes the bytes the frame's payload.
  void PutInto(OutgoingFrame* frame) const {
    frame->header.payload_bytes = payload_bytes;
    frame->header.codec = codec;
    frame->payload = payload;
    frame->scattered = scattered;
    frame->keep_alive = memory;
  }
};

// How much of a contribution has been taken in. Only looked at while nothing delivers to it.
struct ReceivedBytes {
  uint64_t bytes = 0;  // of the whole contribution
  uint64_t taken = 0;
};

// Where a contribution arrives.
struct Incoming {
  std::shared_ptr<PayloadSink> sink;        // null: there is nothing to take
  const ReceivedBytes* received = nullptr;  // lives as long as the sink
};

// Not thread-safe. A round is Begin for each worker, then its payload, then End for it; after the
// last one Finish. Reset ends it at any time. Begin is called first.
class PartSum {
 public:
  virtual ~PartSum() = default;

  // Another variant than in the round before has sums of its own.
  virtual Status Begin(const Push& push, Incoming* incoming) = 0;
  // All of the worker's payload is in its sink. INVALID_ARGUMENT if it is none: the round must be
  // given up.
  virtual Status End(int32_t worker) = 0;
  // The completion rule (protocol rule 4): may the round end with so many complete contributions?
  virtual bool IsComplete(int32_t contributions) const = 0;
  // Ends the round.
  virtual Status Finish(uint64_t round, AggregationResult* result) = 0;
  // Whether the worker needs the result's bytes.
  virtual bool SendsResultTo(int32_t worker) const = 0;
  // Gives the running round up.
  virtual void Reset() = 0;
  // Gives back the memory that waits for the next round.
  virtual void Release() = 0;
};

}  // namespace byteps
