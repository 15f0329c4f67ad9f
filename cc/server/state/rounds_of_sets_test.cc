// The rounds of a process set (base/members.h): only its members count.
#include "cc/server/state/testing/rounds_under_test.h"

namespace byteps {
namespace {

using Texts = std::vector<std::string>;

// Of workers 0 and 2; there is worker 1, too.
class RoundsOfSetsTest : public testing::Test {
 protected:
  RoundsUnderTest part_{2, 0, "workers{0,2}/t"};
};

TEST_F(RoundsOfSetsTest, ARoundEndsWithTheLastMember) {
  EXPECT_EQ(part_.Contribute(0, 0).lacking, std::vector<int32_t>{2}) << "worker 1 is not asked";
  const PushOutcome outcome = part_.Contribute(2, 0);
  EXPECT_TRUE(outcome.round_complete);
  EXPECT_EQ(part_.Take(), Texts({"0: 0 ok", "2: 0 ok"}));
  part_.Contribute(2, 1);
  part_.Contribute(0, 1);
  EXPECT_EQ(part_.Take(), Texts({"0: 1 ok", "2: 1 ok"}));
}

TEST_F(RoundsOfSetsTest, TheWatermarkIsThatOfTheMembers) {
  for (const uint64_t round : {0, 1, 2}) {
    part_.Contribute(0, round);
    part_.Contribute(2, round);
  }
  EXPECT_EQ(part_.replies.back().frame.header.watermark, 2u);
}

TEST_F(RoundsOfSetsTest, WhoIsNoMemberMayLeave) {
  part_.Contribute(0, 0);
  part_.Leave(1);
  EXPECT_EQ(part_.Take(), Texts());
  part_.Contribute(2, 0);
  EXPECT_EQ(part_.Take(), Texts({"0: 0 ok", "2: 0 ok"}));
  part_.Contribute(0, 1);
  part_.Leave(2);
  EXPECT_EQ(part_.Take(), Texts({"0: 1 error"}));
  EXPECT_NE(part_.text.find("worker 2 has left the job, and worker 0"), std::string::npos);
}

TEST_F(RoundsOfSetsTest, WhoIsNoMemberGivesUpNothing) {
  part_.Contribute(0, 0);
  part_.state.Withdraw(1, part_.entry, 0, Cancelled("not its affair"), part_.Now(), &part_.replies);
  part_.Contribute(2, 0);
  EXPECT_EQ(part_.Take(), Texts({"0: 0 ok", "2: 0 ok"}));
}

TEST_F(RoundsOfSetsTest, APartThatComesFromALostServerGoesOn) {
  PartsMoved::Part agreed;
  agreed.next_round = 5;
  part_.state.GoOnFrom(agreed);
  part_.Contribute(2, 5);
  part_.Contribute(0, 5);
  EXPECT_EQ(part_.Take(), Texts({"0: 5 ok", "2: 5 ok"}));
}

}  // namespace
}  // namespace byteps
