// Sums of contributions that come compressed, and go back so (protocol rule 2).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cc/codec/part_forms.h"
#include "cc/codec/testing/expected_sum.h"
#include "cc/server/testing/fake_workers.h"
#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

TensorDescription Compressed(const std::string& codec, int64_t elements) {
  TensorDescription tensor = Tensor("t", DType::kFloat32, {elements});
  tensor.codec = codec;
  return tensor;
}

// Some of each sign and size, others for each worker and round.
std::vector<float> Gradient(int worker, uint64_t round, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float sign = (i * 7 + worker + round) % 3 == 0 ? -1.0f : 1.0f;
    values[i] = sign * std::ldexp(static_cast<float>(i * (worker + 3) % 251),
                                  static_cast<int>(i / 100 % 9) - static_cast<int>(round));
  }
  return values;
}

PartSeed SeedOf(const TableEntry& entry, uint32_t part, uint64_t round) {
  PartSeed seed;
  seed.key = entry.key;
  seed.part = part;
  seed.round = round;
  return seed;
}

// What a worker sends.
std::string Contribution(const TableEntry& entry, int worker, uint64_t round, uint32_t part = 0) {
  return EncodedBy(entry.tensor.codec, Gradient(worker, round, entry.parts[part].element_count),
                   SeedOf(entry, part, round), worker);
}

std::vector<std::vector<float>> Gradients(const TableEntry& entry, int workers, uint64_t round,
                                          uint32_t part = 0) {
  std::vector<std::vector<float>> values;
  for (int worker = 0; worker < workers; ++worker)
    values.push_back(Gradient(worker, round, entry.parts[part].element_count));
  return values;
}

TEST(CompressedSumsTest, EveryCodecAndLengthInPiecesOfAnySize) {
  for (const std::string& codec : SentCodecs()) {
    for (const uint64_t count : {1, 31, 4097, 100001}) {
      for (const bool average : {false, true}) {
        SCOPED_TRACE(codec + ", " + std::to_string(count) + " elements");
        // Two sums of two are the same in any order.
        FakeWorkers workers(2);
        TensorDescription tensor = Compressed(codec, count + 33);
        tensor.average = average;
        const TableEntry entry = Entry(tensor, 0, {count, 33});
        workers.Add(entry);
        for (uint64_t round = 0; round < 2; ++round) {
          for (const uint32_t part : {1u, 0u}) {
            for (const int worker : {1, 0})
              workers.Push(entry, worker, round, Contribution(entry, worker, round, part), part);
            const std::string expected = ExpectedReply(codec, Gradients(entry, 2, round, part),
                                                       SeedOf(entry, part, round), average);
            for (int worker = 0; worker < 2; ++worker) {
              const SentFrame reply = workers.TakeReply(worker);
              EXPECT_EQ(reply.header.element_count, entry.parts[part].element_count);
              ASSERT_EQ(reply.payload, expected) << "round " << round << ", part " << part;
            }
          }
        }
      }
    }
  }
}

// Encoded once: each of many workers gets the same memory.
TEST(CompressedSumsTest, ASumIsEncodedOnce) {
  FakeWorkers workers(5);
  const TableEntry entry = Entry(Compressed(SentCodecs()[2], 5000));
  workers.Add(entry);
  for (int worker = 0; worker < 5; ++worker)
    workers.Push(entry, worker, 0, Contribution(entry, worker, 0));
  const void* const first = workers.TakeReply(0).original.payload;
  for (int worker = 1; worker < 5; ++worker)
    EXPECT_EQ(workers.TakeReply(worker).original.payload, first);
}

// Where contributions are added in rank order, and where some may be dropped, they are received
// whole before they are added (protocol rule 13).
TEST(CompressedSumsTest, InRankOrder) {
  for (const std::string& codec : SentCodecs()) {
    FakeWorkers workers(3, {}, 1, /*in_rank_order=*/true);
    const TableEntry entry = Entry(Compressed(codec, 70000));
    workers.Add(entry);
    for (const int worker : {2, 1, 0})
      workers.Push(entry, worker, 0, Contribution(entry, worker, 0));
    EXPECT_EQ(workers.TakeReply(1).payload,
              ExpectedReply(codec, Gradients(entry, 3, 0), SeedOf(entry, 0, 0)))
        << codec;
  }
}

TEST(CompressedSumsTest, AnAverageWithoutTheLastWorker) {
  for (const std::string& codec : SentCodecs()) {
    FakeWorkers workers(3);
    TensorDescription tensor = Compressed(codec, 70000);
    tensor.average = true;
    tensor.backup_workers = 1;
    const TableEntry entry = Entry(tensor);
    workers.Add(entry);
    FakePush late = workers.NewPush(entry, 2, 0, Contribution(entry, 2, 0));
    ASSERT_TRUE(late.Begin().ok());
    late.Feed(1000);
    for (const int worker : {0, 1}) workers.Push(entry, worker, 0, Contribution(entry, worker, 0));
    std::vector<float> sum(70000);
    DecodeTo(codec, Contribution(entry, 0, 0), DecodeMode::kStore, &sum);
    DecodeTo(codec, Contribution(entry, 1, 0), DecodeMode::kAdd, &sum);
    for (float& element : sum) element /= 2;
    const std::string expected =
        EncodedBy(CodecNamed(codec)->SumCodec(), sum, SeedOf(entry, 0, 0), 3);
    EXPECT_EQ(workers.TakeReply(0).payload, expected) << codec;
    ASSERT_TRUE(late.End().ok());
    EXPECT_EQ(workers.TakeReply(2).payload, expected) << codec;
  }
}

TEST(CompressedSumsTest, WhatIsNotFiniteShows) {
  for (const std::string& codec : SentCodecs()) {
    FakeWorkers workers(2);
    const TableEntry entry = Entry(Compressed(codec, 8192));
    workers.Add(entry);
    std::vector<float> values(8192, 1.0f);
    values[8000] = std::numeric_limits<float>::infinity();
    workers.Push(entry, 0, 0, EncodedBy(codec, values, SeedOf(entry, 0, 0), 0));
    workers.Push(entry, 1, 0, Contribution(entry, 1, 0));
    std::vector<float> result(8192);
    DecodeTo(CodecNamed(codec)->SumCodec(), workers.TakeReply(0).payload, DecodeMode::kStore,
             &result);
    EXPECT_FALSE(std::isfinite(result[8000])) << codec;
    EXPECT_TRUE(std::isfinite(result[0])) << codec;  // in another block
  }
}

// As any other frame that no correct worker sends.
TEST(CompressedSumsTest, MalformedPushesAreRefused) {
  const std::string int8 = CodecNamed("int8")->name();
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Compressed(int8, 100));
  TableEntry raw = Entry(Tensor("raw", DType::kFloat32, {100}));
  const TableEntry wide = Entry(Tensor("wide", DType::kFloat64, {50}));
  const TableEntry largest = Entry(Tensor("largest", DType::kFloat32, {100}, ExchangeKind::kMax));
  for (const TableEntry& each : {entry, raw, wide, largest}) workers.Add(each);
  const auto refused = [&](const TableEntry& of, auto change, const std::string& expected) {
    FrameHeader header =
        FakeWorkers::Header(of, 1, 0, std::string(of.tensor.codec.empty() ? 400 : 108, '\0'));
    change(header);
    const Status status = workers.NewPush(header, 1).DeliverAll();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << expected;
    EXPECT_NE(status.message().find("worker 1 at 127.0.0.1"), std::string::npos);
    EXPECT_NE(status.message().find(expected), std::string::npos) << status.message();
  };
  refused(entry, [](FrameHeader& h) { h.codec = CodecId::kRaw; }, "in codec number 0; number 3");
  refused(entry, [](FrameHeader& h) { h.codec = CodecId::kInt4; }, "in codec number 5; number 3");
  refused(raw, [](FrameHeader& h) { h.codec = CodecId::kInt8; }, "in codec number 3; number 0");
  // Only sums of float32 may be narrow (codec/narrow.h), and then all of them.
  const auto narrow = [](FrameHeader& h) { h.codec = CodecId::kBFloat16; };
  refused(entry, narrow, "in codec number 2; number 3");
  refused(wide, narrow, "in codec number 2; number 0");
  refused(largest, narrow, "in codec number 2; number 0");
  refused(raw, narrow, "400 bytes; 200 belong");
  refused(entry, [](FrameHeader& h) { h.payload_bytes = 107; }, "107 bytes; 108 belong");
  refused(entry, [](FrameHeader& h) { h.payload_bytes = 400; }, "400 bytes; 108 belong");
  refused(entry, [](FrameHeader& h) { h.element_count = 99; }, "99 elements; the part has 100");
  EXPECT_EQ(workers.service.counters().pushes, 0u);
}

// Only the bytes show it, when all of them are here. Nobody waits for what cannot come.
TEST(CompressedSumsTest, AContributionThatCannotBeDecodedFailsItsRound) {
  const std::string topk = CodecNamed("topk:feedback=0")->name();
  for (const bool in_rank_order : {false, true}) {
    for (const int32_t backup_workers : {0, 1}) {
      FakeWorkers workers(3, {}, 1, in_rank_order);
      TensorDescription tensor = Compressed(topk, 5000);
      tensor.average = true;
      tensor.backup_workers = backup_workers;
      const TableEntry entry = Entry(tensor);
      workers.Add(entry);
      workers.Push(entry, 0, 0, Contribution(entry, 0, 0));
      std::string wrong = Contribution(entry, 2, 0);
      wrong.back() = static_cast<char>(wrong.back() ^ 0x80);
      workers.Push(entry, 2, 0, wrong);
      workers.Push(entry, 1, 0, Contribution(entry, 1, 0));
      for (int worker = 0; worker < 3; ++worker) {
        const SentFrame reply = workers.TakeReply(worker);
        EXPECT_EQ(reply.header.status, StatusCode::kInvalidArgument);
        EXPECT_EQ(reply.payload,
                  "tensor \"t\": round 0: worker 2: received a part of 5000 elements in topk:"
                  "feedback=0,ratio=0.01 whose indices are not 50 ascending ones below 5000");
      }
      for (int worker = 0; worker < 3; ++worker)
        workers.Push(entry, worker, 1, Contribution(entry, worker, 1));
      EXPECT_EQ(workers.TakeReply(2).header.status, StatusCode::kOk);
    }
  }
}

TEST(CompressedSumsTest, UnknownCodecsAreRefused) {
  FakeWorkers workers(2);
  for (const char* codec : {"zip", "int8", "int8:block=33,stochastic=0"}) {
    const Status status = workers.service.AddEntries({Entry(Compressed(codec, 100))});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_NE(status.message().find(codec), std::string::npos) << status.message();
  }
}

TEST(CompressedSumsTest, WorkersWithDifferentCodecsAreNamed) {
  FakeWorkers workers(2);
  const TableEntry int8 = Entry(Compressed(CodecNamed("int8")->name(), 100), 0);
  const TableEntry plain = Entry(Compressed("", 100), 1);
  workers.Add(int8);
  workers.Add(plain);
  workers.Push(int8, 0, 0, Contribution(int8, 0, 0));
  workers.Push(plain, 1, 0, BytesOf(Gradient(1, 0, 100)));
  for (int worker = 0; worker < 2; ++worker) {
    const SentFrame reply = workers.TakeReply(worker);
    EXPECT_EQ(reply.header.status, StatusCode::kFailedPrecondition);
    EXPECT_EQ(reply.header.codec, CodecId::kRaw);
    for (const char* expected :
         {"tensor \"t\"", "compressed with int8:block=32,stochastic=0", "worker 0", "worker 1"})
      EXPECT_NE(reply.payload.find(expected), std::string::npos) << reply.payload;
  }
}

// A connection that breaks in the middle of a block, and comes again (protocol rule 13).
TEST(CompressedSumsTest, APushGoesOnWhereItWas) {
  const std::string codec = CodecNamed("int8")->name();
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Compressed(codec, 100000));
  workers.Add(entry);
  const std::string payload = Contribution(entry, 0, 0);
  FakePush cut = workers.NewPush(entry, 0, 0, payload);
  ASSERT_TRUE(cut.Begin().ok());
  cut.Feed(40001);
  const auto old = workers.connections[0];
  workers.service.OnClosed(*old, Unavailable("reset by peer"));
  workers.connections[0] = std::make_shared<FakeConnection>(0, /*again=*/true);
  workers.service.OnOpen(workers.connections[0]);
  const OutgoingFrame query = ControlFrame(ResumeQuery{{{entry.key, 0, 0}}});
  FakePush question(
      &workers.service, workers.connections[0].get(), query.header,
      std::string(static_cast<const char*>(query.payload), query.header.payload_bytes));
  ASSERT_TRUE(question.DeliverAll().ok());
  FrameHeader rest = FakeWorkers::Header(entry, 0, 0, payload);
  rest.payload_offset = 40001;
  rest.payload_bytes -= rest.payload_offset;
  FakePush goes_on(&workers.service, workers.connections[0].get(), rest, payload.substr(40001));
  const Status status = goes_on.DeliverAll();
  ASSERT_TRUE(status.ok()) << status.ToString();
  workers.Push(entry, 1, 0, Contribution(entry, 1, 0));
  EXPECT_EQ(workers.TakeReply(0).payload,
            ExpectedReply(codec, Gradients(entry, 2, 0), SeedOf(entry, 0, 0)));
}

// A worker that has the result of a lost server sends what it has decoded (protocol rule 15).
TEST(CompressedSumsTest, AResultFromAWorkerIsRaw) {
  FakeWorkers workers(2);
  TableEntry entry = Entry(Compressed(CodecNamed("int8")->name(), 100));
  entry.parts[0].server = 1;
  workers.Add(entry);
  entry.parts[0] = {100, 0, kTestPlacement + 1};
  ASSERT_TRUE(
      workers.service.MoveParts({1, kTestPlacement + 1, {entry}, {{entry.key, 0, 8, 1}}}).ok());
  const std::vector<float> result = Gradient(5, 7, 100);
  FrameHeader header = FakeWorkers::Header(entry, 1, 7, BytesOf(result));
  header.watermark = 8;
  FakePush encoded(&workers.service, workers.connections[1].get(), header, BytesOf(result));
  EXPECT_FALSE(encoded.DeliverAll().ok()) << "it says that it is compressed";
  header.codec = CodecId::kRaw;
  FakePush raw(&workers.service, workers.connections[1].get(), header, BytesOf(result));
  ASSERT_TRUE(raw.DeliverAll().ok());
  workers.Push(entry, 0, 7, Contribution(entry, 0, 7));
  const SentFrame reply = workers.TakeReply(0);
  EXPECT_EQ(reply.header.codec, CodecId::kRaw);
  EXPECT_EQ(reply.values<float>(), result);
}

}  // namespace
}  // namespace byteps
