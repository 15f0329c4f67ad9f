// What the coordinator decides about workers that have no more data.
#include "cc/coordinator/state/joins.h"

#include <map>
#include <utility>
#include <vector>

#include "cc/base/store_rounds.h"
#include "cc/coordinator/state/testing/coordinator_under_test.h"

namespace byteps {
namespace {

class JoinsTest : public testing::Test {
 protected:
  JoinsTest() { job_.OpenAll(); }

  template <typename Message>
  Message First(const CoordinatorEffects& effects, const JobPeer* peer) const {
    return std::get<Message>(job_.Heard(effects, peer)[0]);
  }

  CoordinatorUnderTest job_;
};

TEST_F(JoinsTest, WorkersGoOnOnceAllServersKnow) {
  CoordinatorEffects effects = job_.Say(job_.worker(1), Joined{});
  EXPECT_EQ(First<Joined>(effects, job_.server(0)).ranks, std::vector<int32_t>{1});
  EXPECT_TRUE(job_.Heard(effects, job_.worker(0)).empty());
  effects = job_.Say(job_.worker(0), Joined{});
  EXPECT_TRUE((job_.Hears<Joined, TableUpdate>(effects, job_.server(1))));
  EXPECT_TRUE(First<Joined>(effects, job_.server(1)).ranks.empty()) << "all again";
  EXPECT_TRUE(job_.Heard(effects, job_.worker(0)).empty()) << "servers may not know yet";
  const uint64_t update = job_.state.updates.next_id() - 1;
  EXPECT_TRUE(job_.Say(job_.server(0), TableAck{update}).frames.empty());
  effects = job_.Say(job_.server(1), TableAck{update});
  for (const int32_t rank : {0, 1}) {
    const auto over = First<Joined>(effects, job_.worker(rank));
    EXPECT_EQ(over.last, 0);
    EXPECT_EQ(over.problem, "");
  }
  // They may join again.
  effects = job_.Say(job_.worker(0), Joined{});
  EXPECT_EQ(First<Joined>(effects, job_.server(0)).ranks, std::vector<int32_t>{0});
}

TEST_F(JoinsTest, ServersHearWhatHasFailedOnWhoJoins) {
  Joined joined;
  joined.failed = {{-1, 17, 5}};
  CoordinatorEffects effects = job_.Say(job_.worker(1), joined);
  const auto heard = First<Joined>(effects, job_.server(0));
  ASSERT_EQ(heard.failed.size(), 1u);
  EXPECT_EQ(heard.failed[0].worker, 1);
  EXPECT_EQ(heard.failed[0].key, 17u);
  EXPECT_EQ(heard.failed[0].next_round, 5u);
  effects = job_.Say(job_.worker(0), Joined{});
  EXPECT_TRUE(First<Joined>(effects, job_.server(0)).failed.empty()) << "all again";
}

// By key and worker: how many pushes ahead of its own it counts.
std::map<std::pair<uint64_t, int32_t>, uint64_t> Leads(const Joined& joined) {
  std::map<std::pair<uint64_t, int32_t>, uint64_t> leads;
  for (const Joined::Clock& each : joined.clocks) leads[{each.key, each.worker}] = each.lead;
  return leads;
}

TEST_F(JoinsTest, ClocksOfStoresAreMadeEqualWhenAllHaveJoined) {
  const auto with = [](std::vector<Joined::Clock> clocks) {
    Joined joined;
    joined.clocks = std::move(clocks);
    return joined;
  };
  const uint64_t newer = FirstRoundOf(1) + 4;
  CoordinatorEffects effects =
      job_.Say(job_.worker(1), with({{-1, 17, 3, 99}, {-1, 18, 5, 0}, {-1, 19, 0, 0}}));
  EXPECT_TRUE(First<Joined>(effects, job_.server(0)).clocks.empty()) << "others go on";
  effects = job_.Say(job_.worker(0), with({{-1, 17, 8, 0}, {-1, 18, newer, 0}}));
  std::map<std::pair<uint64_t, int32_t>, uint64_t> leads = {
      {{17, 0}, 0}, {{17, 1}, 5}, {{18, 0}, 0}};
  EXPECT_EQ(Leads(First<Joined>(effects, job_.server(1))), leads)
      << "worker 1 is not in the newer store of 18, and has none of 19";
  const uint64_t update = job_.state.updates.next_id() - 1;
  job_.Say(job_.server(0), TableAck{update});
  effects = job_.Say(job_.server(1), TableAck{update});
  EXPECT_TRUE(First<Joined>(effects, job_.worker(0)).clocks.empty());
  // The next time leads add up; until then servers keep them.
  effects = job_.Say(job_.worker(0), with({{-1, 17, 9, 0}}));
  EXPECT_EQ(Leads(First<Joined>(effects, job_.server(0))), leads);
  effects = job_.Say(job_.worker(1), with({{-1, 17, 7, 0}}));
  leads = {{{17, 0}, 3}, {{17, 1}, 5}};
  EXPECT_EQ(Leads(First<Joined>(effects, job_.server(0))), leads);
}

TEST_F(JoinsTest, TwiceIsRefused) {
  job_.Say(job_.worker(1), Joined{});
  EXPECT_EQ(job_.Refusal(job_.worker(1), Joined{}), "worker 1 at 10.0.0.1:1 joined twice");
}

TEST_F(JoinsTest, WhoLeavesWithoutJoiningIsNamed) {
  job_.Say(job_.worker(1), Joined{});
  CoordinatorEffects effects = job_.Say(job_.worker(0), Goodbye{{0}});
  EXPECT_NE(First<Joined>(effects, job_.worker(1)).problem.find("worker 0 at 10.0.0.1:1 has left"),
            std::string::npos);
}

TEST_F(JoinsTest, WhoJoinsLaterThanAnotherLeavesIsTold) {
  job_.Say(job_.worker(0), Goodbye{{0}});
  const CoordinatorEffects effects = job_.Say(job_.worker(1), Joined{});
  EXPECT_NE(First<Joined>(effects, job_.worker(1)).problem.find("has left"), std::string::npos);
}

TEST_F(JoinsTest, AServerThatComesBackLearnsWhoHasJoined) {
  job_.Say(job_.worker(1), Joined{});
  job_.FailOver();
  ASSERT_TRUE(job_.Readmit(0).ok());
  const CoordinatorEffects effects = job_.Open(job_.server(0));
  EXPECT_EQ(First<Joined>(effects, job_.server(0)).ranks, std::vector<int32_t>{1});
}

}  // namespace
}  // namespace byteps
