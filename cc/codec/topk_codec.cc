#include "cc/codec/topk_codec.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cc/codec/largest.h"
#include "cc/codec/ratio.h"
#include "cc/codec/scale.h"
#include "cc/codec/sorted_indices.h"

namespace byteps {
namespace {

using namespace codec_internal;

// Calls `take(index, value)` for each element, in order.
template <typename Take>
void ForEach(const IndexLayout& layout, const uint8_t* data, Take take) {
  IndexReader reader(layout, data + layout.count * sizeof(float));
  for (uint64_t index = 0; reader.Next(&index); data += sizeof(float))
    take(index, LoadElement<float>(data));
}

}  // namespace

std::string TopKCodec::name() const { return NameWithRatio("topk", feedback_, ratio_); }

uint64_t TopKCodec::BlockBytes(uint64_t elements) const {
  const uint64_t count = CountOf(ratio_, elements);
  return count * sizeof(float) + IndexLayout(count, elements).bytes();
}

void TopKCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t, const CounterRandom&,
                             uint8_t* out) const {
  const IndexLayout layout(CountOf(ratio_, elements), elements);
  const std::vector<uint64_t> indices = LargestMagnitudes(values, elements, layout.count);
  for (const uint64_t index : indices) {
    std::memcpy(out, values + index, sizeof(float));
    out += sizeof(float);
  }
  WriteIndices(layout, indices.data(), out);
}

Status TopKCodec::CheckBlocks(const uint8_t* data, uint64_t elements) const {
  const IndexLayout layout(CountOf(ratio_, elements), elements);
  if (AreIndices(layout, data + layout.count * sizeof(float))) return OkStatus();
  return InvalidArgument("received a part of " + std::to_string(elements) + " elements in " +
                         name() + " whose indices are not " + std::to_string(layout.count) +
                         " ascending ones below " + std::to_string(elements));
}

void TopKCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                             float* target) const {
  const IndexLayout layout(CountOf(ratio_, elements), elements);
  if (mode == DecodeMode::kStore) std::fill_n(target, elements, 0.0f);
  ForEach(layout, data, [&](uint64_t index, float value) {
    mode == DecodeMode::kAdd ? Put<DecodeMode::kAdd>(target + index, value)
                             : Put<DecodeMode::kStore>(target + index, value);
  });
}

void TopKCodec::SubtractBlocks(const uint8_t* data, uint64_t elements, float* target) const {
  const IndexLayout layout(CountOf(ratio_, elements), elements);
  ForEach(layout, data, [&](uint64_t index, float value) { target[index] -= value; });
}

}  // namespace byteps
