// A worker pushes next what its server asks for.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/testing/scripted_server.h"
#include "cc/worker/worker.h"

namespace byteps {
namespace {

constexpr uint32_t kParts = 8;
constexpr uint64_t kPartBytes = 1024;

OutgoingFrame Frame(FrameType type, const FrameHeader& push) {
  OutgoingFrame frame;
  frame.header.type = type;
  frame.header.epoch = push.epoch;
  frame.header.key = push.key;
  frame.header.part = push.part;
  frame.header.variant = push.variant;
  frame.header.round = push.round;
  frame.header.placement_version = push.placement_version;
  frame.header.worker = push.worker;
  return frame;
}

// Asks for a part of a round when another has arrived.
struct Question {
  uint64_t after_round;
  uint32_t after_part;
  uint64_t round;
  uint32_t part;
};

class WantedPartsTest : public ::testing::Test {
 protected:
  WantedPartsTest() : server_([this](auto&&... arguments) { OnPush(arguments...); }) {}

  // The order in which a worker pushes the parts of two rounds. One is in flight at a time.
  std::vector<std::vector<uint32_t>> Order(std::vector<Question> questions) {
    questions_ = std::move(questions);
    EngineOptions options;
    options.timeouts.operation_timeout = 10;
    options.network.connections_per_server = 1;
    options.flow.part_bytes = options.flow.credit_bytes = kPartBytes;
    Worker worker(server_.StartJob(options), 0);
    EXPECT_TRUE(worker.Start().ok());
    std::vector<float> input(kParts * kPartBytes / sizeof(float), 1), output(input.size());
    for (int round = 0; round < 2; ++round) {
      std::promise<Status> done;
      ExchangeRequest request;
      request.tensor.name = "t";
      request.tensor.shape = {static_cast<int64_t>(input.size())};
      request.input = input.data();
      request.output = output.data();
      request.done = [&](const Status& status) { done.set_value(status); };
      worker.Enqueue(std::move(request));
      const Status status = done.get_future().get();
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    worker.Stop();
    std::lock_guard<std::mutex> lock(mutex_);
    return order_;
  }

 private:
  void OnPush(Connection& connection, const FrameHeader& push,
              const std::shared_ptr<std::string>& payload) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      order_.resize(push.round + 1);
      order_[push.round].push_back(push.part);
    }
    for (const Question& question : questions_) {
      if (question.after_round != push.round || question.after_part != push.part) continue;
      OutgoingFrame wanted = Frame(FrameType::kWanted, push);
      wanted.header.round = question.round;
      wanted.header.part = question.part;
      connection.Send(std::move(wanted));
    }
    OutgoingFrame reply = Frame(FrameType::kReply, push);
    reply.header.element_count = push.element_count;
    reply.header.credit_bytes = reply.header.payload_bytes = payload->size();
    reply.payload = payload->data();
    reply.keep_alive = payload;
    connection.Send(std::move(reply));
  }

  std::vector<Question> questions_;
  std::mutex mutex_;
  std::vector<std::vector<uint32_t>> order_;  // by round
  ScriptedServer server_;
};

TEST_F(WantedPartsTest, InOrderIfNobodyAsks) {
  const std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(Order({}), (std::vector<std::vector<uint32_t>>{all, all}));
}

TEST_F(WantedPartsTest, PartsThatWaitGoNext) {
  const auto order = Order({{0, 0, 0, 6}, {0, 0, 0, 4}, {0, 6, 0, 5}});
  EXPECT_EQ(order[0], (std::vector<uint32_t>{0, 6, 4, 5, 1, 2, 3, 7}));
}

TEST_F(WantedPartsTest, PartsOfTheNextRoundGoFirstInIt) {
  const auto order = Order({{0, 2, 1, 6}, {0, 7, 1, 3}});
  EXPECT_EQ(order[1], (std::vector<uint32_t>{6, 3, 0, 1, 2, 4, 5, 7}));
}

TEST_F(WantedPartsTest, WhatIsNotThereIsNoMatter) {
  const auto order = Order({{0, 3, 0, 1}, {0, 3, 0, UINT32_MAX}, {0, 3, 9, 2}, {1, 0, 0, 5}});
  const std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(order, (std::vector<std::vector<uint32_t>>{all, all}));
}

}  // namespace
}  // namespace byteps
