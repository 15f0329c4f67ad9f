// Aggregation: how the workers' contributions to one part become its result. One object per part
// and variant; it knows elements and buffers, but neither frames nor connections
// (server/part_rounds.h has those). Contributions may be compressed, results never are:
// RoundArithmetic does that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/codec_id.h"
#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/server/buffer.h"
#include "cc/server/scratch.h"
#include "cc/server/state/part_sum.h"
#include "cc/server/state/participants.h"
#include "cc/van/van.h"

namespace byteps {

// Where all aggregations of a service take their memory from.
struct AggregationMemory {
  // Knows the buffers that results are sent from; null: nobody need know.
  std::shared_ptr<MemoryRegistry> registry = nullptr;
  AllocatedBytes allocated = std::make_shared<std::atomic<uint64_t>>(0);
  std::shared_ptr<ScratchPool> scratch = std::make_shared<ScratchPool>();
};

// What a push says of its payload.
struct IncomingPayload {
  uint64_t bytes = 0;
  uint64_t rows = 0;  // if TensorDescription::HasOwnRows
  CodecId codec = CodecId::kRaw;
};

// Not thread-safe: the part's mutex guards every call. A round is Begin for each worker, then its
// payload, then End for it; after the last one Finish. Reset ends it at any time.
class Aggregation {
 public:
  virtual ~Aggregation() = default;

  // A payload, checked by the caller, comes from `worker`. Sets `sink` to what takes it in, without
  // the part's mutex; leaves it null if there is nothing to take.
  virtual Status Begin(int32_t worker, const IncomingPayload& payload,
                       std::shared_ptr<PayloadSink>* sink) = 0;

  // All of `worker`'s payload is in its sink. INVALID_ARGUMENT if it is none: the round must be
  // given up.
  virtual Status End(int32_t worker) {
    (void)worker;
    return OkStatus();
  }

  // The completion rule (protocol rule 4): may the round end with so many complete contributions?
  virtual bool IsComplete(int32_t contributions) const = 0;

  // Ends the round.
  virtual Status Finish(AggregationResult* result) = 0;

  // Whether `worker` needs the result's bytes.
  virtual bool SendsResultTo(int32_t worker) const {
    (void)worker;
    return true;
  }

  // Gives the running round up.
  virtual void Reset() = 0;
};

// For a part of `element_count` elements of `tensor` (ignored if that HasOwnRows: contributions say
// their own length).
std::unique_ptr<Aggregation> NewAggregation(const TensorDescription& tensor, uint64_t element_count,
                                            const Participants& participants,
                                            const AggregationMemory& memory);

// The kinds behind NewAggregation.
std::unique_ptr<Aggregation> NewReduction(const TensorDescription& tensor, uint64_t element_count,
                                          const Participants& participants,
                                          const AggregationMemory& memory);
std::unique_ptr<Aggregation> NewBackupAverage(const TensorDescription& tensor,
                                              uint64_t element_count,
                                              const Participants& participants,
                                              const AggregationMemory& memory);
std::unique_ptr<Aggregation> NewBroadcast(const TensorDescription& tensor, uint64_t element_count,
                                          const Participants& participants,
                                          const AggregationMemory& memory);
std::unique_ptr<Aggregation> NewGather(const TensorDescription& tensor,
                                       const Participants& participants,
                                       const AggregationMemory& memory);
std::unique_ptr<Aggregation> NewAllToAll(const TensorDescription& tensor,
                                         const Participants& participants,
                                         const AggregationMemory& memory);
std::unique_ptr<Aggregation> NewRowSum(const TensorDescription& tensor,
                                       const Participants& participants,
                                       const AggregationMemory& memory);

}  // namespace byteps
