#include "cc/worker/state/failover.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

using State = WorkerFailover::State;

ServerLost Lost(uint32_t version) {
  ServerLost lost;
  lost.version = version;
  return lost;
}

ServerRejoined Back(uint32_t version) {
  ServerRejoined back;
  back.version = version;
  back.parts.push_back({/*key=*/5, /*variant=*/0, /*part=*/2});
  return back;
}

PartsMoved Moved(uint32_t version) {
  PartsMoved moved;
  moved.version = version;
  return moved;
}

TEST(WorkerFailoverTest, ALostServersPartsMoveOnceNothingArrivesOfThem) {
  WorkerFailover failover;
  EXPECT_EQ(failover.state(), State::kNormal);
  EXPECT_FALSE(failover.EndDraining().has_value());
  failover.Begin(Lost(1));
  EXPECT_EQ(failover.state(), State::kDraining);
  EXPECT_EQ(failover.EndDraining(), 1u);
  EXPECT_EQ(failover.state(), State::kMoving);
  EXPECT_FALSE(failover.EndDraining().has_value()) << "said once";
  EXPECT_TRUE(failover.End(Moved(1)).ok());
  EXPECT_EQ(failover.state(), State::kNormal);
}

// Protocol rule 15: the parts of a server that lives are neither sent nor accepted meanwhile.
TEST(WorkerFailoverTest, PartsOfServersThatLiveAreMovingUntilTheyHaveMoved) {
  WorkerFailover failover;
  failover.Begin(Back(4));
  EXPECT_TRUE(failover.IsMoving({5, 0, 2}));
  EXPECT_FALSE(failover.IsMoving({5, 0, 1}));
  EXPECT_EQ(failover.EndDraining(), 4u);
  EXPECT_TRUE(failover.IsMoving({5, 0, 2}));
  EXPECT_TRUE(failover.End(Moved(4)).ok());
  EXPECT_FALSE(failover.IsMoving({5, 0, 2}));
}

TEST(WorkerFailoverTest, AnotherLossBeginsAnewAndForgetsNothing) {
  WorkerFailover failover;
  failover.Begin(Back(1));
  EXPECT_EQ(failover.EndDraining(), 1u);
  failover.Begin(Lost(2));
  EXPECT_EQ(failover.state(), State::kDraining);
  EXPECT_TRUE(failover.IsMoving({5, 0, 2}));
  EXPECT_EQ(failover.EndDraining(), 2u) << "the newer version is said";
  EXPECT_TRUE(failover.End(Moved(2)).ok());
}

TEST(WorkerFailoverTest, PartsCannotMoveBeforeThisWorkerHasSaidHowFarItIs) {
  WorkerFailover failover;
  EXPECT_FALSE(failover.End(Moved(1)).ok()) << "nothing has begun";
  failover.Begin(Lost(1));
  EXPECT_FALSE(failover.End(Moved(1)).ok()) << "still draining";
  failover.EndDraining();
  EXPECT_FALSE(failover.End(Moved(2)).ok()) << "of another version";
  EXPECT_EQ(failover.state(), State::kMoving);
  EXPECT_TRUE(failover.End(Moved(1)).ok());
}

}  // namespace
}  // namespace byteps
