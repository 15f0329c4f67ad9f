// Calls that are due at a time.
#include "cc/server/deadlines.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace byteps {
namespace {

class Calls {
 public:
  void Note(int number) {
    std::lock_guard<std::mutex> lock(mutex_);
    numbers_.push_back(number);
    changed_.notify_all();
  }
  std::vector<int> Await(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return numbers_.size() >= count; });
    return numbers_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> numbers_;
};

constexpr int64_t kMilli = 1000000;

TEST(DeadlinesTest, CallsAreMadeInTheOrderOfTheirTimes) {
  Calls calls;
  Deadlines deadlines;
  const int64_t now_ns = MonotonicNanos();
  deadlines.Add(now_ns + 60 * kMilli, [&] { calls.Note(3); });
  deadlines.Add(now_ns + 20 * kMilli, [&] {
    calls.Note(1);
    deadlines.Add(now_ns + 40 * kMilli, [&] { calls.Note(2); });
  });
  EXPECT_EQ(calls.Await(3), (std::vector<int>{1, 2, 3}));
  EXPECT_GE(MonotonicNanos(), now_ns + 60 * kMilli);
}

TEST(DeadlinesTest, ACallThatFailsDoesNotEndTheOthers) {
  Calls calls;
  Deadlines deadlines;
  deadlines.Add(0, [] { throw std::runtime_error("on purpose"); });
  deadlines.Add(0, [&] { calls.Note(1); });
  EXPECT_EQ(calls.Await(1), std::vector<int>{1});
}

TEST(DeadlinesTest, WhatIsNotDueIsNotMadeAtTheEnd) {
  Calls calls;
  {
    Deadlines deadlines;
    deadlines.Add(MonotonicNanos() + int64_t{3600} * 1000 * kMilli, [&] { calls.Note(1); });
  }
  EXPECT_TRUE(calls.Await(0).empty());
}

}  // namespace
}  // namespace byteps
