#include "cc/base/table_request.h"

#include <gtest/gtest.h>

#include <string>

#include "cc/base/testing/table_requests.h"

namespace byteps {
namespace {

Status Decode(const std::string& bytes, TableRequest* request) {
  return DecodeTableRequest(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), request);
}

TEST(TableRequestTest, SaysWhatIsAsked) {
  const std::string bytes = RequestBytes(TableRequest::Kind::kUpdate, 7, {2, 5}, {1, 2, 3, 4}, 0.5);
  TableRequest request;
  ASSERT_TRUE(Decode(bytes, &request).ok());
  EXPECT_TRUE(request.IsChange());
  EXPECT_EQ(request.number, 7u);
  EXPECT_EQ(request.rate, 0.5);
  EXPECT_EQ(request.indices, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(request.value_bytes, 16u);
  EXPECT_TRUE(CheckTableRequest(request, SomeTable()).ok());
}

TEST(TableRequestTest, ATableArrivesAsItIs) {
  TableSpec sent = SomeTable(), received;
  sent.rule.kind = RowRule::Kind::kRowWiseAdagrad;
  sent.distribution = TableSpec::Distribution::kUniform;
  sent.second = 3;
  sent.seed = 11;
  sent.dtype = DType::kFloat64;
  const std::string bytes = MakeBytes(sent);
  TableRequest request;
  ASSERT_TRUE(Decode(bytes, &request).ok());
  ASSERT_TRUE(DecodeTableSpec(request, &received).ok());
  EXPECT_TRUE(received.SameTableAs(sent));
  EXPECT_EQ(received.seed, 11u);
  EXPECT_EQ(received.ByteCount(), 8u * 3 * 8);
  EXPECT_EQ(received.RowOf(2), 7u);
}

TEST(TableRequestTest, ATableArrivesWithItsRule) {
  TableSpec sent = SomeTable(), received;
  sent.rule.kind = RowRule::Kind::kAmsgrad;
  sent.rule.first_state = 7;
  sent.rule.numbers = {1, 2, 3, 4, 5};
  std::string bytes = MakeBytes(sent);
  TableRequest request;
  ASSERT_TRUE(Decode(bytes, &request).ok());
  ASSERT_TRUE(DecodeTableSpec(request, &received).ok());
  EXPECT_TRUE(received.rule == sent.rule);
  EXPECT_EQ(received.name, "users");
  EXPECT_EQ(received.ByteCount(), 8u * (2 + 3 * 2) * 4);
  EXPECT_EQ(received.SlotBegin(3), 6u);
  // Of an AMSGrad that keeps two states.
  constexpr size_t kStatesAt = 32 + 12;
  bytes[kStatesAt] = 2;
  ASSERT_TRUE(Decode(bytes, &request).ok());
  EXPECT_FALSE(DecodeTableSpec(request, &received).ok());
}

TEST(TableRequestTest, APointArrivesBeforeItsTable) {
  const std::string bytes = ResumeBytes(SomeTable(), {7, 11});
  TableRequest request;
  ASSERT_TRUE(Decode(bytes, &request).ok());
  EXPECT_TRUE(request.Begins());
  TableSpec spec;
  TablePoint point;
  ASSERT_TRUE(DecodeTableResume(request, &spec, &point).ok());
  EXPECT_TRUE(spec.SameTableAs(SomeTable()));
  EXPECT_TRUE(point == (TablePoint{7, 11}));
  request.value_bytes = 15;
  EXPECT_FALSE(DecodeTableResume(request, &spec, &point).ok());
}

TEST(TableRequestTest, AMarkSaysToWhichCommitItsWorkerMayGoBack) {
  TableRequest request;
  uint64_t least = 0;
  const std::string bytes = MarkBytes(9, 5);
  ASSERT_TRUE(Decode(bytes, &request).ok());
  EXPECT_FALSE(request.IsChange());
  ASSERT_TRUE(DecodeTableMark(request, &least).ok());
  EXPECT_EQ(least, 5u);
  request.value_bytes = 7;
  EXPECT_FALSE(DecodeTableMark(request, &least).ok());
}

TEST(TableRequestTest, WhatIsNoRequestIsRefused) {
  const std::string whole = RequestBytes(TableRequest::Kind::kRead, 0, {1, 2});
  TableRequest request;
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(Decode(whole.substr(0, bytes), &request).ok()) << bytes;
  EXPECT_FALSE(Decode(RequestBytes(static_cast<TableRequest::Kind>(13), 0, {}), &request).ok());
  EXPECT_FALSE(Decode(RequestBytes(TableRequest::Kind::kRead, 0, {}, {}, 1, 4), &request).ok());
}

TEST(TableRequestTest, AnImpossibleTableIsRefused) {
  const auto is_possible = [](const TableSpec& spec) {
    const std::string bytes = MakeBytes(spec);
    TableRequest request;
    TableSpec decoded;
    EXPECT_TRUE(Decode(bytes, &request).ok());
    return DecodeTableSpec(request, &decoded).ok();
  };
  EXPECT_TRUE(is_possible(SomeTable()));
  TableSpec spec = SomeTable();
  spec.rows = uint64_t{1} << 60;
  EXPECT_FALSE(is_possible(spec));
  spec = SomeTable();
  spec.block = 3;
  EXPECT_FALSE(is_possible(spec));
  spec = SomeTable();
  spec.rule.numbers[0] = -1;
  EXPECT_FALSE(is_possible(spec));
}

TEST(TableRequestTest, RowsThatTheTableHasNotAreRefused) {
  const auto refusal = [](TableRequest::Kind kind, const std::vector<int64_t>& indices,
                          const std::vector<float>& values, uint32_t slot = 0) {
    const std::string bytes = RequestBytes(kind, 0, indices, values, 1, slot);
    TableRequest request;
    EXPECT_TRUE(Decode(bytes, &request).ok());
    return CheckTableRequest(request, SomeTable()).message();
  };
  EXPECT_EQ(refusal(TableRequest::Kind::kRead, {7, 0, 7}, {}), "");
  EXPECT_NE(refusal(TableRequest::Kind::kRead, {8}, {}).find("row 8"), std::string::npos);
  EXPECT_NE(refusal(TableRequest::Kind::kRead, {-1}, {}).find("row -1"), std::string::npos);
  EXPECT_NE(refusal(TableRequest::Kind::kUpdate, {2, 2}, {1, 1, 1, 1}).find("row 7 twice"),
            std::string::npos);
  EXPECT_NE(refusal(TableRequest::Kind::kUpdate, {2}, {1}).find("4 bytes"), std::string::npos);
  EXPECT_NE(refusal(TableRequest::Kind::kRead, {2}, {}, 1).find("slot 1"), std::string::npos);
}

}  // namespace
}  // namespace byteps
