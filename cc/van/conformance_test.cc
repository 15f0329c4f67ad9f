// What every Van must do with frames and payloads, see van/van.h. In which order it sends them:
// conformance_order_test.cc; how its connections begin and end: conformance_connections_test.cc.
#include "cc/van/testing/conformance.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cc/van/van.h"

namespace byteps {
namespace {

using namespace std::chrono_literals;

TEST_P(VanConformanceTest, MovesPayloadsOfEverySizeUnchanged) {
  const auto connection = Connect();
  const std::vector<size_t> sizes = {0,    1,    127,  128,  4095,   4096,
                                     8063, 8064, 8065, 8192, 100000, 5000001};
  for (size_t i = 0; i < sizes.size(); ++i) connection->Send(PushFrame(i, Pattern(sizes[i], i)));
  ASSERT_TRUE(ServerReceived(sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(server_.received_[i].header.part, i);
    EXPECT_EQ(server_.received_[i].payload, Pattern(sizes[i], i)) << sizes[i];
  }
  const VanCounters counters = server_van_->counters();
  if (GetParam().reads_memory()) {
    EXPECT_GE(counters.memory_bytes_read, 5100001u);
    EXPECT_LT(counters.wire_bytes_received, 100000u);
  } else {
    EXPECT_EQ(counters.memory_bytes_read, 0u);
  }
  EXPECT_EQ(counters.rdma_bytes_received,
            GetParam().by_rdma ? counters.payload_bytes_received : 0u);
}

TEST_P(VanConformanceTest, AnswersComeBackOnTheSameConnection) {
  server_.answer_ = [](Connection& connection, const FrameHeader& header) {
    connection.Send(PushFrame(header.part + 100, Pattern(header.part * 1000, 9)));
  };
  const auto connection = Connect();
  for (uint32_t part = 0; part < 50; ++part) connection->Send(PushFrame(part, Pattern(part, 1)));
  ASSERT_TRUE(client_.Wait([&] { return client_.received_.size() == 50; }));
  for (uint32_t part = 0; part < 50; ++part) {
    EXPECT_EQ(client_.received_[part].header.part, part + 100);
    EXPECT_EQ(client_.received_[part].payload, Pattern(part * 1000, 9));
  }
}

// Of very different lengths, so that pieces of the wire begin and end anywhere in them.
TEST_P(VanConformanceTest, APayloadMayLieInSeveralPlaces) {
  const auto connection = Connect();
  const std::vector<std::vector<size_t>> cases = {{1},
                                                  {100, 100000},
                                                  {524288, 524288, 1},
                                                  {1, 3000000, 2, 70000, 600000},
                                                  std::vector<size_t>(1000, 777)};
  std::vector<std::vector<uint8_t>> wholes;
  for (uint32_t part = 0; part < cases.size(); ++part) {
    const auto scattered = std::make_shared<ScatteredPayload>();
    std::vector<uint8_t> whole;
    for (const size_t bytes : cases[part]) {
      const auto piece = std::make_shared<const std::vector<uint8_t>>(Pattern(bytes, whole.size()));
      scattered->Add(piece->data(), piece->size(), piece);
      whole.insert(whole.end(), piece->begin(), piece->end());
    }
    OutgoingFrame frame = PushFrame(part, {}, /*priority=*/part % 3);
    frame.header.payload_bytes = whole.size();
    frame.scattered = scattered.get();
    frame.keep_alive = scattered;
    connection->Send(std::move(frame));
    wholes.push_back(std::move(whole));
  }
  ASSERT_TRUE(ServerReceived(cases.size()));
  for (const Received& received : server_.received_)
    EXPECT_EQ(received.payload, wholes[received.header.part]) << received.header.part;
}

TEST_P(VanConformanceTest, DropsPayloadsWithoutASink) {
  server_.drop_part_ = 7;
  const auto connection = Connect();
  connection->Send(PushFrame(7, Pattern(300000, 1)));
  connection->Send(PushFrame(8, Pattern(300000, 2)));
  ASSERT_TRUE(ServerReceived(2));
  EXPECT_TRUE(server_.received_[0].payload.empty());
  EXPECT_EQ(server_.received_[1].payload, Pattern(300000, 2));
}

TEST_P(VanConformanceTest, DrainedFollowsTheLastFrame) {
  const auto connection = Connect();
  for (uint32_t part = 0; part < 100; ++part) connection->Send(PushFrame(part, Pattern(50000, 1)));
  ASSERT_TRUE(server_.Wait(
      [&] { return !server_.drained_after_.empty() && server_.drained_after_.back() == 100; }));
}

TEST_P(VanConformanceTest, KeepAliveIsDroppedOnceSent) {
  const auto connection = Connect();
  auto payload = std::make_shared<std::vector<uint8_t>>(Pattern(3000000, 1));
  OutgoingFrame frame = PushFrame(0, {});
  frame.header.payload_bytes = payload->size();
  frame.payload = payload->data();
  frame.keep_alive = payload;
  const std::weak_ptr<std::vector<uint8_t>> watch = payload;
  payload.reset();
  connection->Send(std::move(frame));
  ASSERT_TRUE(ServerReceived(1));
  for (int i = 0; i < 200 && !watch.expired(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(watch.expired());
}

TEST_P(VanConformanceTest, CountsFramesAndBytes) {
  const auto connection = Connect();
  connection->Send(PushFrame(0, Pattern(1000, 0)));
  connection->Send(PushFrame(1, {}));
  ASSERT_TRUE(ServerReceived(2));
  EXPECT_EQ(client_van_->counters().frames_sent, 2u);
  EXPECT_EQ(client_van_->counters().payload_bytes_sent, 1000u);
  EXPECT_EQ(server_van_->counters().frames_received, 2u);
  EXPECT_EQ(server_van_->counters().payload_bytes_received, 1000u);
  EXPECT_EQ(server_van_->counters().wire_bytes_received, client_van_->counters().wire_bytes_sent);
}

INSTANTIATE_TEST_SUITE_P(AllVans, VanConformanceTest, kVans, kVanName);
INSTANTIATE_TEST_SUITE_P(VansOfOneProcess, VanConformanceTest, kVansOfOneProcess, kVanName);

}  // namespace
}  // namespace byteps
