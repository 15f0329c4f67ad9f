// thc as servers and workers use it together.
#include "cc/codec/thc_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cc/codec/testing/expected_sum.h"

namespace byteps {
namespace {

constexpr size_t kElements = 3 * 4096 + 100;

// Of a block's shape, with a root mean square near 1.
std::vector<float> Normal(uint32_t salt, size_t elements = kElements) {
  std::mt19937 random(salt);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  return values;
}

PartSeed SeedOf(uint64_t round) {
  PartSeed seed;
  seed.round = round;
  return seed;
}

TEST(ThcCodecTest, ASumIsTheSameInEveryOrder) {
  constexpr size_t kWorkers = 5;
  const std::string codec = InJob("thc", kWorkers, true);
  std::vector<std::string> sent;
  for (uint32_t rank = 0; rank < kWorkers; ++rank)
    sent.push_back(EncodedBy(codec, Normal(rank), SeedOf(0), rank));
  std::vector<size_t> order(kWorkers);
  std::iota(order.begin(), order.end(), 0);
  std::vector<float> first;
  do {
    std::vector<float> sum(kElements);
    for (size_t i = 0; i < kWorkers; ++i)
      DecodeTo(codec, sent[order[i]], i == 0 ? DecodeMode::kStore : DecodeMode::kAdd, &sum);
    if (first.empty()) first = sum;
    ASSERT_EQ(sum, first);
  } while (std::next_permutation(order.begin(), order.end()));
}

// What is lost is lost by a worker: a sum of some workers' is what they have sent, to the last bit.
TEST(ThcCodecTest, SumsOfAnyNumberOfWorkersLoseNothing) {
  for (const size_t workers : {1, 2, 3, 4, 5, 9, 10, 18, 19, 256}) {
    for (const bool average : {false, true}) {
      SCOPED_TRACE(std::to_string(workers) + (average ? " workers, average" : " workers"));
      const std::string codec = InJob("thc", workers, average);
      const std::string sum_codec = CodecNamed(codec)->SumCodec();
      // The largest levels of all: as far as a sum goes.
      std::vector<float> sum(kElements);
      for (size_t i = 0; i < kElements; ++i) {
        const auto most = static_cast<int>((i < 3 * 4096 ? 7 : 127) * workers);
        sum[i] = static_cast<float>(static_cast<int>(i * 7919 % (2 * most + 1)) - most);
        if (average) sum[i] /= static_cast<float>(workers);
      }
      std::vector<float> once(kElements);
      const std::string bytes = EncodedBy(sum_codec, sum, SeedOf(0), workers);
      DecodeTo(sum_codec, bytes, DecodeMode::kStore, &once);
      // A level is a half; a rotation changes no energy.
      for (size_t i = 3 * 4096; i < kElements; ++i) EXPECT_EQ(once[i], sum[i] / 2) << i;
      double energy = 0, of_sum = 0;
      for (size_t i = 0; i < 3 * 4096; ++i) {
        energy += once[i] * once[i];
        of_sum += sum[i] * sum[i] / 4;
      }
      EXPECT_NEAR(energy / of_sum, 1, 1e-5);
    }
  }
}

TEST(ThcCodecTest, ErrorsAreSmallAndZeroOnAverage) {
  constexpr int kRounds = 200;
  constexpr size_t kWorkers = 2;
  const std::string codec = InJob("thc", kWorkers, true);
  // A few large elements: rotated, no element is.
  std::vector<float> values(kElements, 0.0f);
  for (size_t i = 0; i < kElements; i += 512) values[i] = 22.6f;
  std::vector<double> mean(kElements);
  double error = 0, energy = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> sum = ExpectedSum(codec, {values, values}, SeedOf(round), true);
    for (size_t i = 0; i < kElements; ++i) {
      mean[i] += sum[i] / kRounds;
      error += std::pow(sum[i] - values[i], 2);
      energy += std::pow(values[i], 2);
    }
  }
  EXPECT_LT(error / energy, 0.03);
  // Six standard deviations of a mean of roundings to halves of two workers.
  for (size_t i = 0; i < kElements; ++i)
    ASSERT_NEAR(mean[i], values[i], 6 * 0.25 / std::sqrt(2.0 * kRounds) + 0.03) << i;
}

TEST(ThcCodecTest, RefusesMoreWorkersThanASumHasRoomFor) {
  std::unique_ptr<Codec> codec;
  EXPECT_TRUE(ParseCodec(InJob("thc", 256, false), &codec).ok());
  EXPECT_EQ(
      ParseCodec(InJob("thc", 257, false), &codec).message(),
      "codec \"thc:average=0,workers=257\": workers is \"257\", must be a whole number from 1 "
      "to 256");
}

}  // namespace
}  // namespace byteps
