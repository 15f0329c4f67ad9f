// StagedPart: one part of a tensor of a group of GPUs, from the reduction to the broadcast, and how
// it is made from the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cc/gpu/rank_device.h"
#include "cc/staging/state/host_place.h"
#include "cc/staging/state/staged_tensor.h"

namespace byteps {

// Results that come to one place in pinned memory. The count is guarded by the group's mutex.
struct StagedArrival : ArrivalCount {
  PinnedPool::Block memory;  // of the results
  size_t bytes = 0;
  uint64_t offset = 0;  // of where they belong in the tensor
  // Each stream that waits has a word of its own: it reaches `arrived` with the results, or when
  // this tensor has failed for its rank.
  ArrivalWord* words = nullptr;
  int32_t streams = 1;
  int32_t own = 0;  // the number of this rank's word
  uint32_t arrived = 1;

  ArrivalWord& word() const { return words[own]; }
  bool HasCome() const { return HasReached(word(), arrived); }
};
using ArrivalPointer = std::shared_ptr<StagedArrival>;

struct StagedPart {
  TensorPointer tensor;
  uint32_t number = 0;
  DeviceSpan span;
  const void* reduced = nullptr;  // in the device's memory
  // Of a broadcast only one host has something to send, and all others something to receive.
  bool sends = true;
  bool receives = true;
  // How the device encodes the contribution and decodes the sum, unless that comes as it is; raw:
  // it does not.
  DevicePart encoded;
  DeviceForm sum_form;
  PinnedPool::Block input;
  PinnedPool::Block output;
  ArrivalPointer arrival;  // null: no stream waits for the result

  bool is_encoded() const { return encoded.form.codec != CodecId::kRaw; }
  // By the device, when the sum comes.
  bool IsDecoded() const { return output != nullptr && sum_form.codec != CodecId::kRaw; }
  // By the worker, since the device does not.
  bool MustBeEncoded() const {
    return sends && !is_encoded() && tensor->exchange->PushCodec(number) != nullptr;
  }
};
using PartPointer = std::shared_ptr<StagedPart>;

DeviceSpan SpanOf(const StagedTensor& tensor, uint32_t part);
NcclOperation OperationOf(const TensorDescription& tensor);

// In which form the device gets a part's sum; raw if it does not decode it. `rank`: the worker's.
DeviceForm SumFormOf(const Exchange& exchange, uint32_t part, int32_t rank, RankDevice* device);

// Asks the device for its codecs.
PartPointer NewPart(const TensorPointer& tensor, uint32_t number, const HostPlace& place,
                    RankDevice* device);

}  // namespace byteps
