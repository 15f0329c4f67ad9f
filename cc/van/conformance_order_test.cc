// In which order every Van must send the frames that wait, see van/van.h: by priority, without
// those that are revoked.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/van/testing/conformance.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

using namespace std::chrono_literals;

TEST_P(VanConformanceTest, EqualPrioritiesKeepTheirOrderFromEveryThread) {
  const auto connection = Connect();
  constexpr int kThreads = 4;
  constexpr int kFrames = 200;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kFrames; ++i)
        connection->Send(PushFrame(thread * 1000 + i, Pattern(i * 37, thread)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(ServerReceived(kThreads * kFrames));
  std::vector<uint32_t> next(kThreads, 0);
  for (const Received& received : server_.received_) {
    const uint32_t thread = received.header.part / 1000;
    ASSERT_EQ(received.header.part % 1000, next[thread]++);
    ASSERT_EQ(received.payload, Pattern(received.header.part % 1000 * 37, thread));
  }
}

// In spite of the kernel's buffers (protocol rule 14).
TEST_P(VanConformanceTest, HigherPriorityOvertakesWhatStillWaits) {
  // The receiver holds still until everything has been queued, so that most of it has to wait. It
  // may be at the gate for the last frame when the test is already over.
  const auto gate = PutGateBeforeServer();
  const auto connection = Connect();
  {
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < 40; ++part)
      connection->Send(PushFrame(part, Pattern(2000000, 0), 0));
    connection->Send(PushFrame(1000, Pattern(1000, 0), 5));
  }
  ASSERT_TRUE(ServerReceived(41));
  size_t position = 0;
  while (server_.received_[position].header.part != 1000) ++position;
  EXPECT_LT(position, 20u) << "the frame of highest priority came as number " << position;
}

// However much its process has to say; long messages are no exception (protocol rule 20).
TEST_P(VanConformanceTest, ASignOfLifeOvertakesAll) {
  if (GetParam().by_rdma) GTEST_SKIP() << "control frames go over TCP";
  const auto gate = PutGateBeforeServer();
  const auto connection = Connect();
  const auto control = [](uint32_t part, size_t bytes) {
    OutgoingFrame frame = PushFrame(part, Pattern(bytes, 0));
    frame.header.type = FrameType::kControl;
    return frame;
  };
  constexpr uint32_t kFrames = 40;
  {
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < kFrames; ++part) connection->Send(control(part, 2000000));
    OutgoingFrame beat = control(kFrames, 10);
    beat.is_sign_of_life = true;
    connection->Send(std::move(beat));
  }
  ASSERT_TRUE(ServerReceived(kFrames + 1));
  size_t position = 0;
  while (server_.received_[position].header.part != kFrames) ++position;
  EXPECT_LT(position, kFrames / 2);
}

// Its I/O thread is in a long call; the peer says something, or it does not.
TEST_P(VanConformanceTest, WhatWaitsToBeReadHasBeenHeard) {
  if (GetParam().by_rdma) GTEST_SKIP() << "heartbeats go over TCP";
  const auto gate = PutGateBeforeServer();
  const auto connection = Connect();
  ASSERT_TRUE(server_.Wait([&] { return server_.opened_.size() == 1; }));
  const std::shared_ptr<Connection> at_server = server_.opened_[0];
  const auto is_heard_after = [&](int64_t begin_ns) {
    return at_server->last_heard_ns() >= begin_ns;
  };
  int64_t begin_ns = 0;
  {
    std::lock_guard<std::mutex> lock(*gate);
    connection->Send(PushFrame(1, {}));
    ASSERT_TRUE(ServerReceived(1));
    EXPECT_GT(at_server->last_heard_ns(), 0);
    std::this_thread::sleep_for(10ms);
    begin_ns = MonotonicNanos();
    EXPECT_FALSE(is_heard_after(begin_ns)) << "nothing has come meanwhile";
    connection->Send(PushFrame(2, {}));
    for (int i = 0; i < 10000 && !is_heard_after(begin_ns); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(is_heard_after(begin_ns));
  }
  ASSERT_TRUE(ServerReceived(2));
}

TEST_P(VanConformanceTest, WhatIsRevokedBeforeItLeavesNeverArrives) {
  constexpr uint32_t kFrames = 40;
  constexpr size_t kBytes = 2000000;
  const auto gate = PutGateBeforeServer();
  const auto connection = Connect();
  const int owner = 0;
  std::vector<std::shared_ptr<const void>> dropped;
  uint64_t revoked = 0;
  {
    // The receiver holds still.
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < kFrames; ++part) {
      OutgoingFrame frame = PushFrame(part, Pattern(kBytes, 0));
      if (part % 2 == 1) frame.owner = &owner;
      connection->Send(std::move(frame));
    }
    revoked = connection->Revoke(&owner, &dropped);
    connection->Send(PushFrame(kFrames, Pattern(10, 0)));
  }
  EXPECT_GE(dropped.size(), kFrames / 4);
  EXPECT_EQ(revoked, dropped.size() * kBytes);
  const size_t left = kFrames + 1 - dropped.size();
  ASSERT_TRUE(ServerReceived(left));
  EXPECT_EQ(server_.received_.back().header.part, kFrames);
  uint32_t even = 0;
  for (const Received& received : server_.received_)
    even += received.header.part < kFrames && received.header.part % 2 == 0 ? 1 : 0;
  EXPECT_EQ(even, kFrames / 2);
  EXPECT_EQ(connection->Revoke(&owner, &dropped), 0u);
}

// A payload is long, and has begun to leave.
TEST_P(VanConformanceTest, WhatIsUrgentNeedNotWaitForTheEndOfWhatIsLong) {
  auto gate = std::make_shared<std::mutex>();
  class Gated : public CollectingSink {
   public:
    explicit Gated(std::shared_ptr<std::mutex> gate) : CollectingSink(65536), gate_(gate) {}
    Span Prepare(uint64_t remaining) override {
      std::lock_guard<std::mutex> lock(*gate_);
      return CollectingSink::Prepare(remaining);
    }

   private:
    const std::shared_ptr<std::mutex> gate_;
  };
  server_.new_sink_ = [gate] { return std::make_shared<Gated>(gate); };
  const auto connection = Connect();
  const std::vector<std::vector<uint8_t>> payloads = {Pattern(40 << 20, 1), Pattern(3 << 20, 2),
                                                      Pattern(600000, 3), Pattern(10, 4),
                                                      Pattern(700000, 5)};
  const std::vector<int32_t> priorities = {0, 1, 2, 3, 1};
  {
    // The receiver holds still.
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < payloads.size(); ++part) {
      connection->Send(PushFrame(part, payloads[part], priorities[part]));
      std::this_thread::sleep_for(50ms);
    }
  }
  ASSERT_TRUE(ServerReceived(payloads.size()));
  // Of the others more may have begun when a more urgent one came.
  EXPECT_EQ(server_.received_.back().header.part, 0u);
  for (const Received& received : server_.received_)
    EXPECT_EQ(received.payload, payloads[received.header.part]) << received.header.part;
}

// Each more urgent than the one before, and all long.
TEST_P(VanConformanceTest, ManyLongFramesMayHaveBegun) {
  constexpr uint32_t kFrames = 100;
  const auto connection = Connect();
  for (uint32_t part = 0; part < kFrames; ++part) {
    connection->Send(PushFrame(part, Pattern(600000, part), static_cast<int32_t>(part)));
    if (part % 8 == 0) std::this_thread::sleep_for(1ms);
  }
  ASSERT_TRUE(ServerReceived(kFrames));
  for (const Received& received : server_.received_)
    ASSERT_EQ(received.payload, Pattern(600000, received.header.part)) << received.header.part;
}

INSTANTIATE_TEST_SUITE_P(AllVans, VanConformanceTest, kVans, kVanName);
INSTANTIATE_TEST_SUITE_P(VansOfOneProcess, VanConformanceTest, kVansOfOneProcess, kVanName);

}  // namespace
}  // namespace byteps
