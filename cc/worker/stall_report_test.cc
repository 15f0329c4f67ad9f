#include "cc/worker/stall_report.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

constexpr int64_t kSecond = 1000000000;

StallReport::Waiting Waiting(const std::string& name, uint64_t round, int64_t since_s) {
  StallReport::Waiting waiting;
  waiting.tensor.name = name;
  waiting.tensor.shape = {2};
  waiting.round = round;
  waiting.since_ns = since_s * kSecond;
  return waiting;
}

TEST(StallReportTest, NamesWhoHasSentWhoHasNotAndWhoIsSilent) {
  StallReport report(0, 4, 7, {Waiting("a", 3, 40), Waiting("b", 5, 50)}, 12, 100 * kSecond);
  report.Add({7, 0, 0, {1, 1}, "waits for a"});
  report.Add({7, 1, 0, {1, 0}, "computes"});
  report.Add({7, 3, 0, {1, 1}, "waits, too"});
  EXPECT_FALSE(report.IsComplete());
  EXPECT_EQ(report.Text(102 * kSecond),
            "worker 0 waits for tensor \"a\" (float32[2] sum), round 3, since 62 s: "
            "sent by ranks 0, 1, 3; unknown of rank 2\n"
            "  tensor \"b\" (float32[2] sum), round 5, since 52 s: "
            "sent by ranks 0, 3; not by rank 1; unknown of rank 2\n"
            "  and for 12 tensors more\n"
            "  rank 1: computes\n"
            "  rank 2: does not answer; its process is stopped, or cannot be reached");
}

TEST(StallReportTest, WithoutATensorItSaysWhatAllDo) {
  StallReport report(1, 2, 7, {}, 0, 0);
  report.Add({7, 0, 1, {}, "waits for nothing"});
  report.Add({7, 1, 1, {}, "has not exchanged anything yet"});
  EXPECT_TRUE(report.IsComplete());
  EXPECT_EQ(report.Text(kSecond),
            "worker 1 waits for no tensor\n"
            "  rank 0: waits for nothing\n"
            "  rank 1: has not exchanged anything yet");
}

TEST(StallReportTest, IgnoresAnswersToOtherQuestions) {
  StallReport report(0, 2, 7, {Waiting("a", 3, 0)}, 0, 0);
  report.Add({6, 0, 0, {1}, ""});     // an earlier one
  report.Add({7, 1, 0, {1, 1}, ""});  // about other tensors
  report.Add({7, 2, 0, {1}, ""});     // of nobody
  report.Add({7, -1, 0, {1}, ""});
  EXPECT_NE(report.Text(0).find("unknown of ranks 0, 1"), std::string::npos) << report.Text(0);
}

}  // namespace
}  // namespace byteps
