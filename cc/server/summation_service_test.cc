// What the service computes and counts when all goes well.
#include "cc/server/summation_service.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/server/buffer.h"
#include "cc/server/testing/fake_workers.h"
#include "cc/sum/sum.h"

namespace byteps {
namespace {

// Small whole numbers, exact in every dtype, as bytes of that dtype.
std::string Numbers(DType dtype, const std::vector<int>& numbers) {
  std::string bytes(numbers.size() * DTypeSize(dtype), '\0');
  for (size_t i = 0; i < numbers.size(); ++i) {
    char* place = &bytes[i * DTypeSize(dtype)];
    const auto put = [&](auto value) { std::memcpy(place, &value, sizeof(value)); };
    const float as_float = static_cast<float>(numbers[i]);
    switch (dtype) {
      case DType::kFloat32: put(as_float); break;
      case DType::kFloat64: put(static_cast<double>(numbers[i])); break;
      case DType::kFloat16:
      case DType::kBFloat16:
        ActiveSumKernels().finish(dtype, place, &as_float, 1, 1);  // has a test of its own
        break;
      case DType::kInt8: put(static_cast<int8_t>(numbers[i])); break;
      case DType::kUInt8: put(static_cast<uint8_t>(numbers[i])); break;
      case DType::kInt32: put(static_cast<int32_t>(numbers[i])); break;
      case DType::kInt64: put(static_cast<int64_t>(numbers[i])); break;
    }
  }
  return bytes;
}

// Element i of what `worker` sends in `round`.
int NumberOf(int worker, int round, int i) { return (i * (worker + 1) + round) % 11; }

std::vector<int> NumbersOf(int worker, int round, int count) {
  std::vector<int> numbers(count);
  for (int i = 0; i < count; ++i) numbers[i] = NumberOf(worker, round, i);
  return numbers;
}

TEST(SummationServiceTest, SumsEveryDTypeForOneToThreeWorkersWhosePushesInterleave) {
  for (int dtype_index = 0; dtype_index < kDTypeCount; ++dtype_index) {
    const DType dtype = static_cast<DType>(dtype_index);
    for (int num_workers = 1; num_workers <= 3; ++num_workers) {
      for (const int count : {1, 7, 1000, 40000}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " workers " + std::to_string(num_workers) +
                     " elements " + std::to_string(count));
        FakeWorkers workers(num_workers);
        const TableEntry entry = Entry(Tensor("t", dtype, {count}));
        workers.Add(entry);
        for (int round = 0; round < 3; ++round) {
          std::vector<FakePush> pushes;
          std::vector<int> sums(count, 0);
          for (int worker = 0; worker < num_workers; ++worker) {
            const std::vector<int> numbers = NumbersOf(worker, round, count);
            for (int i = 0; i < count; ++i) sums[i] += numbers[i];
            pushes.push_back(workers.NewPush(entry, worker, round, Numbers(dtype, numbers)));
            ASSERT_TRUE(pushes.back().Begin().ok());
          }
          // Turns of different and odd lengths: the lead changes, and elements are cut.
          for (int turn = 0; turn < 12; ++turn) {
            const int worker = (turn * 7 + round) % num_workers;
            pushes[worker].Feed(1 + (turn * 7919) % 5003);
          }
          for (int worker = num_workers - 1; worker >= 0; --worker)
            ASSERT_TRUE(pushes[worker].End().ok());
          for (int worker = 0; worker < num_workers; ++worker) {
            const SentFrame reply = workers.TakeReply(worker);
            EXPECT_EQ(reply.header.status, StatusCode::kOk) << reply.payload;
            ASSERT_EQ(reply.payload, Numbers(dtype, sums)) << "round " << round;
          }
        }
      }
    }
  }
}

TEST(SummationServiceTest, MinAndMax) {
  for (const ExchangeKind kind : {ExchangeKind::kMin, ExchangeKind::kMax}) {
    FakeWorkers workers(2);
    const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {3}, kind));
    workers.Add(entry);
    workers.Push(entry, 1, 0, BytesOf<float>({1, -5, NAN}));
    workers.Push(entry, 0, 0, BytesOf<float>({2, -7, 1}));
    const std::vector<float> result = workers.TakeReply(0).values<float>();
    ASSERT_EQ(result.size(), 3u);
    EXPECT_EQ(result[0], kind == ExchangeKind::kMin ? 1 : 2);
    EXPECT_EQ(result[1], kind == ExchangeKind::kMin ? -7 : -5);
    EXPECT_TRUE(std::isnan(result[2]));
  }
}

TEST(SummationServiceTest, ProductsOfHalfsAreOfFloat32) {
  FakeWorkers workers(3);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat16, {2}, ExchangeKind::kProduct));
  workers.Add(entry);
  // 256, 256 and 2^-8; 1, -2 and 0.5: the first two of the former are more than a float16 holds.
  workers.Push(entry, 2, 0, BytesOf<uint16_t>({0x5c00, 0x3c00}));
  workers.Push(entry, 0, 0, BytesOf<uint16_t>({0x5c00, 0xc000}));
  workers.Push(entry, 1, 0, BytesOf<uint16_t>({0x1c00, 0x3800}));
  EXPECT_EQ(workers.TakeReply(0).payload, BytesOf<uint16_t>({0x5c00, 0xbc00}));
}

// 40000 + 40000 is more than a float16 holds, their average is not: summed and divided in float32.
TEST(SummationServiceTest, AveragesHalfsInFloat32) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    FakeWorkers workers(2);
    TensorDescription tensor = Tensor("t", dtype, {5});
    tensor.average = true;
    const TableEntry entry = Entry(tensor);
    workers.Add(entry);
    for (int round = 0; round < 2; ++round) {
      const std::string payload = Numbers(dtype, {40000, 40000, 2, 2, 0});
      for (int worker = 0; worker < 2; ++worker) workers.Push(entry, worker, round, payload);
      EXPECT_EQ(workers.TakeReply(0).payload, payload);
      EXPECT_EQ(workers.TakeReply(1).payload, payload);
    }
  }
}

// What a reply says by itself (protocol rule 2).
TEST(SummationServiceTest, ReplyHeaders) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {5}), 0, {3, 2});
  workers.Add(entry);
  for (uint64_t round = 0; round < 3; ++round) {
    workers.Push(entry, 1, round, BytesOf<float>({1, 2}), 1);
    EXPECT_TRUE(workers.TakeReplies(1).empty());
    workers.Push(entry, 0, round, BytesOf<float>({3, 4}), 1);
    for (int worker = 0; worker < 2; ++worker) {
      const FrameHeader header = workers.TakeReply(worker).header;
      EXPECT_EQ(header.type, FrameType::kReply);
      EXPECT_EQ(header.epoch, kTestEpoch);
      EXPECT_EQ(header.key, entry.key);
      EXPECT_EQ(header.part, 1u);
      EXPECT_EQ(header.variant, 0u);
      EXPECT_EQ(header.round, round);
      EXPECT_EQ(header.placement_version, kTestPlacement);
      EXPECT_EQ(header.worker, worker);
      EXPECT_EQ(header.priority, 100 + worker);
      EXPECT_EQ(header.element_count, 2u);
      EXPECT_EQ(header.payload_bytes, 8u);
      EXPECT_EQ(header.watermark, round) << "who pushes a round has the results of all before";
      EXPECT_GT(header.begin_time_ns, 0);
      EXPECT_GE(header.receive_time_ns, header.begin_time_ns);
      EXPECT_GE(header.send_time_ns, header.receive_time_ns);
    }
  }
}

// A slow reader of round r must still find its values after round r + 1 has been summed.
TEST(SummationServiceTest, AFinishedRoundStaysWhileTheNextIsSummed) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    FakeWorkers workers(2);
    const TableEntry entry = Entry(Tensor("t", dtype, {100}));
    workers.Add(entry);
    std::vector<std::vector<SentFrame>> held;
    for (int round = 0; round < 20; ++round) {
      workers.Push(entry, 0, round, Numbers(dtype, NumbersOf(0, round, 100)));
      workers.Push(entry, 1, round, Numbers(dtype, NumbersOf(1, round, 100)));
      if (!held.empty())
        held.erase(held.begin());  // a round is released only after the next one is complete
      held.push_back(workers.TakeReplies(0));
      held.back().push_back(workers.TakeReply(1));
      for (const SentFrame& reply : held.back()) {
        const char* now = static_cast<const char*>(reply.original.payload);
        EXPECT_EQ(std::string(now, reply.payload.size()), reply.payload);
      }
    }
    const uint64_t wire_bytes = 100 * DTypeSize(dtype);
    const uint64_t accumulator_bytes = dtype == DType::kFloat16 ? 400 : 0;
    EXPECT_LE(workers.service.counters().accumulator_bytes, 2 * wire_bytes + accumulator_bytes);
  }
}

// A sender that never lets go of what it has sent must not eat all memory.
TEST(SummationServiceTest, TooManyRoundsThatAreStillBeingSentAreAnError) {
  FakeWorkers workers(1);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {4}));
  workers.Add(entry);
  std::vector<SentFrame> held;
  uint64_t round = 0;
  for (; round < BufferPool::kMostBuffers; ++round) {
    workers.Push(entry, 0, round, BytesOf<float>({1, 2, 3, 4}));
    held.push_back(workers.TakeReply(0));
    EXPECT_EQ(held.back().header.status, StatusCode::kOk);
  }
  workers.Push(entry, 0, round++, BytesOf<float>({1, 2, 3, 4}));
  EXPECT_EQ(workers.TakeReply(0).header.status, StatusCode::kInternal);
  held.clear();
  EXPECT_LE(workers.service.counters().accumulator_bytes, BufferPool::kKeptBuffers * 16);
  workers.Push(entry, 0, round, BytesOf<float>({1, 2, 3, 4}));
  EXPECT_EQ(workers.TakeReply(0).header.status, StatusCode::kOk);
}

TEST(SummationServiceTest, BroadcastSendsTheRootsValueOnly) {
  FakeWorkers workers(3);
  TensorDescription tensor = Tensor("t", DType::kFloat32, {2}, ExchangeKind::kBroadcast);
  tensor.root_rank = 1;
  const TableEntry entry = Entry(tensor);
  workers.Add(entry);
  for (int round = 0; round < 3; ++round) {
    const float number = static_cast<float>(round);
    workers.Push(entry, 0, round, "");
    workers.Push(entry, 1, round, BytesOf<float>({number, NAN}));
    EXPECT_TRUE(workers.TakeReplies(0).empty()) << "worker 2 has not come yet";
    workers.Push(entry, 2, round, "");
    for (const int worker : {0, 2}) {
      const SentFrame reply = workers.TakeReply(worker);
      EXPECT_EQ(reply.payload, BytesOf<float>({number, NAN}));
      EXPECT_EQ(reply.header.element_count, 2u);
    }
    const SentFrame to_root = workers.TakeReply(1);
    EXPECT_EQ(to_root.header.status, StatusCode::kOk);
    EXPECT_EQ(to_root.header.payload_bytes, 0u);
  }
}

TEST(SummationServiceTest, GatherConcatenatesInRankOrder) {
  FakeWorkers workers(3);
  const TableEntry entry = Entry(Tensor("t", DType::kInt32, {-1, 2}, ExchangeKind::kGather));
  workers.Add(entry);
  for (int round = 0; round < 2; ++round) {
    workers.Push(entry, 2, round, BytesOf<int32_t>({30, 31, 32, 33}));
    workers.Push(entry, 0, round, BytesOf<int32_t>({10 + round, 11}));
    workers.Push(entry, 1, round, "");
    for (int worker = 0; worker < 3; ++worker) {
      const SentFrame reply = workers.TakeReply(worker);
      EXPECT_EQ(reply.payload,
                BytesOf<int64_t>({1, 0, 2}) + BytesOf<int32_t>({10 + round, 11, 30, 31, 32, 33}));
      EXPECT_EQ(reply.header.element_count, 6u);
    }
  }
  EXPECT_EQ(workers.service.counters().accumulator_bytes, 6u * sizeof(int64_t))
      << "a gather keeps its result, for a worker to which the reply is lost, and nothing else";
}

TEST(SummationServiceTest, GatherCountsRowsWithoutElements) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kInt32, {-1, 0}, ExchangeKind::kGather));
  workers.Add(entry);
  for (int worker = 0; worker < 2; ++worker) {
    FrameHeader header = FakeWorkers::Header(entry, worker, 0, "");
    header.row_count = 3 + worker;
    ASSERT_TRUE(workers.NewPush(header, worker).DeliverAll().ok());
  }
  EXPECT_EQ(workers.TakeReply(0).payload, BytesOf<int64_t>({3, 4}));
}

TEST(SummationServiceTest, EmptyPartsCompleteLikeOthers) {
  FakeWorkers workers(2);
  TensorDescription broadcast = Tensor("b", DType::kFloat32, {3, 0}, ExchangeKind::kBroadcast);
  const std::vector<TableEntry> entries = {Entry(Tensor("s", DType::kFloat32, {0})),
                                           Entry(Tensor("h", DType::kFloat16, {0})),
                                           Entry(broadcast)};
  for (const TableEntry& entry : entries) {
    workers.Add(entry);
    for (int round = 0; round < 3; ++round) {
      workers.Push(entry, 1, round, "");
      workers.Push(entry, 0, round, "");
      for (int worker = 0; worker < 2; ++worker) {
        const SentFrame reply = workers.TakeReply(worker);
        EXPECT_EQ(reply.header.status, StatusCode::kOk);
        EXPECT_EQ(reply.header.payload_bytes, 0u);
        EXPECT_EQ(reply.header.element_count, 0u);
      }
    }
  }
}

TEST(SummationServiceTest, LittleCreditWaitsForAReplyOrMore) {
  FakeWorkers workers(2, {}, 40);
  const TableEntry a = Entry(Tensor("a", DType::kFloat32, {4})),
                   b = Entry(Tensor("b", DType::kFloat32, {6}));
  workers.Add(a);
  workers.Add(b);
  FakeConnection& connection = *workers.connections[0];
  workers.Push(a, 0, 0, std::string(16, '\0'));
  workers.service.OnDrained(connection);
  EXPECT_TRUE(connection.TakeSent().empty());
  workers.Push(b, 0, 0, std::string(24, '\0'));
  workers.service.OnDrained(connection);
  const std::vector<SentFrame> sent = connection.TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].header.credit_bytes, 40u);
}

TEST(SummationServiceTest, CreditComesWithAReplyOrInOneFrameWhenReadingPauses) {
  FakeWorkers workers(2);
  const TableEntry a = Entry(Tensor("a", DType::kFloat32, {4})),
                   b = Entry(Tensor("b", DType::kFloat32, {6}));
  workers.Add(a);
  workers.Add(b);
  FakeConnection& connection = *workers.connections[0];
  // Worker 1 has sent nothing yet: credit must not wait for it (protocol rule 9).
  workers.Push(a, 0, 0, std::string(16, '\0'));
  workers.Push(b, 0, 0, std::string(24, '\0'));
  EXPECT_TRUE(connection.TakeSent().empty());
  workers.service.OnDrained(connection);
  std::vector<SentFrame> sent = connection.TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].header.type, FrameType::kCredit);
  EXPECT_EQ(sent[0].header.credit_bytes, 40u);
  workers.service.OnDrained(connection);
  EXPECT_TRUE(connection.TakeSent().empty()) << "credit is given once";

  // The push that completes the round gets its own credit with the reply; worker 0 has no more to
  // get.
  workers.Push(a, 1, 0, std::string(16, '\0'));
  EXPECT_EQ(workers.TakeReply(1).header.credit_bytes, 16u);
  EXPECT_EQ(workers.TakeReply(0).header.credit_bytes, 0u);
  workers.service.OnDrained(*workers.connections[1]);
  EXPECT_TRUE(workers.connections[1]->TakeSent().empty());
}

TEST(SummationServiceTest, AsksWorkersForWhatOthersHavePushedWhereALinkIdles) {
  FakeWorkers workers(3, {"a", "b", "c"}, 1, false, 2, /*asks_for_parts=*/true);
  const TableEntry a = Entry(Tensor("a", DType::kFloat32, {5}), 0, {3, 2});
  workers.Add(a);
  workers.connections[2]->idle = false;
  workers.Push(a, 0, 0, std::string(8, '\0'), 1);
  EXPECT_TRUE(workers.connections[0]->TakeSent().empty());
  EXPECT_TRUE(workers.connections[2]->TakeSent().empty()) << "a reply is in flight to it";
  const std::vector<SentFrame> sent = workers.connections[1]->TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].header.type, FrameType::kRequested);
  EXPECT_EQ(sent[0].header.key, a.key);
  EXPECT_EQ(sent[0].header.part, 1u);
  EXPECT_EQ(sent[0].header.round, 0u);
  EXPECT_EQ(sent[0].header.worker, 1);

  // Worker 1 has begun to push when worker 0 has nothing more to send; worker 2 can be asked now.
  workers.connections[2]->idle = true;
  FakePush begun = workers.NewPush(a, 1, 0, std::string(12, '\0'), 0);
  ASSERT_TRUE(begun.Begin().ok());
  workers.Push(a, 0, 0, std::string(12, '\0'), 0);
  EXPECT_TRUE(workers.connections[1]->TakeSent().empty());
  EXPECT_EQ(workers.connections[2]->TakeSent().size(), 1u);
}

TEST(SummationServiceTest, GivesMemoryBackOnceAllHaveTheResults) {
  FakeWorkers workers(2);
  const TableEntry a = Entry(Tensor("a", DType::kFloat16, {5}), 0, {3, 2});
  workers.Add(a);
  const auto push_all = [&](uint64_t round) {
    for (int worker = 0; worker < 2; ++worker) {
      workers.Push(a, worker, round, std::string(6, '\0'), 0);
      workers.Push(a, worker, round, std::string(4, '\0'), 1);
    }
    for (int worker = 0; worker < 2; ++worker)
      EXPECT_EQ(workers.TakeReplies(worker).size(), 2u) << "round " << round;
  };
  push_all(0);
  push_all(1);
  EXPECT_GT(workers.service.counters().accumulator_bytes, 0u);
  workers.service.OnResultProgress({{a.key, 1}, {99, 7}});
  EXPECT_GT(workers.service.counters().accumulator_bytes, 0u) << "round 1 may be asked for again";
  workers.service.OnResultProgress({{a.key, 2}});
  EXPECT_EQ(workers.service.counters().accumulator_bytes, 0u);

  // One that goes on is not disturbed.
  workers.Push(a, 0, 2, std::string(6, '\0'), 0);
  workers.service.OnResultProgress({{a.key, 2}});
  workers.Push(a, 1, 2, std::string(6, '\0'), 0);
  EXPECT_EQ(workers.TakeReply(0).header.status, StatusCode::kOk);
  EXPECT_EQ(workers.TakeReply(1).header.status, StatusCode::kOk);
}

TEST(SummationServiceTest, AsksForNothingOnOneHost) {
  FakeWorkers workers(2);
  const TableEntry a = Entry(Tensor("a", DType::kFloat32, {3}));
  workers.Add(a);
  workers.Push(a, 0, 0, std::string(12, '\0'));
  EXPECT_TRUE(workers.connections[1]->TakeSent().empty());
}

TEST(SummationServiceTest, Counters) {
  FakeWorkers workers(2);
  const TableEntry a = Entry(Tensor("a", DType::kFloat32, {5}), 0, {3, 2});
  const TableEntry b = Entry(Tensor("b", DType::kFloat32, {1}, ExchangeKind::kBroadcast));
  workers.Add(b);
  workers.Add(a);
  for (int round = 0; round < 2; ++round) {
    for (int worker = 0; worker < 2; ++worker) {
      workers.Push(a, worker, round, std::string(12, '\0'), 0);
      workers.Push(a, worker, round, std::string(8, '\0'), 1);
    }
  }
  workers.Push(b, 0, 0, std::string(4, '\0'));
  workers.Push(b, 1, 0, "");
  const SummationCounters counters = workers.service.counters();
  EXPECT_EQ(counters.pushes, 10u);
  EXPECT_EQ(counters.pushed_bytes, 2 * 2 * 20u + 4u);
  EXPECT_EQ(counters.replies, 10u);
  EXPECT_EQ(counters.replied_bytes, 2 * 2 * 20u + 4u);
  EXPECT_EQ(counters.rounds_completed, 5u);
  const std::vector<TensorCounters> tensors = workers.service.tensor_counters();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].tensor.name, "a");
  EXPECT_EQ(tensors[0].pushes, 8u);
  EXPECT_EQ(tensors[0].pushed_bytes, 80u);
  EXPECT_EQ(tensors[0].replied_bytes, 80u);
  EXPECT_EQ(tensors[0].rounds_completed, 2u);
  EXPECT_EQ(tensors[1].tensor.name, "b");
  EXPECT_EQ(tensors[1].pushed_bytes, 4u);
  EXPECT_EQ(tensors[1].rounds_completed, 1u);
}

TEST(SummationServiceTest, AShapeMayChangeWhenAllChangeIt) {
  FakeWorkers workers(2);
  const TableEntry before = Entry(Tensor("t", DType::kFloat32, {2}), 0);
  const TableEntry after = Entry(Tensor("t", DType::kInt64, {3}), 1);
  workers.Add(before);
  workers.Add(after);
  for (int worker = 0; worker < 2; ++worker)
    workers.Push(before, worker, 0, BytesOf<float>({1, 2}));
  for (int worker = 0; worker < 2; ++worker)
    workers.Push(after, worker, 1, BytesOf<int64_t>({1, 2, 3}));
  for (int worker = 0; worker < 2; ++worker) {
    const std::vector<SentFrame> replies = workers.TakeReplies(worker);
    ASSERT_EQ(replies.size(), 2u);
    EXPECT_EQ(replies[0].values<float>(), (std::vector<float>{2, 4}));
    EXPECT_EQ(replies[1].values<int64_t>(), (std::vector<int64_t>{2, 4, 6}));
    EXPECT_EQ(replies[1].header.variant, 1u);
  }
}

}  // namespace
}  // namespace byteps
