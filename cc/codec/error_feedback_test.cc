#include "cc/codec/error_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "cc/codec/part_forms.h"
#include "cc/codec/testing/expected_sum.h"

namespace byteps {
namespace {

constexpr uint64_t kElements = 3 * 4096 + 77;

std::vector<float> Gradient(uint64_t round) {
  std::vector<float> values(kElements);
  uint32_t state = 4711 + static_cast<uint32_t>(round) * 31;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = (static_cast<float>(state >> 8) / (1 << 24) - 0.5f) *
            static_cast<float>(1 << (state >> 28));
  }
  return values;
}

PartSeed SeedOf(uint64_t round) {
  PartSeed seed;
  seed.key = 11;
  seed.round = round;
  return seed;
}

class ErrorFeedbackTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Encode(const std::vector<float>& values, uint64_t round) {
    const auto bytes = feedback_.Encode(codec(), values.data(), kElements, SeedOf(round));
    return {reinterpret_cast<const char*>(bytes.get()), codec().EncodedBytes(kElements)};
  }

  // What it should be, by other means: the whole part at once.
  std::string ExpectEncoded(const std::vector<float>& values, uint64_t round) {
    std::vector<float> sums(kElements);
    for (uint64_t i = 0; i < kElements; ++i) sums[i] = values[i] + residual_[i];
    std::string bytes = EncodedBy(GetParam(), sums, SeedOf(round), 0);
    std::vector<float> decoded(kElements);
    DecodeTo(GetParam(), bytes, DecodeMode::kStore, &decoded);
    std::vector<float> residual(kElements);
    bool is_finite = true;
    for (uint64_t i = 0; i < kElements; ++i) {
      residual[i] = sums[i] - decoded[i];
      is_finite = is_finite && std::isfinite(residual[i]);
    }
    if (is_finite) residual_ = std::move(residual);
    return bytes;
  }

  const BlockCodec& codec() {
    TensorDescription tensor;
    tensor.codec = CodecNamed(GetParam())->name();
    return *FormsOf(tensor).push(kElements);
  }

  ErrorFeedback feedback_;
  std::vector<float> residual_ = std::vector<float>(kElements);
};

INSTANTIATE_TEST_SUITE_P(Codecs, ErrorFeedbackTest,
                         ::testing::Values("onebit", "int4:feedback=1", "int8", "topk:ratio=0.1",
                                           "randomk:ratio=0.3"),
                         [](const auto& info) {
                           return std::string(info.param, std::strcspn(info.param, ":"));
                         });

TEST_P(ErrorFeedbackTest, AddsWhatTheLastRoundLost) {
  for (uint64_t round = 0; round < 5; ++round) {
    const std::vector<float> values = Gradient(round);
    ASSERT_EQ(Encode(values, round), ExpectEncoded(values, round)) << "round " << round;
  }
}

TEST_P(ErrorFeedbackTest, LosesNothingForGood) {
  constexpr int kRounds = 50;
  std::vector<float> decoded(kElements);
  const std::vector<float> values = Gradient(0);
  for (int round = 0; round < kRounds; ++round)
    DecodeTo(GetParam(), Encode(values, round), DecodeMode::kAdd, &decoded);
  // What is missing is one residual, whatever the number of rounds: that of a onebit block is a
  // few times its largest element.
  double error = 0;
  double total = 0;
  for (uint64_t i = 0; i < kElements; ++i) {
    error += std::pow(decoded[i] / kRounds - values[i], 2);
    total += std::pow(values[i], 2);
  }
  EXPECT_LT(std::sqrt(error / total), 0.25);
}

TEST_P(ErrorFeedbackTest, ARoundThatIsEncodedAgainHasTheSameBytes) {
  Encode(Gradient(0), 0);
  const std::string first = Encode(Gradient(1), 1);
  EXPECT_EQ(Encode(Gradient(1), 1), first);
  Encode(Gradient(0), 0);  // of an exchange that is over
  ExpectEncoded(Gradient(0), 0);
  ExpectEncoded(Gradient(1), 1);
  EXPECT_EQ(Encode(Gradient(2), 2), ExpectEncoded(Gradient(2), 2));
}

// Loss scaling sees it in the sum, and leaves the step out.
TEST_P(ErrorFeedbackTest, WhatIsNotFiniteChangesNothing) {
  uint64_t round = 0;
  ASSERT_EQ(Encode(Gradient(round), round), ExpectEncoded(Gradient(round), round));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const uint64_t where : {uint64_t{0}, uint64_t{5000}, kElements - 1}) {
      std::vector<float> values = Gradient(++round);
      values[where] = bad;
      const std::string bytes = Encode(values, round);
      ASSERT_EQ(bytes, ExpectEncoded(values, round));
      std::vector<float> decoded(kElements);
      DecodeTo(GetParam(), bytes, DecodeMode::kStore, &decoded);
      EXPECT_FALSE(std::isfinite(decoded[where]));
      ++round;
      ASSERT_EQ(Encode(Gradient(round), round), ExpectEncoded(Gradient(round), round));
    }
  }
}

// A part that moves may be encoded by two threads at a time.
TEST_P(ErrorFeedbackTest, ThreadsThatEncodeTheSameRoundGetTheSameBytes) {
  for (uint64_t round = 0; round < 20; ++round) {
    const std::vector<float> values = Gradient(round);
    std::string other;
    std::thread thread([&] { other = Encode(values, round); });
    const std::string own = Encode(values, round);
    thread.join();
    ASSERT_EQ(own, other);
    ASSERT_EQ(own, ExpectEncoded(values, round));
  }
}

}  // namespace
}  // namespace byteps
