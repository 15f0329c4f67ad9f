// Tensors that the workers of each host have reduced among themselves: one contribution a host.
#include <gtest/gtest.h>

#include "cc/base/host_map.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

// Hosts of three and one workers.
const std::vector<std::string> kHosts = {"large", "large", "small", "large"};

class HostsTest : public ::testing::Test {
 protected:
  TableEntry Add(ExchangeKind kind, bool average = false, int32_t root = 0) {
    TensorDescription tensor = Tensor("t", DType::kFloat32, {6}, kind);
    tensor.per_host = true;
    tensor.average = average;
    tensor.root_rank = root;
    const TableEntry entry = Entry(tensor, 0, {2, 2, 2});
    workers_.Add(entry);
    return entry;
  }
  int32_t Owner(int32_t host, uint32_t part) { return hosts_.OwnerOn(host, KeyOfName("t"), part); }

  const HostMap hosts_{kHosts};
  FakeWorkers workers_{4, kHosts};
};

TEST_F(HostsTest, AnAverageHasOneContributionOfEachHostAndDividesByAllWorkers) {
  const TableEntry entry = Add(ExchangeKind::kSum, /*average=*/true);
  for (uint32_t part = 0; part < 3; ++part) {
    for (uint64_t round = 0; round < 3; ++round) {
      workers_.Push(entry, Owner(0, part), round, BytesOf<float>({3, 30}), part);
      EXPECT_TRUE(workers_.TakeReplies(Owner(0, part)).empty());
      workers_.Push(entry, Owner(1, part), round, BytesOf<float>({1, 10}), part);
      for (const int32_t host : {0, 1}) {
        const SentFrame reply = workers_.TakeReply(Owner(host, part));
        EXPECT_EQ(reply.values<float>(), (std::vector<float>{1, 10}));
        EXPECT_EQ(reply.header.watermark, round);
      }
    }
  }
  EXPECT_EQ(workers_.service.counters().pushed_bytes, 2u * 3 * 3 * 8);
}

TEST_F(HostsTest, OnlyThePartsOwnerPushesForItsHost) {
  const TableEntry entry = Add(ExchangeKind::kSum);
  for (uint32_t part = 0; part < 3; ++part) {
    for (const int32_t worker : hosts_.WorkersOn(0)) {
      if (worker == Owner(0, part)) continue;
      const Status status =
          workers_.NewPush(entry, worker, 0, BytesOf<float>({1, 2}), part).DeliverAll();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("pushes for their host"), std::string::npos)
          << status.message();
    }
  }
}

TEST_F(HostsTest, TheOwnerOnTheRootsHostSendsItsValue) {
  const TableEntry entry = Add(ExchangeKind::kBroadcast, false, /*root=*/3);
  for (uint32_t part = 0; part < 3; ++part) {
    workers_.Push(entry, Owner(1, part), 0, "", part);
    workers_.Push(entry, Owner(0, part), 0, BytesOf<float>({7, 8}), part);
    EXPECT_EQ(workers_.TakeReply(Owner(1, part)).values<float>(), (std::vector<float>{7, 8}));
    EXPECT_EQ(workers_.TakeReply(Owner(0, part)).payload, "");
  }
}

TEST_F(HostsTest, ALeaverWithoutAShareInThePartIsNotMissed) {
  const TableEntry entry = Add(ExchangeKind::kSum);
  const int32_t owner = Owner(0, 0);
  workers_.Push(entry, owner, 0, BytesOf<float>({1, 2}), 0);
  for (const int32_t worker : hosts_.WorkersOn(0)) {
    if (worker != owner) workers_.service.OnWorkersLeft({worker});
  }
  EXPECT_TRUE(workers_.TakeReplies(owner).empty());
  workers_.service.OnWorkersLeft({Owner(1, 0)});
  EXPECT_EQ(workers_.TakeReply(owner).header.status, StatusCode::kFailedPrecondition);
}

TEST_F(HostsTest, AGpusTensorAndACpusDisagree) {
  TensorDescription cpu = Tensor("t", DType::kFloat32, {6});
  const TableEntry on_cpus = Entry(cpu, 1, {2, 2, 2});
  const TableEntry on_gpus = Add(ExchangeKind::kSum);
  workers_.Add(on_cpus);
  workers_.Push(on_gpus, Owner(0, 0), 0, BytesOf<float>({1, 2}), 0);
  workers_.Push(on_cpus, 2, 0, BytesOf<float>({1, 2}), 0);
  const SentFrame reply = workers_.TakeReply(2);
  EXPECT_EQ(reply.header.status, StatusCode::kFailedPrecondition);
  EXPECT_NE(reply.payload.find("float32[6] sum over GPUs"), std::string::npos) << reply.payload;
}

}  // namespace
}  // namespace byteps
