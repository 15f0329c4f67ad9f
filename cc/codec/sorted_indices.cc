#include "cc/codec/sorted_indices.h"

#include <algorithm>
#include <cstring>

namespace byteps::codec_internal {
namespace {

uint64_t BytesOf(uint64_t bits) { return (bits + 7) / 8; }

void WriteLow(const IndexLayout& layout, const uint64_t* indices, uint8_t* out) {
  const uint64_t mask = (uint64_t{1} << layout.low_bits) - 1;
  uint64_t bits = 0;
  uint32_t have = 0;
  for (uint64_t i = 0; i < layout.count; ++i) {
    bits |= (indices[i] & mask) << have;
    for (have += layout.low_bits; have >= 8; have -= 8, bits >>= 8)
      *out++ = static_cast<uint8_t>(bits);
  }
  if (have > 0) *out = static_cast<uint8_t>(bits);
}

}  // namespace

IndexLayout::IndexLayout(uint64_t index_count, uint64_t index_limit)
    : count(index_count), limit(index_limit) {
  while (limit >> low_bits >= 2 * count) ++low_bits;
  low_bytes = BytesOf(count * low_bits);
  string_bytes = BytesOf(count + ((limit - 1) >> low_bits));
  if (BytesOf(limit) > bytes()) return;
  is_bitmap = true;
  low_bits = 0;
  low_bytes = 0;
  string_bytes = BytesOf(limit);
}

void WriteIndices(const IndexLayout& layout, const uint64_t* indices, uint8_t* out) {
  WriteLow(layout, indices, out);
  out += layout.low_bytes;
  std::memset(out, 0, layout.string_bytes);
  for (uint64_t i = 0; i < layout.count; ++i) {
    const uint64_t position = (indices[i] >> layout.low_bits) + (layout.is_bitmap ? 0 : i);
    out[position / 8] = static_cast<uint8_t>(out[position / 8] | 1u << position % 8);
  }
}

bool AreIndices(const IndexLayout& layout, const uint8_t* data) {
  IndexReader reader(layout, data);
  uint64_t least = 0;  // that the next one may be
  uint64_t read = 0;
  for (uint64_t index = 0; reader.Next(&index); ++read) {
    if (index < least || index >= layout.limit) return false;
    least = index + 1;
  }
  return read == layout.count && !reader.HasMore();
}

bool IndexReader::HasMore() {
  return bits_ != 0 || word_ != 0 ||
         std::any_of(string_, string_end_, [](uint8_t byte) { return byte != 0; });
}

void IndexReader::LoadWord() {
  const auto bytes = static_cast<size_t>(std::min<int64_t>(8, string_end_ - string_));
  std::memcpy(&word_, string_, bytes);  // the rest is 0
  string_ += bytes;
  word_begin_ = next_word_begin_;
  next_word_begin_ += 64;
}

}  // namespace byteps::codec_internal
