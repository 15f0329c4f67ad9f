#include "cc/base/logging.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace byteps {
namespace {

// Standard error goes to one end of a pair, which the test reads or not.
class LoggingTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const bool is_socket = GetParam();
    ASSERT_EQ(is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends_) : pipe(ends_), 0);
    ASSERT_EQ(fcntl(ends_[0], F_SETFL, O_NONBLOCK), 0);
    before_ = dup(STDERR_FILENO);
    ASSERT_EQ(dup2(ends_[1], STDERR_FILENO), STDERR_FILENO);
  }
  void TearDown() override {
    while (!Read().empty()) FlushLog();
    dup2(before_, STDERR_FILENO);
    for (const int descriptor : {before_, ends_[0], ends_[1]}) close(descriptor);
  }
  std::string Read() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(ends_[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, got);
    return text;
  }
  // Reads and lets what waits follow, until nothing comes any more.
  std::string ReadAll() {
    std::string text;
    for (std::string more = Read(); !more.empty(); more = Read()) {
      text += more;
      FlushLog();
    }
    return text;
  }

  int ends_[2] = {-1, -1};
  int before_ = -1;
};

TEST_P(LoggingTest, ALineIsThereAtOnce) {
  LogWarning("hello");
  const std::string text = Read();
  EXPECT_NE(text.find("WARNING tf_byteps: hello\n"), std::string::npos) << text;
  LogInfo("not so important");
  EXPECT_EQ(Read(), "");
}

TEST_P(LoggingTest, WhoDoesNotReadStopsNobodyAndMissesNoLine) {
  // More than the 64 KB of a pipe, less than what may wait besides.
  constexpr int kLines = 100;
  for (int i = 0; i < kLines; ++i)
    LogWarning("line " + std::to_string(i) + " " + std::string(900, 'x'));
  const std::string text = ReadAll();
  size_t at = 0;
  for (int i = 0; i < kLines; ++i) {
    at = text.find("line " + std::to_string(i) + " ", at);
    ASSERT_NE(at, std::string::npos) << "line " << i << " is missing, or comes too early";
  }
}

TEST_P(LoggingTest, LinesThatAreLeftOutAreCounted) {
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) LogWarning("line " + std::string(900, 'x'));
  const std::string text = ReadAll();
  const size_t note = text.find(" lines are left out here");
  ASSERT_NE(note, std::string::npos);
  size_t lines = 0;
  for (size_t at = text.find("line x"); at != std::string::npos; at = text.find("line x", at + 1))
    ++lines;
  const size_t number = text.rfind(' ', note - 1) + 1;
  EXPECT_EQ(lines + std::stoul(text.substr(number)), static_cast<size_t>(kLines));
  LogWarning("again");
  EXPECT_NE(Read().find("again"), std::string::npos);
}

TEST_P(LoggingTest, LinesOfJsonHaveTheProcessAndTheEvent) {
  LogAsJson({{"role", "worker"}, {"rank", int64_t{3}}});
  LogWarning("a \"b\"\nc", {"process_lost", {{"lost_role", "server"}, {"lost_rank", int64_t{1}}}});
  LogWarning("plain");
  LogAsText();
  LogWarning("text");
  const std::string text = Read();
  const size_t rest = text.find("Z\", ");
  EXPECT_EQ(text.substr(0, 10), "{\"time\": \"");
  ASSERT_NE(rest, std::string::npos) << text;
  EXPECT_EQ(text.find("\"level\": \"WARNING\", \"role\": \"worker\", \"rank\": 3, "
                      "\"event\": \"process_lost\", \"message\": \"a \\\"b\\\"\\u000ac\", "
                      "\"lost_role\": \"server\", \"lost_rank\": 1}\n"),
            rest + 4)
      << text;
  EXPECT_NE(text.find("\"event\": \"\", \"message\": \"plain\"}\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" WARNING tf_byteps: text\n"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Where, LoggingTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Socket" : "Pipe"; });

}  // namespace
}  // namespace byteps
