// What golden.h does not have: ties, all ratios and lengths, and bytes that no encoder writes.
#include "cc/codec/topk_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cc/codec/largest.h"
#include "cc/codec/sorted_indices.h"

namespace byteps {
namespace {

using codec_internal::AreIndices;
using codec_internal::IndexLayout;
using codec_internal::IndexReader;
using codec_internal::LargestMagnitudes;
using codec_internal::WriteIndices;

using Indices = std::vector<uint64_t>;

Indices SortedOut(const std::vector<float>& values, uint64_t count) {
  Indices indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::stable_sort(indices.begin(), indices.end(), [&](uint64_t a, uint64_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  indices.resize(count);
  std::sort(indices.begin(), indices.end());
  return indices;
}

// Of which a sample says much, little, or nothing.
std::vector<float> Values(const std::string& kind, uint64_t length, std::mt19937* random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(length);
  for (uint64_t i = 0; i < length; ++i) {
    const float value = normal(*random);
    values[i] = kind == "normal"      ? value
                : kind == "ties"      ? std::round(value)
                : kind == "sparse"    ? (i % 1000 == 7 ? value : 0)
                : kind == "rows"      ? (i % 512 == 0 ? 1e3f * value : value)
                : kind == "at an end" ? (i + 100 >= length ? 1e6f + value : std::round(value))
                                      : -0.0f;
  }
  return values;
}

TEST(LargestMagnitudesTest, AreThoseOfASort) {
  std::mt19937 random(4711);
  for (const char* kind : {"normal", "ties", "sparse", "rows", "at an end", "zero"}) {
    for (const uint64_t length : {1, 2, 31, 1000, 1025, 5000, 100003}) {
      const std::vector<float> values = Values(kind, length, &random);
      for (const double ratio : {1e-9, 0.001, 0.01, 0.1, 0.5, 0.99, 1.0}) {
        const auto count = static_cast<uint64_t>(std::ceil(ratio * static_cast<double>(length)));
        ASSERT_EQ(LargestMagnitudes(values.data(), length, count), SortedOut(values, count))
            << kind << ", " << count << " of " << length;
      }
    }
  }
}

TEST(LargestMagnitudesTest, NanIsLargerThanInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(5000, std::numeric_limits<float>::max());
  values[3000] = -kInfinity;
  values[2000] = kInfinity;
  values[4999] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(LargestMagnitudes(values.data(), values.size(), 1), Indices({4999}));
  EXPECT_EQ(LargestMagnitudes(values.data(), values.size(), 2), Indices({2000, 4999}));
  EXPECT_EQ(LargestMagnitudes(values.data(), values.size(), 4), Indices({0, 2000, 3000, 4999}));
}

Indices Drawn(uint64_t count, uint64_t limit, std::mt19937* random) {
  Indices all(limit);
  std::iota(all.begin(), all.end(), 0);
  Indices indices;
  std::sample(all.begin(), all.end(), std::back_inserter(indices), count, *random);
  return indices;
}

Indices Read(const IndexLayout& layout, const std::vector<uint8_t>& bytes) {
  Indices indices;
  IndexReader reader(layout, bytes.data());
  for (uint64_t index = 0; reader.Next(&index);) indices.push_back(index);
  return indices;
}

TEST(SortedIndicesTest, AreReadAsTheyWereWritten) {
  std::mt19937 random(4711);
  for (const uint64_t limit : {1, 2, 7, 8, 9, 64, 65, 1000, 4097, 70001}) {
    for (uint64_t count = 1; count <= limit; count += 1 + count / 3) {
      const IndexLayout layout(count, limit);
      Indices first(count);
      std::iota(first.begin(), first.end(), 0);
      Indices last(count);
      std::iota(last.begin(), last.end(), limit - count);
      for (const Indices& indices : {Drawn(count, limit, &random), first, last}) {
        std::vector<uint8_t> bytes(layout.bytes());
        WriteIndices(layout, indices.data(), bytes.data());
        ASSERT_TRUE(AreIndices(layout, bytes.data())) << count << " of " << limit;
        ASSERT_EQ(Read(layout, bytes), indices) << count << " of " << limit;
      }
    }
  }
}

TEST(SortedIndicesTest, AreShort) {
  // 2 + log2(limit / count) bits each, or a bitmap.
  for (const auto& [count, limit] : {std::pair<double, double>{10000, 1e6},
                                     {1000, 1e6},
                                     {5, 1e6},
                                     {200000, 1e6},
                                     {400000, 1e6}}) {
    const double bits = std::min(limit, count * (2 + std::log2(limit / count)));
    const IndexLayout layout(static_cast<uint64_t>(count), static_cast<uint64_t>(limit));
    EXPECT_LE(static_cast<double>(layout.bytes()), bits / 8 + 2) << count << " of " << limit;
  }
}

// Whatever is not refused is what WriteIndices writes of what is read.
TEST(SortedIndicesTest, OtherBytesAreRefused) {
  std::mt19937 random(4711);
  for (const auto& [count, limit] :
       {std::pair<uint64_t, uint64_t>{3, 1000}, {20, 1001}, {9, 19}, {100, 250}, {1, 1}}) {
    const IndexLayout layout(count, limit);
    const Indices indices = Drawn(count, limit, &random);
    std::vector<uint8_t> right(layout.bytes());
    WriteIndices(layout, indices.data(), right.data());
    int refused = 0;
    for (int round = 0; round < 5000; ++round) {
      std::vector<uint8_t> bytes = right;
      for (uint32_t flips = 1 + random() % 3; flips > 0; --flips)
        bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1u << random() % 8);
      if (round % 10 == 0) {
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      }
      if (!AreIndices(layout, bytes.data())) {
        ++refused;
        continue;
      }
      const Indices read = Read(layout, bytes);
      ASSERT_EQ(read.size(), count);
      ASSERT_LT(read.back(), limit);
      std::vector<uint8_t> again(layout.bytes());
      WriteIndices(layout, read.data(), again.data());
      ASSERT_EQ(again, bytes);
    }
    EXPECT_GT(refused, 1000) << count << " of " << limit;
  }
}

TEST(TopKCodecTest, BytesFollowFromTheElements) {
  const TopKCodec codec(0.01, true);
  EXPECT_EQ(codec.EncodedBytes(0), 0u);
  EXPECT_EQ(codec.EncodedBytes(100), 4u + 2);              // 6 low bits and 2 of the string
  EXPECT_EQ(codec.EncodedBytes(1000000), 40000u + 10703);  // 8.56 bits for an index
  // Of so few it would not be shorter.
  EXPECT_EQ(codec.MaxEncodedBytes(1), 4u);
  EXPECT_EQ(TopKCodec(1, true).MaxEncodedBytes(1000), 4000u);
}

TEST(TopKCodecTest, APartWithOtherIndicesIsRefused) {
  const TopKCodec codec(0.1, true);
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  std::vector<uint8_t> bytes(codec.MaxEncodedBytes(values.size()));
  const EncodedPart part = codec.Encode(values.data(), values.size(), {}, bytes.data());
  ASSERT_EQ(part.codec, CodecId::kTopK);
  bytes.back() ^= 0x80;
  std::vector<float> target(1000, 7);
  for (const size_t piece : {bytes.size(), size_t{100}}) {
    std::unique_ptr<PartReceiver> receiver;
    ASSERT_TRUE(codec.Receive(part, DecodeMode::kAdd, target.data(), &receiver).ok());
    Status status;
    for (size_t done = 0; done < bytes.size(); done += piece) {
      ASSERT_TRUE(status.ok());
      status = receiver->Take(bytes.data() + done, std::min(piece, bytes.size() - done));
    }
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "received a part of 1000 elements in topk:feedback=1,ratio=0.1 whose indices are not "
              "100 ascending ones below 1000");
    EXPECT_EQ(target, std::vector<float>(1000, 7));
  }
}

TEST(TopKCodecTest, RatiosAreNamedByTheirFewestDigits) {
  for (const char* ratio : {"0.01", "0.001", "1e-05", "1", "0.3333333333333333"}) {
    std::unique_ptr<Codec> codec;
    ASSERT_TRUE(ParseCodec(std::string("topk:ratio=") + ratio, &codec).ok());
    EXPECT_EQ(codec->name(), std::string("topk:feedback=1,ratio=") + ratio);
  }
  std::unique_ptr<Codec> codec;
  ASSERT_TRUE(ParseCodec("topk:ratio=1.0e-2", &codec).ok());
  EXPECT_EQ(codec->name(), "topk:feedback=1,ratio=0.01");
  for (const char* ratio : {"0", "-0.1", "1.01", "nan", "inf", "", "0.1x", "0x1p-1", "1e999"}) {
    EXPECT_EQ(ParseCodec(std::string("topk:ratio=") + ratio, &codec).message(),
              std::string("codec \"topk:ratio=") + ratio + "\": ratio is \"" + ratio +
                  "\", must be greater than 0 and at most 1");
  }
}

}  // namespace
}  // namespace byteps
