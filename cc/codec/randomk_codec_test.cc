// What golden.h does not have: which elements are sent, and how often.
#include "cc/codec/randomk_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace byteps {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

PartSeed SeedOf(uint64_t round) {
  PartSeed seed;
  seed.round = round;
  return seed;
}

// What arrives of a part.
std::vector<float> Sent(const RandomKCodec& codec, const std::vector<float>& values,
                        uint64_t round) {
  std::vector<uint8_t> bytes(codec.EncodedBytes(values.size()));
  codec.EncodeBlocks(values.data(), values.size(), 0, CounterRandom(SeedOf(round)), bytes.data());
  std::vector<float> sent(values.size(), 7);
  codec.DecodeBlocks(bytes.data(), values.size(), DecodeMode::kStore, sent.data());
  return sent;
}

TEST(RandomKCodecTest, SendsOneOfEachSection) {
  for (const uint64_t length : {1, 7, 10, 31, 1000, 4097}) {
    std::vector<float> values(length);
    std::iota(values.begin(), values.end(), 1.0f);
    for (const double ratio : {0.001, 0.1, 0.3, 0.75, 1.0}) {
      const RandomKCodec codec(ratio, true);
      const uint64_t count = (codec.EncodedBytes(length) - 8) / 4;
      const std::vector<float> sent = Sent(codec, values, length);
      for (uint64_t i = 0; i < count; ++i) {
        int chosen = 0;
        for (uint64_t j = i * length / count; j < (i + 1) * length / count; ++j) {
          chosen += sent[j] != 0;
          EXPECT_TRUE(sent[j] == 0 || sent[j] == values[j]);
        }
        ASSERT_EQ(chosen, 1) << "section " << i << " of " << count << ", " << length;
      }
    }
  }
}

// Without error feedback; that of one element is the length of its section, 3 or 4, times itself.
TEST(RandomKCodecTest, IsRightOnAverage) {
  constexpr int kRounds = 4000;
  const RandomKCodec codec(0.3, false);
  const std::vector<float> values(11, 1.0f);
  std::vector<double> sums(values.size());
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> sent = Sent(codec, values, round);
    std::transform(sent.begin(), sent.end(), sums.begin(), sums.begin(), std::plus<>());
  }
  // Six standard deviations.
  for (const double sum : sums) EXPECT_NEAR(sum / kRounds, 1, 6 * 1.5 / 63);
}

TEST(RandomKCodecTest, ASectionThatIsNotFiniteBecomesNaN) {
  const RandomKCodec codec(0.1, true);
  for (const float bad : {kNaN, -std::numeric_limits<float>::infinity()}) {
    for (const size_t where : {0, 59, 99}) {
      std::vector<float> values(100, 1.0f);
      values[where] = bad;
      const std::vector<float> sent = Sent(codec, values, 1);
      for (size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(sent[i] != sent[i], i / 10 == where / 10) << i << ", " << where;
    }
  }
}

TEST(RandomKCodecTest, IsRawWhereThatIsNotLonger) {
  EXPECT_EQ(RandomKCodec(0.1, true).MaxEncodedBytes(1000), 408u);
  EXPECT_EQ(RandomKCodec(0.1, true).MaxEncodedBytes(3), 12u);
  EXPECT_EQ(RandomKCodec(1, true).MaxEncodedBytes(1000), 4000u);
}

}  // namespace
}  // namespace byteps
