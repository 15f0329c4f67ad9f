#include "cc/coordinator/state/stall_digest.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace byteps {
namespace {

StallQuery QueryOf(int32_t rank, std::vector<StalledTensor> tensors, uint32_t more = 0) {
  StallQuery query;
  query.id = 1;
  query.from = rank;
  query.tensors = std::move(tensors);
  query.more = more;
  return query;
}

const StalledTensor kA = {"a", 3, "float32[2] sum", 62};
const StalledTensor kB = {"b", 5, "float32[2] sum", 52};

TEST(StallDigestTest, NamesWhoHasSentWhoHasNotAndWhoIsSilent) {
  StallDigest digest(4, 7, 0);
  digest.AddQuery(QueryOf(3, {kB}));
  digest.AddQuery(QueryOf(0, {kA, kB}, 12));
  EXPECT_EQ(digest.Ask(1).tensors.size(), 2u);
  EXPECT_EQ(digest.reporter(), 0);
  digest.AddAnswer({7, 0, {1, 1}, "waits for a"});
  digest.AddAnswer({7, 1, {1, 0}, "computes"});
  digest.AddAnswer({7, 3, {1, 1}, "waits, too"});
  EXPECT_FALSE(digest.IsComplete());
  EXPECT_EQ(digest.Text({}),
            "worker 0 waits for tensor \"a\" (float32[2] sum), round 3, since 62 s: "
            "sent by ranks 0, 1, 3; unknown of rank 2\n"
            "  tensor \"b\" (float32[2] sum), round 5, since 52 s: "
            "sent by ranks 0, 3; not by rank 1; unknown of rank 2\n"
            "  and for 12 tensors more\n"
            "  rank 1: computes\n"
            "  rank 2: does not answer; its process is stopped, or cannot be reached");
}

TEST(StallDigestTest, NobodyWaitsForWhoHasJoined) {
  StallDigest digest(3, 7, 0);
  digest.AddQuery(QueryOf(0, {kA}));
  (void)digest.Ask(1);
  digest.AddAnswer({7, 0, {1}, "waits"});
  digest.AddAnswer({7, 1, {0}, "computes"});
  digest.AddAnswer({7, 2, {0}, "waits for all to join"});
  EXPECT_EQ(digest.Text({2}),
            "worker 0 waits for tensor \"a\" (float32[2] sum), round 3, since 62 s: "
            "sent by rank 0; not by rank 1; without the joined rank 2\n"
            "  rank 1: computes");
}

TEST(StallDigestTest, NamesWhoWaitsForWhat) {
  StallDigest digest(2, 7, 0);
  digest.AddQuery(QueryOf(1, {kB}));
  digest.AddQuery(QueryOf(0, {kA}));
  (void)digest.Ask(1);
  digest.AddAnswer({7, 0, {1, 0}, "x"});
  digest.AddAnswer({7, 1, {0, 1}, "y"});
  EXPECT_TRUE(digest.IsComplete());
  EXPECT_EQ(digest.Text({}),
            "worker 0 waits for tensor \"a\" (float32[2] sum), round 3, since 62 s: "
            "sent by rank 0; not by rank 1\n"
            "  worker 1 waits for tensor \"b\" (float32[2] sum), round 5, since 52 s: "
            "sent by rank 1; not by rank 0\n"
            "  rank 0: x\n"
            "  rank 1: y");
}

TEST(StallDigestTest, WithoutATensorItSaysWhatAllDo) {
  StallDigest digest(2, 7, 0);
  digest.AddQuery(QueryOf(1, {}));
  (void)digest.Ask(1);
  digest.AddAnswer({7, 0, {}, "waits for nothing"});
  digest.AddAnswer({7, 1, {}, "has not exchanged anything yet"});
  EXPECT_TRUE(digest.IsComplete());
  EXPECT_EQ(digest.Text({}),
            "worker 1 is not waiting for a tensor\n"
            "  rank 0: waits for nothing\n"
            "  rank 1: has not exchanged anything yet");
}

TEST(StallDigestTest, IgnoresAnswersToOtherQuestions) {
  StallDigest digest(2, 7, 0);
  digest.AddQuery(QueryOf(0, {kA}));
  (void)digest.Ask(1);
  digest.AddAnswer({6, 0, {1}, ""});     // an earlier one
  digest.AddAnswer({7, 1, {1, 1}, ""});  // about other tensors
  EXPECT_NE(digest.Text({}).find("unknown of ranks 0, 1"), std::string::npos) << digest.Text({});
}

TEST(StallDigestTest, IsShortInALargeJob) {
  constexpr int32_t kWorkers = 800;
  StallDigest digest(kWorkers, 7, 0);
  for (int32_t rank = 0; rank < kWorkers; ++rank) {
    const std::string name = "t" + std::to_string(rank % 20);
    digest.AddQuery(QueryOf(rank, {{name, 1, std::string(1000, 'd'), 60}, kA}, 3));
  }
  EXPECT_EQ(digest.Ask(1).tensors.size(), kMostStalled);
  for (int32_t rank = 0; rank < kWorkers; ++rank)
    digest.AddAnswer({7, rank, std::vector<uint8_t>(kMostStalled, rank % 2),
                      rank % 2 == 0 ? std::string(5000, 'x') : ""});
  const std::string text = digest.Text({});
  EXPECT_LE(std::count(text.begin(), text.end(), '\n') + 1, StallDigest::kMostLines - 10);
  EXPECT_LT(text.size(), 16384u);
  EXPECT_NE(text.find("and 377 ranks more"), std::string::npos) << text;
}

TEST(StallDigestTest, RanksInARowAreOneRange) {
  StallDigest digest(100, 7, 0);
  digest.AddQuery(QueryOf(0, {kA}));
  (void)digest.Ask(1);
  for (int32_t rank = 0; rank < 100; ++rank)
    digest.AddAnswer({7, rank, {static_cast<uint8_t>(rank != 42)}, "computes"});
  EXPECT_NE(digest.Text({}).find("sent by ranks 0-41, 43-99; not by rank 42\n  rank 42: computes"),
            std::string::npos)
      << digest.Text({});
}

}  // namespace
}  // namespace byteps
