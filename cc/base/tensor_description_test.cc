#include "cc/base/tensor_description.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TensorDescription Float32(std::vector<int64_t> shape) {
  TensorDescription tensor;
  tensor.name = "t";
  tensor.shape = std::move(shape);
  return tensor;
}

TEST(TensorDescriptionTest, CountsElements) {
  EXPECT_EQ(Float32({}).ElementCount(), 1);
  EXPECT_EQ(Float32({0}).ElementCount(), 0);
  EXPECT_EQ(Float32({2, 3, 4}).ElementCount(), 24);
  EXPECT_EQ(Float32({2, 3, 4}).ByteCount(), 96u);
  TensorDescription gather = Float32({-1, 5});
  gather.kind = ExchangeKind::kGather;
  EXPECT_EQ(gather.ElementCount(), 5);
}

TEST(TensorDescriptionTest, ShowsItselfInMessages) {
  EXPECT_EQ(Float32({3, 4}).ToString(), "float32[3,4] sum");
  TensorDescription broadcast = Float32({});
  broadcast.kind = ExchangeKind::kBroadcast;
  broadcast.root_rank = 2;
  EXPECT_EQ(broadcast.ToString(), "float32[] broadcast from worker 2");
  TensorDescription rows = Float32({-1, 4});
  rows.kind = ExchangeKind::kRowSum;
  EXPECT_EQ(rows.ToString(), "float32[?,4] rowsum");
  rows.average = true;
  EXPECT_EQ(rows.ToString(), "float32[?,4] average of rows");
}

TEST(TensorDescriptionTest, RefusesWhatCannotBeExchanged) {
  EXPECT_TRUE(Float32({2}).Validate(1).ok());
  EXPECT_FALSE(Float32({-1}).Validate(1).ok());
  EXPECT_FALSE(Float32({int64_t{1} << 40, int64_t{1} << 40}).Validate(1).ok());
  EXPECT_TRUE(Float32({int64_t{1} << 40, 0, int64_t{1} << 40}).Validate(1).ok());

  TensorDescription unnamed = Float32({2});
  unnamed.name.clear();
  EXPECT_FALSE(unnamed.Validate(1).ok());
  TensorDescription overlong = Float32({2});
  overlong.name.assign(kMaxNameBytes + 1, 'n');
  EXPECT_FALSE(overlong.Validate(1).ok());

  TensorDescription integer_average = Float32({2});
  integer_average.dtype = DType::kInt32;
  integer_average.average = true;
  EXPECT_NE(integer_average.Validate(1).message().find("int32"), std::string::npos);

  TensorDescription broadcast = Float32({2});
  broadcast.kind = ExchangeKind::kBroadcast;
  broadcast.root_rank = 2;
  EXPECT_FALSE(broadcast.Validate(2).ok());
  EXPECT_TRUE(broadcast.Validate(3).ok());

  TensorDescription backup = Float32({2});
  backup.backup_workers = 1;
  EXPECT_TRUE(backup.Validate(3).ok());
  backup.kind = ExchangeKind::kMax;
  EXPECT_NE(backup.Validate(3).message().find("only a sum or an average"), std::string::npos);
  backup.kind = ExchangeKind::kSum;
  backup.grace_ms = kAdaptiveGrace;
  EXPECT_TRUE(backup.Validate(3).ok());
  backup.average = true;
  EXPECT_NE(backup.Validate(3).message().find("only a sum has a grace window"), std::string::npos);
  backup.grace_ms = kNoGrace;
  EXPECT_TRUE(backup.Validate(3).ok());
  backup.per_host = true;
  EXPECT_NE(backup.Validate(3).message().find("GPUs of a host"), std::string::npos);

  TensorDescription rows = Float32({-1, 4});
  rows.kind = ExchangeKind::kRowSum;
  rows.average = true;
  EXPECT_TRUE(rows.Validate(3).ok());
  rows.backup_workers = 1;
  EXPECT_NE(rows.Validate(3).message().find("rows are added up when all"), std::string::npos);

  TensorDescription gather = Float32({});
  gather.kind = ExchangeKind::kGather;
  EXPECT_FALSE(gather.Validate(1).ok());
}

TEST(TensorDescriptionTest, AgreesOnlyWhenAllThatMattersIsEqual) {
  const TensorDescription tensor = Float32({2, 3});
  EXPECT_TRUE(tensor.SameExchangeAs(Float32({2, 3})));
  EXPECT_FALSE(tensor.SameExchangeAs(Float32({3, 2})));
  TensorDescription other = tensor;
  other.dtype = DType::kFloat64;
  EXPECT_FALSE(tensor.SameExchangeAs(other));
  other = tensor;
  other.average = true;
  EXPECT_FALSE(tensor.SameExchangeAs(other));
  TensorDescription with_backup = other;
  with_backup.backup_workers = 1;
  EXPECT_FALSE(other.SameExchangeAs(with_backup));
  TensorDescription with_grace = tensor;
  with_grace.grace_ms = 0;
  EXPECT_FALSE(tensor.SameExchangeAs(with_grace));
  other = tensor;
  other.root_rank = 1;  // means nothing to a sum
  EXPECT_TRUE(tensor.SameExchangeAs(other));
}

// The key is part of the wire format: it must not change from one release to the next.
TEST(TensorDescriptionTest, KeysAreStable) {
  EXPECT_EQ(KeyOfName(""), 0xcbf29ce484222325u);
  EXPECT_EQ(KeyOfName("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_NE(KeyOfName("dense/kernel"), KeyOfName("dense/bias"));
}

}  // namespace
}  // namespace byteps
