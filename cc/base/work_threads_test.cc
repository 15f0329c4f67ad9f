#include "cc/base/work_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

namespace byteps {
namespace {

TEST(WorkThreads, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    WorkThreads threads("test-work", 1);
    for (int i = 0; i < 1000; ++i) threads.Add([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkThreads, TwoThreadsGoOnBesideALongPiece) {
  WorkThreads threads("test-work", 2);
  std::promise<void> second;
  threads.Add([ended = second.get_future().share()] { ended.wait(); });
  threads.Add([&second] { second.set_value(); });
  threads.Stop();
}

TEST(WorkThreads, StopWaitsForWhatWorkAdds) {
  std::atomic<int> done{0};
  WorkThreads threads("test-work", 1);
  threads.Add([&] {
    ++done;
    threads.Add([&] { ++done; });
  });
  threads.Stop();
  EXPECT_EQ(done, 2);
}

TEST(WorkThreads, AfterStopTheCallerDoesIt) {
  WorkThreads threads("test-work", 1);
  threads.Stop();
  threads.Stop();
  std::thread::id by;
  threads.Add([&by] { by = std::this_thread::get_id(); });
  EXPECT_EQ(by, std::this_thread::get_id());
}

TEST(WorkThreads, WhatAPieceOwnsGoesWithIt) {
  WorkThreads threads("test-work", 1);
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> left = owned;
  threads.Add([owned = std::move(owned)] {});
  std::promise<bool> is_gone;
  threads.Add([&] { is_gone.set_value(left.expired()); });
  EXPECT_TRUE(is_gone.get_future().get());
}

}  // namespace
}  // namespace byteps
