#include "cc/codec/block_codec.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cc/codec/cast_codec.h"

namespace byteps {
namespace {

// Of codecs that do not take whole parts (codec/registry.cc).
constexpr uint64_t kMostBlockElements = 4096;

class BlockReceiver : public PartReceiver {
 public:
  BlockReceiver(const BlockCodec& codec, std::unique_ptr<BlockCodec> owned, const EncodedPart& part,
                DecodeMode mode, float* target)
      : owned_(std::move(owned)),
        codec_(owned_ ? *owned_ : codec),
        part_(part),
        mode_(mode),
        target_(target),
        block_elements_(codec_.block_elements()),
        block_bytes_(codec_.BlockBytes(block_elements_)) {}

  Status Take(const uint8_t* data, size_t bytes) override {
    if (bytes > part_.bytes - received_) {
      return InvalidArgument("received at least " + std::to_string(received_ + bytes) +
                             " bytes of a part of " + std::to_string(part_.bytes) + " bytes (" +
                             codec_.name() + ", " + std::to_string(part_.elements) + " elements)");
    }
    received_ += bytes;
    while (bytes > 0) {
      size_t used = 0;
      if (kept_.empty()) BYTEPS_RETURN_IF_ERROR(TakeWhole(data, bytes, &used));
      if (used == 0) BYTEPS_RETURN_IF_ERROR(Keep(data, bytes, &used));
      data += used;
      bytes -= used;
    }
    return OkStatus();
  }

  Status Finish() const override {
    if (received_ == part_.bytes) return OkStatus();
    return InvalidArgument("received " + std::to_string(received_) + " of " +
                           std::to_string(part_.bytes) + " bytes of a part (" + codec_.name() +
                           ", " + std::to_string(part_.elements) + " elements)");
  }

 private:
  // Elements and bytes of the block that comes next.
  uint64_t NextElements() const { return std::min(block_elements_, part_.elements - decoded_); }
  uint64_t NextBytes() const { return codec_.BlockBytes(NextElements()); }

  // Decodes blocks that are whole in `data`; `used`: their bytes.
  Status TakeWhole(const uint8_t* data, size_t bytes, size_t* used) {
    const uint64_t whole =
        std::min<uint64_t>(bytes / block_bytes_, (part_.elements - decoded_) / block_elements_);
    if (whole > 0) {
      *used = whole * block_bytes_;
      return Decode(data, whole * block_elements_);
    }
    const uint64_t next = NextBytes();
    if (bytes < next) return OkStatus();
    *used = next;
    return Decode(data, NextElements());
  }

  // Keeps bytes of a block that is not complete, and decodes it when it is; `used`: their number.
  Status Keep(const uint8_t* data, size_t bytes, size_t* used) {
    const uint64_t block = NextBytes();
    *used = std::min<uint64_t>(bytes, block - kept_.size());
    kept_.insert(kept_.end(), data, data + *used);
    if (kept_.size() < block) return OkStatus();
    const Status status = Decode(kept_.data(), NextElements());
    kept_.clear();
    return status;
  }

  Status Decode(const uint8_t* data, uint64_t elements) {
    BYTEPS_RETURN_IF_ERROR(codec_.CheckBlocks(data, elements));
    codec_.DecodeBlocks(data, elements, mode_, target_ + decoded_);
    decoded_ += elements;
    return OkStatus();
  }

  const std::unique_ptr<BlockCodec> owned_;
  const BlockCodec& codec_;
  const EncodedPart part_;
  const DecodeMode mode_;
  float* const target_;
  const uint64_t block_elements_;
  const uint64_t block_bytes_;
  uint64_t received_ = 0;
  uint64_t decoded_ = 0;  // elements
  std::vector<uint8_t> kept_;
};

}  // namespace

uint64_t BlockCodec::EncodedBytes(uint64_t elements) const {
  const uint64_t rest = elements % block_elements_;
  return elements / block_elements_ * BlockBytes(block_elements_) +
         (rest > 0 ? BlockBytes(rest) : 0);
}

uint64_t BlockCodec::MaxEncodedBytes(uint64_t elements) const {
  return std::min<uint64_t>(EncodedBytes(elements), elements * sizeof(float));
}

EncodedPart BlockCodec::Encode(const float* values, uint64_t elements, const PartSeed& seed,
                               uint8_t* out) const {
  const uint64_t raw_bytes = elements * sizeof(float);
  const uint64_t bytes = EncodedBytes(elements);
  if (bytes >= raw_bytes) {
    if (raw_bytes > 0) std::memcpy(out, values, raw_bytes);
    return {CodecId::kRaw, elements, raw_bytes};
  }
  EncodeBlocks(values, elements, 0, CounterRandom(seed), out);
  return {id(), elements, bytes};
}

Status BlockCodec::CheckBlocks(const uint8_t*, uint64_t) const { return OkStatus(); }

void BlockCodec::SubtractBlocks(const uint8_t* data, uint64_t elements, float* target) const {
  float decoded[kMostBlockElements];
  for (uint64_t done = 0; done < elements; done += kMostBlockElements) {
    const uint64_t count = std::min(kMostBlockElements, elements - done);
    DecodeBlocks(data + EncodedBytes(done), count, DecodeMode::kStore, decoded);
    for (uint64_t i = 0; i < count; ++i) target[done + i] -= decoded[i];
  }
}

void BlockCodec::DecodeEachBlock(BlockDecoder decode, const uint8_t* data, uint64_t elements,
                                 float* target) const {
  for (uint64_t done = 0; done < elements; done += block_elements_) {
    decode(target + done, data, std::min(block_elements_, elements - done));
    data += BlockBytes(block_elements_);
  }
}

Status BlockCodec::Receive(const EncodedPart& part, DecodeMode mode, float* target,
                           std::unique_ptr<PartReceiver>* receiver) const {
  std::unique_ptr<BlockCodec> raw;
  if (part.codec == CodecId::kRaw && id() != CodecId::kRaw) {
    raw = std::make_unique<CastCodec>(CodecId::kRaw);
  } else if (part.codec != id()) {
    return InvalidArgument("received a part of codec number " +
                           std::to_string(static_cast<int>(part.codec)) + ", expected " + name() +
                           " (" + std::to_string(static_cast<int>(id())) + ") or raw (0)");
  }
  // No part is near this; beyond it the arithmetic of sizes would wrap.
  if (part.elements > kWholePart) {
    return InvalidArgument("received a part of " + std::to_string(part.elements) + " elements");
  }
  const BlockCodec& codec = raw ? *raw : *this;
  const uint64_t bytes = codec.EncodedBytes(part.elements);
  if (part.bytes != bytes) {
    return InvalidArgument("received a part of " + std::to_string(part.bytes) + " bytes for " +
                           std::to_string(part.elements) + " elements, which are " +
                           std::to_string(bytes) + " bytes in " + codec.name());
  }
  *receiver = std::make_unique<BlockReceiver>(*this, std::move(raw), part, mode, target);
  return OkStatus();
}

}  // namespace byteps
