// Sums in rank order: whoever arrives first, and however, the result is the same to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/server/scratch.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

constexpr int32_t kWorkers = 3;
// Two blocks of a sum and a little.
constexpr size_t kElements = 2 * kScratchBytes / sizeof(float) + 17;

// Contributions whose float sum depends on the order: large ones cancel, small ones are rounded.
std::vector<float> Contribution(int32_t rank, size_t elements = kElements) {
  std::mt19937 random(rank + 1);
  std::uniform_real_distribution<float> exponent(-12, 12);
  std::vector<float> values(elements);
  for (float& value : values) {
    value = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  return values;
}

std::vector<float> SumInOrder(const std::vector<int32_t>& ranks, size_t elements = kElements) {
  std::vector<float> sum = Contribution(ranks[0], elements);
  for (size_t i = 1; i < ranks.size(); ++i) {
    const std::vector<float> next = Contribution(ranks[i], elements);
    for (size_t element = 0; element < elements; ++element) sum[element] += next[element];
  }
  return sum;
}

FakeWorkers InRankOrder(int32_t workers, std::vector<std::string> hosts = {}) {
  return FakeWorkers(workers, std::move(hosts), 1, true);
}

TEST(SummationOrderTest, TheTestsContributionsTellOrdersApart) {
  EXPECT_NE(SumInOrder({0, 1, 2}), SumInOrder({1, 2, 0}));
  EXPECT_NE(SumInOrder({0, 1, 2}), SumInOrder({0, 2, 1}));
}

TEST(SummationOrderTest, EveryOrderOfArrivalGivesTheSumInRankOrder) {
  FakeWorkers workers = InRankOrder(kWorkers);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {kElements}));
  workers.Add(entry);
  const std::vector<float> expected = SumInOrder({0, 1, 2});
  std::vector<int32_t> order = {0, 1, 2};
  uint64_t round = 0;
  do {
    for (const int32_t rank : order) workers.Push(entry, rank, round, BytesOf(Contribution(rank)));
    for (int32_t rank = 0; rank < kWorkers; ++rank)
      EXPECT_EQ(workers.TakeReply(rank).values<float>(), expected) << "round " << round;
    ++round;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(round, 6u);
}

// All three arrive at once, in pieces: who ends first matters as little as who begins first.
TEST(SummationOrderTest, InterleavedArrivalsGiveTheSumInRankOrder) {
  FakeWorkers workers = InRankOrder(kWorkers);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {kElements}));
  workers.Add(entry);
  const std::vector<float> expected = SumInOrder({0, 1, 2});
  std::mt19937 random(5);
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<int32_t> begin = {0, 1, 2};
    std::shuffle(begin.begin(), begin.end(), random);
    std::vector<FakePush> pushes;
    for (int32_t rank = 0; rank < kWorkers; ++rank)
      pushes.push_back(workers.NewPush(entry, rank, round, BytesOf(Contribution(rank))));
    for (const int32_t rank : begin) ASSERT_TRUE(pushes[rank].Begin().ok());
    for (int piece = 0; piece < 30; ++piece) pushes[random() % kWorkers].Feed(random() % 50000);
    std::shuffle(begin.begin(), begin.end(), random);
    for (const int32_t rank : begin) ASSERT_TRUE(pushes[rank].End().ok());
    for (int32_t rank = 0; rank < kWorkers; ++rank)
      ASSERT_EQ(workers.TakeReply(rank).values<float>(), expected) << "round " << round;
  }
}

TEST(SummationOrderTest, HalfPrecisionIsAddedInRankOrderToo) {
  const std::vector<uint16_t> ones(1000, 0x3c00), large(1000, 0x7000), small(1000, 0x0401);
  const std::vector<std::string> payloads = {BytesOf(large), BytesOf(small), BytesOf(ones)};
  std::vector<std::string> results;
  std::vector<int32_t> order = {0, 1, 2};
  FakeWorkers workers = InRankOrder(kWorkers);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat16, {1000}));
  workers.Add(entry);
  for (uint64_t round = 0; round < 6; ++round) {
    for (const int32_t rank : order) workers.Push(entry, rank, round, payloads[rank]);
    for (int32_t rank = 0; rank < kWorkers; ++rank)
      results.push_back(workers.TakeReply(rank).payload);
    std::next_permutation(order.begin(), order.end());
  }
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
}

// What waits for its turn is memory beside the sums, and is given back.
TEST(SummationOrderTest, AtMostTheOthersContributionsWait) {
  FakeWorkers workers = InRankOrder(kWorkers);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {kElements}));
  workers.Add(entry);
  const uint64_t part_bytes = kElements * sizeof(float);
  for (const int32_t rank : {2, 1}) workers.Push(entry, rank, 0, BytesOf(Contribution(rank)));
  EXPECT_EQ(workers.service.counters().accumulator_bytes, 3 * part_bytes);
  workers.Push(entry, 0, 0, BytesOf(Contribution(0)));
  for (int32_t rank = 0; rank < kWorkers; ++rank) workers.TakeReply(rank);
  EXPECT_LE(workers.service.counters().accumulator_bytes, 2 * part_bytes);
}

// A failed round leaves nothing of its contributions in the next one.
TEST(SummationOrderTest, AFailedRoundLeavesNothingBehind) {
  FakeWorkers workers = InRankOrder(kWorkers);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {kElements}));
  const TableEntry other = Entry(Tensor("t", DType::kFloat32, {kElements - 1}), 1);
  workers.Add(entry);
  workers.Add(other);
  FakePush cut_off = workers.NewPush(entry, 1, 0, BytesOf(Contribution(1)));
  ASSERT_TRUE(cut_off.Begin().ok());
  cut_off.Feed(100);
  workers.Push(entry, 2, 0, BytesOf(Contribution(2)));
  workers.Push(other, 0, 0, BytesOf(Contribution(0, kElements - 1)));  // they disagree
  ASSERT_TRUE(cut_off.End().ok());
  for (int32_t rank = 0; rank < kWorkers; ++rank)
    EXPECT_EQ(workers.TakeReply(rank).header.status, StatusCode::kFailedPrecondition);
  for (const int32_t rank : {1, 2, 0}) workers.Push(entry, rank, 1, BytesOf(Contribution(rank)));
  for (int32_t rank = 0; rank < kWorkers; ++rank)
    EXPECT_EQ(workers.TakeReply(rank).values<float>(), SumInOrder({0, 1, 2}));
}

// Hosts a, b, c, a, b, c: parts have other owners, and all are added in the order of hosts.
TEST(SummationOrderTest, HostsAreAddedInOrderWhoeverSpeaksForThem) {
  const std::vector<std::string> hosts = {"a", "b", "c", "a", "b", "c"};
  FakeWorkers workers = InRankOrder(6, hosts);
  TensorDescription tensor = Tensor("t", DType::kFloat32, {4 * 100});
  tensor.per_host = true;
  const TableEntry entry = Entry(tensor, 0, {100, 100, 100, 100});
  workers.Add(entry);
  const HostMap host_map(hosts);
  const std::vector<float> expected = SumInOrder({0, 1, 2}, 100);  // by host, see below
  for (uint32_t part = 0; part < 4; ++part) {
    for (const int32_t host : {2, 0, 1}) {
      workers.Push(entry, host_map.OwnerOn(host, entry.key, part), 0,
                   BytesOf(Contribution(host, 100)), part);
    }
    for (int32_t host = 0; host < 3; ++host) {
      const int32_t owner = host_map.OwnerOn(host, entry.key, part);
      EXPECT_EQ(workers.TakeReply(owner).values<float>(), expected) << "part " << part;
    }
  }
}

}  // namespace
}  // namespace byteps
