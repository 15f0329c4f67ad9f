#include "cc/wire/control.h"

#include <gtest/gtest.h>

#include <iomanip>
#include <random>
#include <sstream>

#include "cc/base/sha256.h"

namespace byteps {
namespace {

TensorDescription SomeTensor(const std::string& name) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.dtype = DType::kBFloat16;
  tensor.shape = {3, 0, 7};
  tensor.kind = ExchangeKind::kBroadcast;
  tensor.root_rank = 2;
  tensor.per_host = true;
  return tensor;
}

TableEntry SomeEntry(const std::string& name) {
  TableEntry entry;
  entry.tensor = SomeTensor(name);
  entry.key = KeyOfName(name);
  entry.variant = 4;
  entry.parts = {{100, 0}, {50, 3, 2}};
  return entry;
}

std::vector<ControlMessage> OneOfEach() {
  DeclareReply reply;
  reply.request_id = 12;
  reply.results = {{OkStatus(), SomeEntry("a")}, {FailedPrecondition("same key"), TableEntry()}};
  return {DeclareRequest{11, {SomeTensor("a"), SomeTensor("b/c:0")}},
          reply,
          TableUpdate{13, {SomeEntry("x"), SomeEntry("y")}},
          TableAck{14},
          Heartbeat{{1, 7}},
          Goodbye{{1, 2}},
          PeerLost{Role::kServer, 3, "server 3 is lost"},
          JobEnded{},
          Relay{2, 0, "40321"},
          StallQuery{15, 1, 3, true, {{"a", 7, "float32[2] sum", 61}, {"b/c:0", 0, "", 60}}},
          StallAnswer{15, 0, {1, 0}, "waits for tensor \"a\""},
          StallNotice{1, "worker 1 waits for tensor \"a\""},
          LinkReport{119000000, 90000, 17000000000},
          PauseRounds{},
          RoundProgress{{{KeyOfName("a"), 3}, {KeyOfName("b"), 4}}},
          Retune{2400000, 240000, {{SomeEntry("a"), 3}, {SomeEntry("b"), 4}}},
          ArrivalReport{{{3, {7, 1, 2000, 300, 900}}, {0, {7, 0, 0, 0, 0}}}},
          Reachable{"10.0.0.6", 4711},
          ResumeQuery{{{17, 2, 5}, {18, 0, 6}}},
          ResumeAnswer{{{17, 2, 5, 4096}}},
          ServerLost{2, 1},
          PartProgress{2, {{17, 0, 5, true}, {18, 1, 0, false}}},
          PartsMoved{16, 2, {SomeEntry("a")}, {{17, 0, 5, 2}, {18, 1, 7, -1}}},
          ResultProgress{{{17, 5}, {18, 1}}},
          ServerRejoined{3, 1, "host b", "10.0.0.8", 40111, {{17, 0, 5}, {18, 1, 0}}},
          Joined{{0, 2}, 2, "worker 1 has left", {{2, 17, 5}}, {{1, 18, 6, 2}}}};
}

TEST(ControlTest, EveryMessageSurvivesARoundTrip) {
  const std::vector<ControlMessage> messages = OneOfEach();
  ASSERT_EQ(messages.size(), std::variant_size_v<ControlMessage>);
  for (const ControlMessage& sent : messages) {
    const std::string bytes = EncodeControl(sent);
    ControlMessage received;
    ASSERT_TRUE(DecodeControl(bytes, &received).ok()) << sent.index();
    EXPECT_EQ(received.index(), sent.index());
    EXPECT_EQ(EncodeControl(received), bytes);
  }
}

// Another digest is another wire: processes of two versions must refuse each other
// (docs/protocol.md rule 1).
TEST(ControlTest, TheBytesStayTheSame) {
  std::string all;
  for (const ControlMessage& message : OneOfEach()) all += EncodeControl(message);
  std::ostringstream digest;
  for (const int byte : Sha256(all))
    digest << std::hex << std::setw(2) << std::setfill('0') << byte;
  EXPECT_EQ(digest.str(), "308ca0fd8ad41b324dba19d347600e268ca52fbff643281a7b53bc9573f4fb2c");
}

TEST(ControlTest, FieldsArriveWhereTheyBelong) {
  ControlMessage received;
  ASSERT_TRUE(DecodeControl(EncodeControl(OneOfEach()[1]), &received).ok());
  const auto& reply = std::get<DeclareReply>(received);
  ASSERT_EQ(reply.results.size(), 2u);
  const TableEntry& entry = reply.results[0].entry;
  EXPECT_TRUE(entry.tensor.SameExchangeAs(SomeTensor("a")));
  EXPECT_EQ(entry.tensor.name, "a");
  EXPECT_EQ(entry.variant, 4u);
  ASSERT_EQ(entry.parts.size(), 2u);
  EXPECT_EQ(entry.parts[1].element_count, 50u);
  EXPECT_EQ(entry.parts[1].server, 3);
  EXPECT_EQ(entry.parts[1].version, 2u);
  EXPECT_EQ(reply.results[1].status.message(), "same key");
}

TEST(ControlTest, RefusesEveryTruncationAndTrailingBytes) {
  for (const ControlMessage& message : OneOfEach()) {
    const std::string bytes = EncodeControl(message);
    ControlMessage received;
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(DecodeControl(bytes.substr(0, length), &received).ok())
          << message.index() << " at " << length;
    }
    EXPECT_FALSE(DecodeControl(bytes + '\0', &received).ok()) << message.index();
  }
}

TEST(ControlTest, RefusesCountsThatTheMessageCannotHold) {
  std::string bytes = EncodeControl(DeclareRequest{1, {}});
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\x7f");
  ControlMessage received;
  EXPECT_FALSE(DecodeControl(bytes, &received).ok());
}

TEST(ControlTest, RandomBytesAreRefusedOrDecodedButNeverHarm) {
  std::mt19937 random(20260101);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (!bytes.empty()) bytes[0] = static_cast<char>(random() % 10);
    ControlMessage received;
    if (!DecodeControl(bytes, &received).ok()) continue;
    EXPECT_EQ(EncodeControl(received).size(), bytes.size());
  }
}

}  // namespace
}  // namespace byteps
