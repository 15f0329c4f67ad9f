// SortedIndices: `count` different indices below `limit`, ascending, in bytes whose number follows
// from those two, so that a frame's length can be checked before its bytes come.
//
// Where few of many are set, this is Elias-Fano coding: of each index its lowest `low_bits` bits,
// packed, then a bit string that is 1 at (index >> low_bits) + i for the i-th index: about
// 2 + log2(limit / count) bits each. Where many are, it is a bitmap. Bit i of a string is bit i % 8
// of byte i / 8; what is left of a last byte is 0.
#pragma once

#include <cstdint>

namespace byteps::codec_internal {

// 1 <= count <= limit <= 2^48.
struct IndexLayout {
  IndexLayout(uint64_t count, uint64_t limit);
  uint64_t bytes() const { return low_bytes + string_bytes; }

  uint64_t count;
  uint64_t limit;
  uint32_t low_bits = 0;  // 0 for a bitmap
  bool is_bitmap = false;
  uint64_t low_bytes = 0;
  uint64_t string_bytes = 0;
};

// Writes layout.bytes() bytes.
void WriteIndices(const IndexLayout& layout, const uint64_t* indices, uint8_t* out);

// Whether WriteIndices can have written these bytes.
bool AreIndices(const IndexLayout& layout, const uint8_t* data);

// Reads what WriteIndices has written, and never behind it, whatever the bytes are.
class IndexReader {
 public:
  IndexReader(const IndexLayout& layout, const uint8_t* data)
      : layout_(layout),
        low_(data),
        string_(data + layout.low_bytes),
        string_end_(string_ + layout.string_bytes) {}

  // False after the last one.
  bool Next(uint64_t* index) {
    if (read_ == layout_.count) return false;
    while (word_ == 0) {
      if (string_ == string_end_) return false;
      LoadWord();
    }
    const uint64_t position = word_begin_ + static_cast<uint64_t>(__builtin_ctzll(word_));
    word_ &= word_ - 1;
    const uint64_t high = layout_.is_bitmap ? position : position - read_;
    *index = high << layout_.low_bits | TakeLow();
    ++read_;
    return true;
  }

  // Whether bits are set behind the last index.
  bool HasMore();

 private:
  void LoadWord();

  uint64_t TakeLow() {
    for (; have_ < layout_.low_bits; have_ += 8) bits_ |= uint64_t{*low_++} << have_;
    const uint64_t low = bits_ & ((uint64_t{1} << layout_.low_bits) - 1);
    bits_ >>= layout_.low_bits;
    have_ -= layout_.low_bits;
    return low;
  }

  const IndexLayout& layout_;
  const uint8_t* low_;
  const uint8_t* string_;
  const uint8_t* const string_end_;
  uint64_t read_ = 0;
  uint64_t bits_ = 0;  // of low_, not yet taken
  uint32_t have_ = 0;  // how many these are
  uint64_t word_ = 0;  // of string_, with what has been read cleared
  uint64_t word_begin_ = 0;
  uint64_t next_word_begin_ = 0;
};

}  // namespace byteps::codec_internal
