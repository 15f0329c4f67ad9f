#include "cc/staging/device_forms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "cc/codec/int8_codec.h"
#include "cc/codec/testing/expected_sum.h"
#include "cc/codec/thc_codec.h"
#include "cc/gpu/device_codec.h"
#include "cc/gpu/pinned_pool.h"
#include "cc/gpu/testing/test_gpus.h"

namespace byteps {
namespace {

constexpr PartSeed kSeed = {1, 2, 3, 4, 5};

TEST(DeviceFormsTest, OnlyCodecsThatADeviceStandsInFor) {
  EXPECT_EQ(DeviceFormOf(nullptr, kSeed).codec, CodecId::kRaw);
  const auto other = CodecNamed("onebit");
  EXPECT_EQ(DeviceFormOf(static_cast<const BlockCodec*>(other.get()), kSeed).codec, CodecId::kRaw);
  const Int8Codec codec(256, true);
  const DeviceForm form = DeviceFormOf(&codec, kSeed);
  EXPECT_EQ(form.codec, CodecId::kInt8);
  EXPECT_EQ(form.block, 256u);
  EXPECT_EQ(form.Bytes(256 + 3), 258u + 5u);
  EXPECT_TRUE(form.is_stochastic);
  EXPECT_EQ(form.random_state, CounterRandom(kSeed).state());
}

// Bits of all kinds of floating-point numbers, or of gradients' usual ones.
std::vector<float> Values(uint64_t length, bool of_all_kinds) {
  std::mt19937 random(static_cast<uint32_t>(length));
  std::normal_distribution<float> normal(0, 0.01f);
  std::vector<float> values(length);
  for (float& value : values) {
    if (!of_all_kinds) {
      value = normal(random);
      continue;
    }
    // Whole blocks of like size, and blocks with a number that is not finite among them.
    uint32_t bits = random();
    if (random() % 64 != 0) bits &= 0xbfffffff;
    if (random() % 3 == 0) bits &= 0x807fffff;
    std::memcpy(&value, &bits, sizeof(bits));
  }
  return values;
}

class DeviceCodecTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BYTEPS_NEED_GPUS(1);
    device_ = OpenGpu(0);
    stream_ = NewStream(device_);
    const Status status = DeviceCodec::Create(device_, &codec_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  std::unique_ptr<DeviceBuffer> OnDevice(const std::vector<float>& values) {
    auto buffer = NewDeviceBuffer(device_, values.size() * sizeof(float));
    std::vector<uint8_t> raw(buffer->bytes());
    std::memcpy(raw.data(), values.data(), raw.size());
    Upload(raw, *buffer, stream_.get());
    return buffer;
  }

  void ExpectSameBytes(const BlockCodec& codec, const std::vector<float>& values) {
    const uint64_t bytes = codec.EncodedBytes(values.size());
    std::vector<uint8_t> expected(bytes);
    const CounterRandom random(kSeed);
    codec.EncodeBlocks(values.data(), values.size(), 0, random, expected.data());
    std::vector<float> expected_back(values.size());
    codec.DecodeBlocks(expected.data(), values.size(), DecodeMode::kStore, expected_back.data());

    const auto buffer = OnDevice(values);
    DevicePart part;
    part.values = buffer->pointer();
    part.elements = values.size();
    part.bytes = bytes;
    part.form = DeviceFormOf(&codec, kSeed);
    std::vector<uint8_t> encoded(bytes + 8, 0xa5);  // not pinned: copies only take longer
    {
      const ScopedContext scope(*device_);
      const Status status = codec_->EncodeToHost({part}, encoded.data(), stream_->handle());
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    ASSERT_TRUE(stream_->Synchronize().ok());
    for (uint64_t i = 0; i < bytes; ++i)
      ASSERT_EQ(encoded[i], expected[i]) << codec.name() << ", byte " << i << " of " << bytes;
    for (uint64_t i = bytes; i < encoded.size(); ++i) ASSERT_EQ(encoded[i], 0xa5);
    {
      const ScopedContext scope(*device_);
      const Status status = codec_->DecodeToDevice(
          {{encoded.data(), part.form, values.size(), buffer->pointer()}}, stream_->handle());
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    const std::vector<uint8_t> back = Download(*buffer, stream_.get());
    ASSERT_EQ(std::memcmp(back.data(), expected_back.data(), back.size()), 0) << codec.name();
  }

  // Each way by itself, since contributions and sums differ.
  void ExpectSameThc(const ThcCodec& codec, const std::vector<float>& values) {
    std::vector<uint8_t> expected(codec.EncodedBytes(values.size()));
    codec.EncodeBlocks(values.data(), values.size(), 0, CounterRandom(kSeed), expected.data());
    const auto buffer = OnDevice(values);
    DevicePart part;
    part.values = buffer->pointer();
    part.elements = values.size();
    part.bytes = expected.size();
    part.form = DeviceFormOf(&codec, kSeed);
    std::vector<uint8_t> encoded(expected.size());
    const ScopedContext scope(*device_);
    ASSERT_TRUE(codec_->EncodeToHost({part}, encoded.data(), stream_->handle()).ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    ASSERT_EQ(encoded, expected) << values.size() << " elements";
  }
  void ExpectSameSums(const ThcSumCodec& codec, const std::vector<float>& sums) {
    std::vector<uint8_t> encoded(codec.EncodedBytes(sums.size()));
    codec.EncodeBlocks(sums.data(), sums.size(), 0, CounterRandom(kSeed), encoded.data());
    std::vector<float> expected(sums.size());
    codec.DecodeBlocks(encoded.data(), sums.size(), DecodeMode::kStore, expected.data());
    const auto buffer = NewDeviceBuffer(device_, sums.size() * sizeof(float));
    const ScopedContext scope(*device_);
    const ArrivedPart part = {encoded.data(), DeviceFormOf(&codec, kSeed), sums.size(),
                              buffer->pointer()};
    ASSERT_TRUE(codec_->DecodeToDevice({part}, stream_->handle()).ok());
    const std::vector<uint8_t> back = Download(*buffer, stream_.get());
    ASSERT_EQ(std::memcmp(back.data(), expected.data(), back.size()), 0) << codec.name();
  }

  std::shared_ptr<GpuDevice> device_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<DeviceCodec> codec_;
};

// Lengths around blocks, and longer than what is between a kernel and a copy.
TEST_F(DeviceCodecTest, TheBytesAreThoseOfTheCpu) {
  for (const char* name :
       {"int8", "int8:block=64", "int8:block=4096", "int8:block=256,stochastic=1", "int4",
        "int4:block=256", "fp8", "fp8:block=32"}) {
    const std::unique_ptr<Codec> made = CodecNamed(name);
    ASSERT_NE(made, nullptr) << name;
    const auto& codec = static_cast<const BlockCodec&>(*made);
    ASSERT_TRUE(DeviceCodec::Supports(DeviceFormOf(&codec, kSeed)));
    for (const uint64_t length : {1, 31, 32, 33, 4095, 4097, 1000001, 9000001}) {
      ExpectSameBytes(codec, Values(length, false));
      if (length < 2000000) ExpectSameBytes(codec, Values(length, true));
      if (HasFatalFailure()) return;
    }
    ExpectSameBytes(codec, std::vector<float>(100));
    ExpectSameBytes(codec, std::vector<float>(100, 1e-42f));
    ExpectSameBytes(codec, std::vector<float>(100, std::numeric_limits<float>::max()));
    ExpectSameBytes(codec, std::vector<float>(100, -std::numeric_limits<float>::infinity()));
  }
}

TEST_F(DeviceCodecTest, TheBytesOfThcAreThoseOfTheCpu) {
  for (const uint64_t length : {1, 4095, 4096, 4097, 1000001, 9000001}) {
    ExpectSameThc(ThcCodec({2, true}), Values(length, false));
    if (length < 2000000) ExpectSameThc(ThcCodec({2, true}), Values(length, true));
    for (const uint64_t workers : {1, 2, 9, 256}) {
      std::vector<float> sums = Values(length, false);
      for (float& sum : sums) sum = std::nearbyint(sum * 100 * static_cast<float>(workers));
      ExpectSameSums(ThcSumCodec({workers, false}), sums);
    }
    if (HasFatalFailure()) return;
  }
}

// More of them than one launch takes, of several codecs, and some as they are.
TEST_F(DeviceCodecTest, PartsOfOneCall) {
  const Int8Codec int8(32, false);
  const ThcCodec thc({2, true});
  const std::vector<float> values = Values(300000, false);
  const auto buffer = OnDevice(values);
  std::vector<DevicePart> parts;
  std::vector<uint8_t> expected;
  for (uint64_t i = 0; i < 40; ++i) {
    const BlockCodec& codec = i % 20 < 11 ? static_cast<const BlockCodec&>(thc) : int8;
    const uint64_t first = 4 * i, count = i % 3 == 0 ? 7000 * i : 4095 + i;
    const auto* const from = values.data() + first;
    const PartSeed seed = {1, 2, 3, i, 5};
    DevicePart part;
    part.values = static_cast<const float*>(buffer->pointer()) + first;
    part.elements = count;
    part.form = i == 30 ? DeviceForm() : DeviceFormOf(&codec, seed);
    std::vector<uint8_t> bytes(i == 30 ? count * sizeof(float) : codec.EncodedBytes(count));
    if (i == 30) {
      std::memcpy(bytes.data(), from, bytes.size());
    } else {
      codec.EncodeBlocks(from, count, 0, CounterRandom(seed), bytes.data());
    }
    part.bytes = bytes.size();
    parts.push_back(part);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  std::vector<uint8_t> encoded(expected.size());
  const ScopedContext scope(*device_);
  ASSERT_TRUE(codec_->EncodeToHost(parts, encoded.data(), stream_->handle()).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(encoded == expected);
}

// The way back of the like.
TEST_F(DeviceCodecTest, SumsOfOneCall) {
  const Int8Codec int8(32, false);
  const ThcSumCodec of_two({2, true});
  const ThcSumCodec of_nine({9, true});
  const BlockCodec* const codecs[] = {&of_two, &int8, &of_nine};
  std::vector<float> expected(3000000);
  const auto buffer = NewDeviceBuffer(device_, expected.size() * sizeof(float));
  std::vector<std::vector<uint8_t>> encoded;
  std::vector<ArrivedPart> parts;
  uint64_t first = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    const BlockCodec& codec = *codecs[i / 10 % 3];
    const uint64_t count = i % 3 == 0 ? 7000 * i : 4095 + i;
    std::vector<float> values = Values(count, false);
    for (float& value : values) value = std::nearbyint(value * 100);
    std::vector<uint8_t>& bytes = encoded.emplace_back();
    if (i == 30) {
      bytes.resize(count * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      std::memcpy(&expected[first], values.data(), bytes.size());
    } else {
      bytes.resize(codec.EncodedBytes(count));
      codec.EncodeBlocks(values.data(), count, 0, CounterRandom(kSeed), bytes.data());
      codec.DecodeBlocks(bytes.data(), count, DecodeMode::kStore, &expected[first]);
    }
    parts.push_back({bytes.data(), i == 30 ? DeviceForm() : DeviceFormOf(&codec, kSeed), count,
                     static_cast<float*>(buffer->pointer()) + first});
    first += count;
  }
  const ScopedContext scope(*device_);
  ASSERT_TRUE(codec_->DecodeToDevice(parts, stream_->handle()).ok());
  const std::vector<uint8_t> back = Download(*buffer, stream_.get());
  EXPECT_EQ(std::memcmp(back.data(), expected.data(), first * sizeof(float)), 0);
}

// The figures of docs/compression.md: of one part, or of parts as long as they are by default. The
// kernels' time is what remains without the copies.
TEST_F(DeviceCodecTest, OneHundredMegabytes) {
  constexpr uint64_t kElements = 25'000'000;
  const auto buffer = NewDeviceBuffer(device_, kElements * sizeof(float));
  const auto pool = PinnedPool::Create(PinnedMemoryOf(device_));
  PinnedPool::Block pinned;
  ASSERT_TRUE(pool->Take(kElements * sizeof(float), &pinned).ok());
  auto* const host = static_cast<uint8_t*>(pinned.get());
  const CudaStreamHandle stream = stream_->handle();
  const ScopedContext scope(*device_);
  for (const uint64_t length : {kElements, uint64_t{1 << 20} / sizeof(float)}) {
    const auto time = [&](const std::string& what, const auto& call) {
      std::vector<double> times;
      for (int i = 0; i < 11; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        ASSERT_TRUE(call().ok());
        ASSERT_TRUE(stream_->Synchronize().ok());
        times.push_back(
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                .count());
      }
      std::sort(times.begin(), times.end());
      std::printf("100 MB of float32 in parts of %.0f MB, %s: %.2f ms\n",
                  static_cast<double>(length) * sizeof(float) / 1e6, what.c_str(), times[5]);
    };
    const auto encode = [&](const DeviceForm& form, const BlockCodec* codec) {
      std::vector<DevicePart> parts;
      for (uint64_t first = 0; first < kElements; first += length) {
        const uint64_t count = std::min(length, kElements - first);
        const uint64_t bytes =
            codec == nullptr ? count * sizeof(float) : codec->EncodedBytes(count);
        parts.push_back({static_cast<const float*>(buffer->pointer()) + first, count, bytes, form});
      }
      return codec_->EncodeToHost(parts, host, stream);
    };
    const auto decode = [&](const DeviceForm& form) {
      std::vector<ArrivedPart> parts;
      for (uint64_t first = 0; first < kElements; first += length) {
        parts.push_back({host, form, std::min(length, kElements - first),
                         static_cast<float*>(buffer->pointer()) + first});
      }
      return codec_->DecodeToDevice(parts, stream);
    };
    time("copied to the host", [&] { return encode(DeviceForm(), nullptr); });
    const Int8Codec int8(32, false);
    const ThcCodec thc({2, true});
    const ThcSumCodec sum({2, true});
    for (const BlockCodec* codec :
         {static_cast<const BlockCodec*>(&int8), static_cast<const BlockCodec*>(&thc),
          static_cast<const BlockCodec*>(&sum)}) {
      const DeviceForm form = DeviceFormOf(codec, kSeed);
      const std::string name = codec->name();
      time("its bytes as " + name + " copied", [&] { return encode(DeviceForm(), codec); });
      if (codec != &sum)
        time("encoded as " + name + " and copied", [&] { return encode(form, codec); });
      if (codec != &thc) time(name + " copied back and decoded", [&] { return decode(form); });
    }
  }
}

}  // namespace
}  // namespace byteps
