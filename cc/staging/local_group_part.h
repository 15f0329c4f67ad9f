// What the stages of a LocalGroup know of a part of a tensor.
#ifndef TF_BYTEPS_CC_STAGING_LOCAL_GROUP_PART_H_
#define TF_BYTEPS_CC_STAGING_LOCAL_GROUP_PART_H_

#include <cstddef>
#include <cstdint>

#include "cc/gpu/rank_device.h"
#include "cc/staging/local_group.h"

namespace byteps {

struct LocalGroup::Part {
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

struct LocalGroup::Arrival {
  PinnedPool::Block memory;  // of the results
  size_t bytes = 0;
  uint64_t offset = 0;  // of where they belong in the tensor
  // Each stream that waits has a word of its own: it reaches `arrived` with the results, or when
  // this tensor has failed for its rank.
  ArrivalWord* words = nullptr;
  int32_t streams = 1;
  int32_t own = 0;  // the number of this rank's word
  uint32_t arrived = 1;
  size_t parts_left = 1;  // whose results have not come; guarded by LocalGroup::mutex_

  ArrivalWord& word() const { return words[own]; }
  bool HasCome() const { return HasReached(word(), arrived); }
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_STAGING_LOCAL_GROUP_PART_H_
