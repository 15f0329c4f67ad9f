// Workers on threads of their own, as the Van's I/O threads are. Worth most under the thread
// sanitizer.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cc/server/summation_service.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

constexpr int kWorkers = 3;
constexpr int kTensors = 6;
constexpr int kRounds = 40;
constexpr int kElements = 3001;

std::string TensorName(int tensor) { return "tensor " + std::to_string(tensor); }

TableEntry EntryOf(int tensor) {
  const DType dtype = tensor % 2 == 0 ? DType::kFloat32 : DType::kInt64;
  return Entry(Tensor(TensorName(tensor), dtype, {kElements}), 0, {1000, 2001});
}

std::string PayloadOf(const TableEntry& entry, int part, int worker, int round) {
  const uint64_t count = entry.parts[part].element_count;
  if (entry.tensor.dtype == DType::kFloat32) {
    return BytesOf(std::vector<float>(count, static_cast<float>(worker + round)));
  }
  return BytesOf(std::vector<int64_t>(count, worker + round));
}

std::string SumOf(const TableEntry& entry, int part, int round) {
  const int sum = kWorkers * round + kWorkers * (kWorkers - 1) / 2;
  const uint64_t count = entry.parts[part].element_count;
  if (entry.tensor.dtype == DType::kFloat32)
    return BytesOf(std::vector<float>(count, static_cast<float>(sum)));
  return BytesOf(std::vector<int64_t>(count, sum));
}

// Pushes all parts of all tensors, each worker in another order, and checks the replies, round by
// round. Returns the credit that came back.
uint64_t RunWorker(FakeWorkers* workers, int worker) {
  uint64_t credit = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 2 * kTensors; ++i) {
      const int index = (worker % 2 == 0 ? i : 2 * kTensors - 1 - i);
      const TableEntry entry = EntryOf(index / 2);
      workers->Push(entry, worker, round, PayloadOf(entry, index % 2, worker, round), index % 2);
      workers->service.OnDrained(*workers->connections[worker]);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    int replies = 0;
    while (replies < 2 * kTensors) {
      for (const SentFrame& frame : workers->connections[worker]->TakeSent()) {
        credit += frame.header.credit_bytes;
        if (frame.header.type != FrameType::kReply) continue;
        ++replies;
        EXPECT_EQ(frame.header.round, static_cast<uint64_t>(round));
        for (int tensor = 0; tensor < kTensors; ++tensor) {
          const TableEntry entry = EntryOf(tensor);
          if (entry.key != frame.header.key) continue;
          EXPECT_EQ(frame.payload, SumOf(entry, frame.header.part, round)) << "worker " << worker;
        }
      }
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "worker " << worker << " waits for round " << round;
        return credit;
      }
      std::this_thread::yield();
    }
  }
  workers->service.OnDrained(*workers->connections[worker]);
  for (const SentFrame& frame : workers->connections[worker]->TakeSent())
    credit += frame.header.credit_bytes;
  return credit;
}

TEST(SummationThreadsTest, WorkersPushAtTheSameTime) {
  FakeWorkers workers(kWorkers);
  std::vector<uint64_t> credit(kWorkers);
  std::vector<std::thread> threads;
  for (int tensor = 0; tensor < kTensors; ++tensor) workers.Add(EntryOf(tensor));
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back(
        [&workers, &credit, worker] { credit[worker] = RunWorker(&workers, worker); });
  }
  // Declarations and counters come from other threads while sums run.
  for (int i = 0; i < 50; ++i) {
    workers.Add(Entry(Tensor("late " + std::to_string(i), DType::kFloat32, {3})));
    (void)workers.service.tensor_counters();
    (void)workers.service.counters();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  const SummationCounters counters = workers.service.counters();
  EXPECT_EQ(counters.pushes, static_cast<uint64_t>(kWorkers * kRounds * kTensors * 2));
  EXPECT_EQ(counters.rounds_completed, static_cast<uint64_t>(kRounds * kTensors * 2));
  EXPECT_EQ(counters.pushed_bytes, counters.replied_bytes);
  uint64_t all_credit = 0;
  for (const uint64_t one : credit) all_credit += one;
  EXPECT_EQ(all_credit, counters.pushed_bytes) << "every byte gives its credit back once";
}

// Whatever the moment of the loss, each push gets exactly one reply.
TEST(SummationThreadsTest, AWorkerIsLostWhileOthersPush) {
  for (int repetition = 0; repetition < 20; ++repetition) {
    FakeWorkers workers(kWorkers);
    const TableEntry entry = EntryOf(0);
    workers.Add(entry);
    std::vector<std::thread> threads;
    for (int worker = 0; worker < kWorkers - 1; ++worker) {
      threads.emplace_back([&workers, &entry, worker] {
        for (int part = 0; part < 2; ++part) {
          workers.Push(entry, worker, 0, PayloadOf(entry, part, worker, 0), part);
        }
      });
    }
    workers.service.OnClosed(*workers.connections[kWorkers - 1], Unavailable("reset"));
    workers.service.OnWorkerLost(kWorkers - 1, Unavailable("worker 2 died"));
    for (std::thread& thread : threads) thread.join();
    for (int worker = 0; worker < kWorkers - 1; ++worker) {
      const std::vector<SentFrame> replies = workers.TakeReplies(worker);
      EXPECT_EQ(replies.size(), 2u);
      for (const SentFrame& reply : replies)
        EXPECT_EQ(reply.header.status, StatusCode::kUnavailable);
    }
  }
}

}  // namespace
}  // namespace byteps
