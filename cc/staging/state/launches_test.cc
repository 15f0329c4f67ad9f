#include "cc/staging/state/launches.h"

#include <gtest/gtest.h>

#include <string>

#include "cc/staging/state/testing/group_under_test.h"

namespace byteps {
namespace {

LaunchEntry Entry(LaunchEntry::Kind kind, uint32_t part = 0) {
  LaunchEntry entry;
  entry.kind = kind;
  entry.key = KeyOfName("a");
  entry.round = 1;
  entry.part = part;
  return entry;
}

class LaunchesTest : public ::testing::Test {
 protected:
  TensorPointer Tensor(ExchangeKind kind = ExchangeKind::kSum) {
    const TensorPointer tensor = group_.Started("a", 2);
    tensor->gpu.tensor.kind = kind;
    return tensor;
  }
  Launch Next(const LaunchEntry& entry, const TensorPointer& tensor) {
    Launch launch;
    EXPECT_TRUE(launches_.Next(entry, tensor, &launch).ok());
    return launch;
  }

  GroupUnderTest group_;
  Launches launches_;
};

TEST_F(LaunchesTest, PartsAreLaunchedOneByOne) {
  const TensorPointer tensor = Tensor();
  const auto kind_of = [&](LaunchEntry::Kind kind) { return Next(Entry(kind, 1), tensor).kind; };
  EXPECT_EQ(kind_of(LaunchEntry::Kind::kReduce), Launch::Kind::kReduce);
  EXPECT_EQ(kind_of(LaunchEntry::Kind::kReduceForAll), Launch::Kind::kReduceForAll);
  EXPECT_EQ(kind_of(LaunchEntry::Kind::kBroadcast), Launch::Kind::kBroadcast);
  EXPECT_TRUE(launches_.TakeTogether().empty());
}

TEST_F(LaunchesTest, SumsOfASliceAreOneCollective) {
  const TensorPointer first = Tensor();
  const TensorPointer second = Tensor();
  const LaunchEntry entry = Entry(LaunchEntry::Kind::kExchange);
  EXPECT_EQ(Next(entry, first).kind, Launch::Kind::kNothing);
  EXPECT_EQ(Next(entry, second).kind, Launch::Kind::kNothing);
  EXPECT_EQ(launches_.TakeTogether(), (std::vector<TensorPointer>{first, second}));
  EXPECT_TRUE(launches_.TakeTogether().empty());
}

TEST_F(LaunchesTest, WhatIsNoSumEndsACollectiveBefore) {
  const TensorPointer sum = Tensor();
  for (const ExchangeKind kind : {ExchangeKind::kBroadcast, ExchangeKind::kGather}) {
    const LaunchEntry entry = Entry(LaunchEntry::Kind::kExchange);
    Next(entry, sum);
    const Launch launch = Next(entry, Tensor(kind));
    EXPECT_EQ(launch.together, std::vector<TensorPointer>{sum});
    EXPECT_EQ(launch.kind,
              kind == ExchangeKind::kGather ? Launch::Kind::kGather : Launch::Kind::kExchange);
  }
}

TEST_F(LaunchesTest, AFailureEndsACollectiveBefore) {
  const TensorPointer sum = Tensor();
  const TensorPointer failing = Tensor();
  Next(Entry(LaunchEntry::Kind::kExchange), sum);
  LaunchEntry entry = Entry(LaunchEntry::Kind::kFail);
  entry.reason = InvalidArgument("workers disagree");
  const Launch launch = Next(entry, failing);
  EXPECT_EQ(launch.together, std::vector<TensorPointer>{sum});
  EXPECT_EQ(launch.kind, Launch::Kind::kFail);
  EXPECT_EQ(launch.reason.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(launch.reason.message(),
            failing->Name() + ": workers disagree; here it is " + failing->gpu.tensor.ToString());
}

TEST_F(LaunchesTest, WhatHasEndedHereCanFailButNotBeLaunched) {
  EXPECT_EQ(Next(Entry(LaunchEntry::Kind::kFail), nullptr).kind, Launch::Kind::kNothing);
  for (const auto kind : {LaunchEntry::Kind::kReduce, LaunchEntry::Kind::kReduceForAll,
                          LaunchEntry::Kind::kBroadcast, LaunchEntry::Kind::kExchange}) {
    Launch launch;
    const Status status = launches_.Next(Entry(kind), nullptr, &launch);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("it is not ready here"), std::string::npos);
    EXPECT_EQ(launch.kind, Launch::Kind::kNothing);
  }
}

TEST_F(LaunchesTest, APartThatIsNotThereIsRefused) {
  Launch launch;
  const Status status = launches_.Next(Entry(LaunchEntry::Kind::kReduce, 2), Tensor(), &launch);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("it has no such part here"), std::string::npos);
}

}  // namespace
}  // namespace byteps
