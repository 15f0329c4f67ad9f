#include "cc/coordinator/control_session.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace byteps {
namespace {

// Keeps what it is to send, of which as much arrives as the test wants.
class Wire : public Connection {
 public:
  void Send(OutgoingFrame frame) override { frames.push_back(std::move(frame)); }
  void Close(const Status&) override {}
  const Hello& peer() const override { return peer_; }
  const std::string& peer_name() const override { return name_; }

  std::vector<OutgoingFrame> frames;

 private:
  const Hello peer_;
  const std::string name_ = "peer at 127.0.0.1";
};

// Two sessions and the connection between them.
class ControlSessionTest : public ::testing::Test {
 protected:
  ControlSessionTest() { Connect(); }

  void Connect() {
    for (int side = 0; side < 2; ++side) {
      wires_[side] = std::make_shared<Wire>();
      sessions_[side].Attach(wires_[side]);
    }
  }
  // The first `count` frames of `from` arrive; the update ids that are to be processed.
  std::vector<uint64_t> Arrive(int from, size_t count) {
    std::vector<uint64_t> ids;
    std::vector<OutgoingFrame>& frames = wires_[from]->frames;
    for (size_t i = 0; i < count; ++i) {
      bool is_new = false;
      const Status status =
          sessions_[1 - from].Receive(*wires_[1 - from], frames[i].header, &is_new);
      EXPECT_TRUE(status.ok()) << status.ToString();
      if (!is_new) continue;
      std::string bytes;
      const std::string piece(static_cast<const char*>(frames[i].payload),
                              frames[i].header.payload_bytes);
      EXPECT_LE(piece.size(), kMostPieceBytes);
      EXPECT_TRUE(
          sessions_[1 - from].Assemble(*wires_[1 - from], frames[i].header, piece, &bytes).ok());
      if (frames[i].header.element_count > 0) continue;
      ControlMessage message;
      EXPECT_TRUE(DecodeControl(bytes, &message).ok());
      if (const auto* ack = std::get_if<TableAck>(&message)) ids.push_back(ack->update_id);
      if (const auto* held = std::get_if<RoundProgress>(&message)) {
        for (size_t i = 0; i < held->tensors.size(); ++i) EXPECT_EQ(held->tensors[i].key, i);
        ids.push_back(held->tensors.size());
      }
    }
    frames.erase(frames.begin(), frames.begin() + count);
    return ids;
  }
  void Say(int side, uint64_t id) { sessions_[side].Send(TableAck{id}); }

  ControlSession sessions_[2];
  std::shared_ptr<Wire> wires_[2];
};

using Ids = std::vector<uint64_t>;

TEST_F(ControlSessionTest, WhatHasNotArrivedComesOverTheNextConnection) {
  for (const uint64_t id : {1, 2, 3}) Say(0, id);
  EXPECT_EQ(Arrive(0, 1), (Ids{1}));
  EXPECT_TRUE(sessions_[0].Detach(*wires_[0]));
  Say(0, 4);  // while there is no connection
  Connect();
  Say(0, 5);
  EXPECT_EQ(Arrive(0, wires_[0]->frames.size()), (Ids{2, 3, 4, 5}));
}

TEST_F(ControlSessionTest, WhatHasArrivedDoesNotComeTwice) {
  for (const uint64_t id : {1, 2}) Say(0, id);
  EXPECT_EQ(Arrive(0, 2), (Ids{1, 2}));  // and the sender does not know
  Connect();
  EXPECT_EQ(wires_[0]->frames.size(), 2u);
  EXPECT_EQ(Arrive(0, 2), Ids());
}

TEST_F(ControlSessionTest, WhatIsAcknowledgedIsNotSentAgain) {
  for (const uint64_t id : {1, 2}) Say(0, id);
  EXPECT_EQ(Arrive(0, 2), (Ids{1, 2}));
  sessions_[1].Send(Heartbeat{});
  Arrive(1, 1);
  Connect();
  EXPECT_TRUE(wires_[0]->frames.empty());
}

TEST_F(ControlSessionTest, WhatComesOverAReplacedConnectionIsNotProcessed) {
  Say(0, 1);
  const OutgoingFrame late = wires_[0]->frames[0];
  const std::shared_ptr<Wire> replaced = wires_[1];
  Connect();
  bool is_new = true;
  EXPECT_TRUE(sessions_[1].Receive(*replaced, late.header, &is_new).ok());
  EXPECT_FALSE(is_new);
  EXPECT_FALSE(sessions_[1].Detach(*replaced));
  EXPECT_EQ(Arrive(0, 1), (Ids{1}));
}

RoundProgress LongMessage() {
  RoundProgress held;
  for (uint64_t key = 0; key < 200000; ++key) held.tensors.push_back({key, 1});
  return held;
}

TEST_F(ControlSessionTest, ALongMessageGoesInPiecesAndHeartbeatsBetweenThem) {
  Say(0, 1);
  sessions_[0].Send(LongMessage());
  Say(0, 2);
  EXPECT_EQ(wires_[0]->frames.size(), 6u) << "3.2 MB";
  EXPECT_EQ(Arrive(0, 3), (Ids{1}));
  std::vector<OutgoingFrame> rest = std::exchange(wires_[0]->frames, {});
  sessions_[0].Send(Heartbeat{});
  EXPECT_EQ(Arrive(0, 1), Ids());
  wires_[0]->frames = std::move(rest);
  EXPECT_EQ(Arrive(0, 3), (Ids{200000, 2}));
}

TEST_F(ControlSessionTest, TheRestOfALongMessageComesOverTheNextConnection) {
  sessions_[0].Send(LongMessage());
  EXPECT_EQ(Arrive(0, 2), Ids());
  Connect();
  EXPECT_EQ(Arrive(0, wires_[0]->frames.size()), (Ids{200000}));
}

TEST_F(ControlSessionTest, AMessageWithoutEndIsRefused) {
  FrameHeader header;
  header.round = 1;
  header.element_count = kMostMessageBytes;
  std::string message;
  EXPECT_EQ(sessions_[0].Assemble(*wires_[0], header, "piece", &message).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(ControlSessionTest, AGapAndAnAcknowledgementOfTheFutureAreRefused) {
  FrameHeader header;
  bool is_new = false;
  header.round = 2;
  EXPECT_EQ(sessions_[0].Receive(*wires_[0], header, &is_new).code(), StatusCode::kInvalidArgument);
  header.round = 1;
  header.watermark = 1;
  EXPECT_EQ(sessions_[0].Receive(*wires_[0], header, &is_new).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace byteps
