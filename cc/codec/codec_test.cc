// Every codec, with every instruction set, against the hashes of a NumPy oracle (golden.h).
#include "cc/codec/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "cc/base/sha256.h"
#include "cc/codec/testing/golden.h"
#include "cc/sum/sum.h"

namespace byteps {
namespace {

constexpr PartSeed kSeed = {1, 2, 3, 4, 5};
constexpr uint8_t kGuard = 0xa5;

uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// As `values` in tests/codec/oracle.py.
std::vector<float> Values(const std::string& kind, uint64_t length, uint64_t salt = 0) {
  const bool tiny = kind == "zero" || kind == "subnormal";
  const uint64_t first = tiny || kind == "wide" ? 0 : 100;
  const uint64_t count = tiny ? 1 : kind == "wide" ? 255 : 28;
  std::vector<float> values(length);
  for (uint64_t i = 0; i < length; ++i) {
    const uint64_t bits = SplitMix(i + (salt << 32));
    const uint64_t mantissa = kind == "zero" ? 0 : bits & 0x7fffff;
    const auto made =
        static_cast<uint32_t>(bits >> 63 << 31 | (first + (bits >> 32) % count) << 23 | mantissa);
    std::memcpy(&values[i], &made, sizeof(made));
  }
  if (kind == "nan") values[length / 2] = std::numeric_limits<float>::quiet_NaN();
  if (kind == "infinity") {
    values[length / 3] = std::numeric_limits<float>::infinity();
    values[length - 1] = -std::numeric_limits<float>::infinity();
  }
  return values;
}

std::string Hash(const std::string& bytes) {
  std::string text;
  const Digest digest = Sha256(bytes);
  for (size_t i = 0; i < 8; ++i) {
    for (const int nibble : {digest[i] >> 4, digest[i] & 15}) text += "0123456789abcdef"[nibble];
  }
  return text;
}

std::string Hash(const std::vector<float>& values) {
  return Hash(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

std::unique_ptr<Codec> Parse(const std::string& text) {
  std::unique_ptr<Codec> codec;
  const Status status = ParseCodec(text, &codec);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return codec;
}

struct Encoded {
  EncodedPart part;
  std::vector<uint8_t> bytes;
};

Encoded Encode(const Codec& codec, const std::vector<float>& values, PartSeed seed = kSeed) {
  const uint64_t bound = codec.MaxEncodedBytes(values.size());
  EXPECT_LE(bound, values.size() * sizeof(float));
  Encoded encoded;
  encoded.bytes.assign(bound + 64, kGuard);
  encoded.part = codec.Encode(values.data(), values.size(), seed, encoded.bytes.data());
  EXPECT_LE(encoded.part.bytes, bound);
  EXPECT_EQ(encoded.part.elements, values.size());
  EXPECT_TRUE(std::all_of(encoded.bytes.begin() + bound, encoded.bytes.end(),
                          [](uint8_t byte) { return byte == kGuard; }));
  encoded.bytes.resize(encoded.part.bytes);
  return encoded;
}

// Pieces of `piece` bytes; 0: lengths that differ.
void Decode(const Codec& codec, const Encoded& encoded, DecodeMode mode, size_t piece,
            std::vector<float>* target) {
  std::unique_ptr<PartReceiver> receiver;
  const Status made = codec.Receive(encoded.part, mode, target->data(), &receiver);
  ASSERT_TRUE(made.ok()) << made.ToString();
  for (size_t done = 0, i = 0; done < encoded.bytes.size(); ++i) {
    const size_t length = std::min(piece > 0 ? piece : SplitMix(i) % 300,  //
                                   encoded.bytes.size() - done);
    EXPECT_TRUE(receiver->Take(encoded.bytes.data() + done, length).ok());
    done += length;
  }
  EXPECT_TRUE(receiver->Finish().ok());
}

// Of one codec.
class OracleTest : public testing::TestWithParam<std::string> {};

std::vector<std::string> GoldenCodecs() {
  std::vector<std::string> codecs;
  for (const Golden& golden : kGolden) {
    if (codecs.empty() || codecs.back() != golden.codec) codecs.push_back(golden.codec);
  }
  return codecs;
}

INSTANTIATE_TEST_SUITE_P(Codecs, OracleTest, testing::ValuesIn(GoldenCodecs()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char letter) { return !std::isalnum(letter); }, '_');
                           return name;
                         });

TEST_P(OracleTest, GivesTheOraclesBitsWithEveryInstructionSet) {
  const std::string before = ActiveSumKernels().name;
  for (const SumKernels* kernels : AvailableSumKernels()) {
    ASSERT_TRUE(ForceSumKernels(kernels->name));
    for (const Golden& golden : kGolden) {
      if (GetParam() != golden.codec) continue;
      SCOPED_TRACE(std::string(kernels->name) + " " + golden.codec + " " + golden.values + " " +
                   std::to_string(golden.length));
      const auto codec = Parse(golden.codec);
      const Encoded encoded = Encode(*codec, Values(golden.values, golden.length));
      EXPECT_EQ(Hash(static_cast<char>(encoded.part.codec) +
                     std::string(encoded.bytes.begin(), encoded.bytes.end())),
                golden.payload);
      std::vector<float> stored(golden.length, 7);
      Decode(*codec, encoded, DecodeMode::kStore, 1 << 20, &stored);
      EXPECT_EQ(Hash(stored), golden.stored);
      std::vector<float> added = Values("plain", golden.length, 1);
      Decode(*codec, encoded, DecodeMode::kAdd, 1 << 20, &added);
      EXPECT_EQ(Hash(added), golden.added);
    }
  }
  ForceSumKernels(before);
}

TEST_P(OracleTest, PiecesOfAnyLengthGiveTheSameBits) {
  for (const Golden& golden : kGolden) {
    if (GetParam() != golden.codec || golden.length > 4097) continue;
    const auto codec = Parse(golden.codec);
    const Encoded encoded = Encode(*codec, Values(golden.values, golden.length));
    for (const size_t piece : {0, 1, 3, 33, 35, 4096}) {
      SCOPED_TRACE(std::string(golden.codec) + " " + golden.values + " " +
                   std::to_string(golden.length) + " in pieces of " + std::to_string(piece));
      std::vector<float> added = Values("plain", golden.length, 1);
      Decode(*codec, encoded, DecodeMode::kAdd, piece, &added);
      EXPECT_EQ(Hash(added), golden.added);
    }
  }
}

TEST(CodecTest, WhatIsRandomDependsOnTheSeedAlone) {
  const std::vector<float> values = Values("plain", 4096);
  for (const char* name : {"int8:block=256,stochastic=1", "int4", "randomk", "dithering", "thc"}) {
    const auto codec = Parse(name);
    EXPECT_EQ(Encode(*codec, values).bytes, Encode(*codec, values).bytes);
    for (uint64_t PartSeed::* field :
         {&PartSeed::job, &PartSeed::key, &PartSeed::part, &PartSeed::round, &PartSeed::sender}) {
      PartSeed other = kSeed;
      other.*field += 1;
      EXPECT_NE(Encode(*codec, values).bytes, Encode(*codec, values, other).bytes) << name;
    }
  }
}

TEST(CodecTest, StochasticRoundingIsUnbiased) {
  const std::vector<float> values = Values("plain", 256);
  const float largest = std::abs(*std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  constexpr int kRounds = 2000;
  // And the steps that it rounds to, of the largest element.
  const std::map<const char*, double> codecs = {{"int8:block=256,stochastic=1", 1 / 6.9},
                                                {"int4", 1 / 6.9},
                                                {"dithering", 1 / 6.9},
                                                {"dithering:bits=8,l2=1", 1 / 6.9},
                                                {"dithering:natural=1", 0.5}};
  for (const auto& [name, step] : codecs) {
    const auto codec = Parse(name);
    std::vector<float> sum(values.size());
    for (int round = 0; round < kRounds; ++round) {
      PartSeed seed = kSeed;
      seed.round = round;
      Decode(*codec, Encode(*codec, values, seed), DecodeMode::kAdd, 1 << 20, &sum);
    }
    // Six standard deviations of a mean of roundings.
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(sum[i] / kRounds, values[i], 6 * largest * step / 2 / 44.7) << name << " " << i;
    }
  }
}

TEST(CodecTest, RefusesWhatDoesNotFit) {
  const auto codec = Parse("int8");
  float target[64] = {};
  std::unique_ptr<PartReceiver> receiver;
  const auto refused = [&](EncodedPart part) {
    const Status status = codec->Receive(part, DecodeMode::kAdd, target, &receiver);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(refused({CodecId::kInt8, 64, 67}),
            "received a part of 67 bytes for 64 elements, which are 68 bytes in "
            "int8:block=32,stochastic=0");
  EXPECT_EQ(
      refused({CodecId::kInt4, 64, 36}),
      "received a part of codec number 5, expected int8:block=32,stochastic=0 (3) or raw (0)");
  refused({CodecId::kInt8, ~uint64_t{0}, 68});
  refused({static_cast<CodecId>(250), 64, 68});

  ASSERT_TRUE(codec->Receive({CodecId::kInt8, 64, 68}, DecodeMode::kAdd, target, &receiver).ok());
  const uint8_t bytes[69] = {};
  EXPECT_EQ(receiver->Take(bytes, 69).message(),
            "received at least 69 bytes of a part of 68 bytes (int8:block=32,stochastic=0, 64 "
            "elements)");
  EXPECT_TRUE(receiver->Take(bytes, 67).ok());
  EXPECT_EQ(receiver->Finish().message(),
            "received 67 of 68 bytes of a part (int8:block=32,stochastic=0, 64 elements)");
  EXPECT_TRUE(receiver->Take(bytes + 67, 1).ok());
  EXPECT_TRUE(receiver->Finish().ok());
}

TEST(ParseCodecTest, NamesTheValueThatIsWrong) {
  std::unique_ptr<Codec> codec;
  EXPECT_EQ(ParseCodec("int9", &codec).message(),
            "unknown codec \"int9\"; known: raw, fp16, bf16, int8, fp8, int4, onebit, topk, "
            "randomk, dithering, thc, thc_sum");
  EXPECT_EQ(ParseCodec("int8:blocks=32", &codec).message(),
            "codec \"int8:blocks=32\": unknown option \"blocks\"; known: block, stochastic");
  EXPECT_EQ(ParseCodec("fp16:block=32", &codec).message(),
            "codec \"fp16:block=32\": unknown option \"block\"; known: none");
  for (const char* value : {"", "31", "48", "8192", "-32", "32x", "99999999999999999999"}) {
    EXPECT_EQ(ParseCodec("int8:stochastic=1,block=" + std::string(value), &codec).message(),
              "codec \"int8:stochastic=1,block=" + std::string(value) + "\": block is \"" + value +
                  "\", must be a power of two from 32 to 4096");
  }
  EXPECT_EQ(ParseCodec("int8:stochastic=2", &codec).message(),
            "codec \"int8:stochastic=2\": stochastic is \"2\", must be 0 or 1");
  for (const char* value : {"", "1", "9", "4.5", "-2"}) {
    EXPECT_EQ(ParseCodec("dithering:bits=" + std::string(value), &codec).message(),
              "codec \"dithering:bits=" + std::string(value) + "\": bits is \"" + value +
                  "\", must be a whole number from 2 to 8");
  }
  EXPECT_FALSE(ParseCodec("int8:", &codec).ok());
  EXPECT_EQ(codec, nullptr);
}

TEST(ParseCodecTest, NamesParseToThemselves) {
  for (const std::string& name : CodecNames()) {
    const std::string full = Parse(name)->name();
    EXPECT_EQ(full.substr(0, full.find(':')), name);
    EXPECT_EQ(Parse(full)->name(), full);
    Parse(Parse(name)->SumCodec());
  }
}

}  // namespace
}  // namespace byteps
