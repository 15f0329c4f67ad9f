#include "cc/xla/host_threads.h"

#include <gtest/gtest.h>

#include <future>
#include <limits>

namespace byteps {
namespace {

TEST(HostThreadsTest, TwoContinuationsRunAtATime) {
  std::promise<void> second;
  std::promise<void> first;
  ComputeLater([&first, ended = second.get_future().share()] {
    ended.wait();
    first.set_value();
  });
  ComputeLater([&second] { second.set_value(); });
  first.get_future().wait();
}

// XLA's threads do: a worker would differ from others in the last bits otherwise.
TEST(HostThreadsTest, DenormalNumbersAreZero) {
  const auto half_of_least = [] {
    volatile float least = std::numeric_limits<float>::min();
    return least * 0.5f;
  };
  std::promise<float> later;
  ComputeLater([&] { later.set_value(half_of_least()); });
  EXPECT_EQ(later.get_future().get(), 0.0f);
  EXPECT_GT(half_of_least(), 0.0f);
}

}  // namespace
}  // namespace byteps
