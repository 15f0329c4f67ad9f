#include "cc/base/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace byteps {
namespace {

// In this order: a hard limit that has been lowered stays so.
TEST(DescriptorsTest, TheLimitIsRaisedAsFarAsItMayBe) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, 4096);
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(CheckDescriptors(500).ok());
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_GE(limit.rlim_cur, 564u);
  EXPECT_LT(limit.rlim_cur, 1000u);
  RaiseDescriptorLimit();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

TEST(DescriptorsTest, TooFewAreAnErrorThatSaysHowManyAreNeeded) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(CheckDescriptors(10).ok());
  const Status status = CheckDescriptors(2000);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("needs 2000 more"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("of at most 128"), std::string::npos) << status.message();
}

// Where all are open, there is none to count them with.
TEST(DescriptorsTest, AllAreOpen) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> opened;
  for (int next = 0; (next = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) opened.push_back(next);
  const std::string words = DescriptorsInWords();
  for (const int descriptor : opened) close(descriptor);
  EXPECT_EQ(words.find("64 of at most 64"), 0u) << words;
}

}  // namespace
}  // namespace byteps
