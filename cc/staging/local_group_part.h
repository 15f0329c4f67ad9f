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
  // How the device encodes the contribution and decodes the sum; raw: it does not.
  DevicePart encoded;
  DeviceForm sum_form;
  PinnedPool::Block input;
  PinnedPool::Block output;
  ArrivalPointer arrival;  // null: no stream waits for the result

  bool is_encoded() const { return encoded.form.codec != CodecId::kRaw; }
  // By the worker, since the device does not.
  bool MustBeEncoded() const {
    return sends && !is_encoded() && tensor->exchange->PushCodec(number) != nullptr;
  }
};

struct LocalGroup::Arrival {
  PinnedPool::Block memory;  // the results, and behind them the word
  size_t bytes = 0;          // of results
  uint64_t offset = 0;       // of where they belong in the tensor
  ArrivalWord* word = nullptr;
  size_t parts_left = 0;  // whose results have not come; guarded by LocalGroup::mutex_
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_STAGING_LOCAL_GROUP_PART_H_
