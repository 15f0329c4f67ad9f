// The GPU's kernels on the CPU: what they encode and decode is what the codecs do. That a GPU does
// the same, device_forms_test.cc says.
#include "cc/gpu/testing/emulated_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "cc/codec/testing/expected_sum.h"
#include "cc/codec/thc_codec.h"
#include "cc/staging/device_forms.h"

namespace byteps {
namespace {

constexpr PartSeed kSeed = {1, 2, 3, 4, 5};
constexpr unsigned kGroups = 2, kThreads = 256, kThcThreads = 64;  // of a part
constexpr unsigned kParts = 2;
constexpr uint64_t kLengths[] = {1, 31, 33, 4095, 4096, 4097, 12365};

std::vector<float> Values(uint64_t length, bool with_all_kinds) {
  std::mt19937 random(static_cast<uint32_t>(length));
  std::normal_distribution<float> normal;
  std::vector<float> values(length);
  for (float& value : values) value = normal(random);
  if (with_all_kinds && length > 8300) {
    values[3] = 1e-42f;
    values[4100] = std::numeric_limits<float>::infinity();
    values[8200] = std::numeric_limits<float>::quiet_NaN();
    values[8300] = 1e30f;
  }
  return values;
}

const BlockCodec& AsBlocks(const std::unique_ptr<Codec>& codec) {
  return static_cast<const BlockCodec&>(*codec);
}

std::vector<uint8_t> Encoded(const BlockCodec& codec, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(codec.EncodedBytes(values.size()));
  codec.EncodeBlocks(values.data(), values.size(), 0, CounterRandom(kSeed), bytes.data());
  return bytes;
}

// A NaN equals a NaN.
void ExpectDecoded(const BlockCodec& codec, const std::vector<uint8_t>& bytes,
                   const std::vector<float>& found) {
  std::vector<float> expected(found.size());
  codec.DecodeBlocks(bytes.data(), found.size(), DecodeMode::kStore, expected.data());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    ASSERT_EQ(emulated::AsUint(found[i]), emulated::AsUint(expected[i]))
        << codec.name() << ", element " << i << " of " << found.size();
  }
}

// DeviceCodec gives kernels its own struct of as many.
static_assert(emulated::kMostParts == kPartsTogether);
static_assert(sizeof(emulated::EncodedPart) == 5 * sizeof(uint64_t));
static_assert(sizeof(emulated::DecodedPart) == 3 * sizeof(uint64_t));

float* RotatedBlocks() {
  alignas(16) static float blocks[kGroups * kParts * 4096];
  return blocks;
}

// Encodes all values, and as a second part the first half of them.
using EncodeKernel = std::function<void(emulated::EncodedParts)>;

void ExpectSameEncoded(const BlockCodec& codec, const std::vector<float>& values, unsigned threads,
                       const EncodeKernel& kernel) {
  const DeviceForm form = DeviceFormOf(&codec, kSeed);
  emulated::EncodedParts parts = {};
  std::vector<uint8_t> bytes[kParts];
  for (unsigned i = 0; i < kParts; ++i) {
    const uint64_t length = i == 0 ? values.size() : values.size() / 2;
    bytes[i].resize(form.Bytes(length));
    parts.part[i] = {values.data(), length, form.random_state, 0, bytes[i].data()};
  }
  emulated::Launch({kGroups, kParts}, threads, [&] { kernel(parts); });
  ASSERT_EQ(bytes[0], Encoded(codec, values)) << codec.name() << ", " << values.size();
  const std::vector<float> half(values.begin(), values.begin() + values.size() / 2);
  ASSERT_EQ(bytes[1], Encoded(codec, half)) << codec.name() << ", " << half.size();
}

// Decodes what all values are encoded as, and as a second part the first half of them.
using DecodeKernel = std::function<void(emulated::DecodedParts)>;

void ExpectSameDecoded(const BlockCodec& codec, const std::vector<float>& values, unsigned threads,
                       const DecodeKernel& kernel) {
  emulated::DecodedParts parts = {};
  std::vector<uint8_t> bytes[kParts];
  std::vector<float> back[kParts];
  for (unsigned i = 0; i < kParts; ++i) {
    const uint64_t length = i == 0 ? values.size() : values.size() / 2;
    bytes[i] = Encoded(codec, {values.begin(), values.begin() + static_cast<ptrdiff_t>(length)});
    back[i].resize(length);
    parts.part[i] = {bytes[i].data(), length, back[i].data()};
  }
  emulated::Launch({kGroups, kParts}, threads, [&] { kernel(parts); });
  for (unsigned i = 0; i < kParts; ++i) ExpectDecoded(codec, bytes[i], back[i]);
}

struct WithScale {
  const char* name;
  void (*encode)(emulated::EncodedParts, unsigned block, unsigned is_stochastic);
  void (*decode)(emulated::DecodedParts, unsigned block);
};

TEST(EmulatedKernelsTest, BlocksWithAScale) {
  const WithScale all[] = {
      {"int8", &emulated::EncodeInt8, &emulated::DecodeInt8},
      {"int8:block=256,stochastic=1", &emulated::EncodeInt8, &emulated::DecodeInt8},
      {"int4", &emulated::EncodeInt4, &emulated::DecodeInt4},
      {"fp8", &emulated::EncodeFloat8, &emulated::DecodeFloat8}};
  for (const WithScale& each : all) {
    const std::unique_ptr<Codec> codec = CodecNamed(each.name);
    const DeviceForm form = DeviceFormOf(&AsBlocks(codec), kSeed);
    for (const uint64_t length : kLengths) {
      const std::vector<float> values = Values(length, true);
      ExpectSameEncoded(AsBlocks(codec), values, kThreads, [&](emulated::EncodedParts parts) {
        each.encode(parts, form.block, form.is_stochastic);
      });
      ExpectSameDecoded(AsBlocks(codec), values, kThreads,
                        [&](emulated::DecodedParts parts) { each.decode(parts, form.block); });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(EmulatedKernelsTest, ContributionsOfThc) {
  const ThcCodec codec({2, true});
  for (const uint64_t length : kLengths) {
    ExpectSameEncoded(codec, Values(length, true), kThcThreads, [&](emulated::EncodedParts parts) {
      emulated::EncodeThc(parts, RotatedBlocks());
    });
    if (HasFatalFailure()) return;
  }
}

// Sums have 4 to 8 bits for an element, or 16.
TEST(EmulatedKernelsTest, SumsOfThc) {
  std::mt19937 random;
  for (const uint64_t workers : {1, 2, 4, 9, 18, 256}) {
    const ThcSumCodec codec({workers, workers % 2 == 0});
    const DeviceForm form = DeviceFormOf(&codec, kSeed);
    const auto most = static_cast<int>(7 * workers);
    std::uniform_int_distribution<int> level(-most, most);
    for (const uint64_t length : kLengths) {
      std::vector<float> values(length);
      for (float& value : values) value = static_cast<float>(level(random)) / codec.divisor();
      if (length > 10) values[10] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(form.Bytes(length), codec.EncodedBytes(length));
      ExpectSameDecoded(codec, values, kThcThreads, [&](emulated::DecodedParts parts) {
        emulated::DecodeThcSum(parts, form.element_bits, form.workers, form.divisor,
                               RotatedBlocks());
      });
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace byteps
