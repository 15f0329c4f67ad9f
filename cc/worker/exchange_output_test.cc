// The bytes of an alltoall: what is sent of a worker's rows, and where what comes is put.
#include "cc/worker/exchange_output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace byteps {
namespace {

std::string BytesOf(const std::vector<int64_t>& counts) {
  return {reinterpret_cast<const char*>(counts.data()), counts.size() * sizeof(int64_t)};
}

// Three workers; this one, at some place among them, has one row for the first, two for the second
// and three for the third. A row has two bytes.
class AllToAllBytesTest : public ::testing::TestWithParam<size_t> {
 protected:
  static constexpr int32_t kWorkers = 3;
  static constexpr size_t kRowBytes = 2;

  AllToAllBytesTest() {
    ExchangeRequest request;
    request.tensor.name = "t";
    request.tensor.dtype = DType::kUInt8;
    request.tensor.shape = {-1, kRowBytes};
    request.tensor.kind = ExchangeKind::kAllToAll;
    request.gather_rows = 6;
    request.splits = {1, 2, 3};
    request.input = input_.data();
    request.allocate_output = [this](const std::vector<int64_t>& rows) -> void* {
      rows_ = rows;
      int64_t total = 0;
      for (const int64_t each : rows) total += each;
      output_.assign(total * kRowBytes, '?');
      return output_.data();
    };
    exchange_ = std::make_shared<ExchangeWithOutput>(std::move(request));
    exchange_->KeepOwnRows(GetParam());
    TableEntry entry;
    entry.tensor = exchange_->request.tensor;
    entry.parts.push_back({0, 0});
    exchange_->Place(std::make_shared<TableEntry>(entry), {});
  }

  // What is sent from byte `offset` on.
  std::string Pushed(uint64_t offset) const {
    OutgoingFrame frame = exchange_->PushFrame(exchange_, 0, 0, 0, offset);
    PreparePush(*exchange_, &frame);
    if (frame.header.payload_bytes == 0) return "";
    return {static_cast<const char*>(WholePayload(frame)), frame.header.payload_bytes};
  }

  // Receives a reply in pieces of so many bytes.
  Status Receive(const std::string& reply, size_t at_once) const {
    RowsSink sink(exchange_, kWorkers, reply.size());
    size_t received = 0;
    while (received < reply.size()) {
      const PayloadSink::Span span = sink.Prepare(reply.size() - received);
      const size_t bytes = std::min({span.bytes, at_once, reply.size() - received});
      std::memcpy(span.data, reply.data() + received, bytes);
      received += bytes;
      sink.Commit(bytes);
    }
    return sink.status();
  }

  const std::string rows_for_[kWorkers] = {"aA", "bBcC", "dDeEfF"};
  const std::string input_ = "aAbBcCdDeEfF";
  std::vector<int64_t> rows_;
  std::string output_;
  std::shared_ptr<ExchangeWithOutput> exchange_;
};

// Protocol rule 5. A push may go on in the middle.
TEST_P(AllToAllBytesTest, OwnRowsAreNotSent) {
  std::vector<int64_t> splits = {1, 2, 3};
  splits[GetParam()] = 0;
  std::string expected = BytesOf(splits);
  for (size_t place = 0; place < kWorkers; ++place)
    if (place != GetParam()) expected += rows_for_[place];
  for (size_t offset = 0; offset <= expected.size(); ++offset)
    EXPECT_EQ(Pushed(offset), expected.substr(offset)) << offset;
  const OutgoingFrame frame = exchange_->PushFrame(exchange_, 0, 0, 0);
  EXPECT_EQ(frame.header.row_count, 6 - (GetParam() + 1));
  EXPECT_EQ(frame.header.element_count, kRowBytes * (6 - (GetParam() + 1)));
  EXPECT_EQ(input_, "aAbBcCdDeEfF");
}

TEST_P(AllToAllBytesTest, OwnRowsComeBetweenThoseOfTheOthers) {
  const std::string others[] = {"uvwx", "", "yz"};
  std::vector<int64_t> sent, received;
  std::string reply, expected;
  for (size_t place = 0; place < kWorkers; ++place) {
    const bool is_own = place == GetParam();
    const std::string& rows = is_own ? rows_for_[place] : others[place];
    received.push_back(rows.size() / kRowBytes);
    sent.push_back(is_own ? 0 : received.back());
    if (!is_own) reply += rows;
    expected += rows;
  }
  reply.insert(0, BytesOf(sent));
  // It may come again, after its connection was lost.
  for (const size_t at_once : {size_t{1}, size_t{3}, size_t{8}, reply.size()}) {
    const Status status = Receive(reply, at_once);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(rows_, received);
    EXPECT_EQ(output_, expected) << at_once;
  }
  EXPECT_EQ(input_, "aAbBcCdDeEfF");
}

// Its memory may be somebody else's by then.
TEST_P(AllToAllBytesTest, NothingIsWrittenAfterTheEnd) {
  exchange_->CloseOutput();
  std::vector<int64_t> sent = {1, 1, 1};
  sent[GetParam()] = 0;
  EXPECT_TRUE(Receive(BytesOf(sent) + "uvwx", 5).ok());
  EXPECT_TRUE(rows_.empty());
}

TEST_P(AllToAllBytesTest, RowsThatHaveNotBeenSentAreRefused) {
  const Status status = Receive(BytesOf({1, 1, 1}) + "uvwxyz", 64);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("1 rows of this worker's own"), std::string::npos)
      << status.message();
  EXPECT_TRUE(rows_.empty());
}

INSTANTIATE_TEST_SUITE_P(Places, AllToAllBytesTest, ::testing::Values(0, 1, 2));

}  // namespace
}  // namespace byteps
