#include "cc/codec/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/sum/element.h"

namespace byteps {
namespace {

using sum_internal::BitCast;

CodecId FormOf(const std::vector<float>& values) {
  const BlockCodec* const form = NarrowFormOf(values.data(), values.size());
  return form == nullptr ? CodecId::kRaw : form->id();
}

// All float32 that some 16 bits stand for.
std::vector<float> AllOf(CodecId id) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = 0;
    NarrowForm(id)->DecodeBlocks(reinterpret_cast<const uint8_t*>(&bits), 1, DecodeMode::kStore,
                                 &value);
    if (!std::isnan(value)) values.push_back(value);
  }
  return values;
}

TEST(NarrowTest, FindsTheFormOfAllValues) {
  const std::vector<float> bfloat16 = AllOf(CodecId::kBFloat16), float16 = AllOf(CodecId::kFloat16);
  EXPECT_GT(bfloat16.size(), 65000u);
  EXPECT_EQ(FormOf(bfloat16), CodecId::kBFloat16);
  EXPECT_EQ(FormOf(float16), CodecId::kFloat16);
}

TEST(NarrowTest, OneValueThatDoesNotFitIsEnough) {
  for (const float odd :
       {1.0f / 3, std::nextafter(1.0f, 2.0f), BitCast<float>(1u), std::numeric_limits<float>::max(),
        BitCast<float>(0x7f810000u), BitCast<float>(0x7fc00001u)}) {
    for (const size_t length : {1, 63, 64, 65, 2112, 2113, 100000}) {
      for (const size_t place : {size_t{0}, length / 2, length - 1}) {
        std::vector<float> values(length, -0.5f);
        EXPECT_EQ(FormOf(values), CodecId::kBFloat16);
        values[place] = odd;
        EXPECT_EQ(FormOf(values), CodecId::kRaw) << odd << " at " << place << " of " << length;
      }
    }
  }
}

TEST(NarrowTest, NothingHasNoForm) {
  EXPECT_EQ(FormOf({}), CodecId::kRaw);
  EXPECT_EQ(NarrowForm(CodecId::kInt8), nullptr);
  EXPECT_EQ(NarrowForm(CodecId::kRaw), nullptr);
}

TEST(NarrowTest, OnlySumsOfFloat32WithoutACodecMayBe) {
  TensorDescription tensor;
  EXPECT_TRUE(MayBeNarrow(tensor));
  tensor.average = true;
  EXPECT_TRUE(MayBeNarrow(tensor));
  tensor.codec = "int8:block=32,stochastic=0";
  EXPECT_FALSE(MayBeNarrow(tensor));
  tensor.codec = "";
  for (const ExchangeKind kind :
       {ExchangeKind::kMin, ExchangeKind::kMax, ExchangeKind::kBroadcast, ExchangeKind::kGather}) {
    tensor.kind = kind;
    EXPECT_FALSE(MayBeNarrow(tensor));
  }
  tensor.kind = ExchangeKind::kSum;
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kInt32}) {
    tensor.dtype = dtype;
    EXPECT_FALSE(MayBeNarrow(tensor));
  }
}

}  // namespace
}  // namespace byteps
