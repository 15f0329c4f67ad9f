#include "cc/base/host_map.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(HostMap, NumbersHostsAndLocalRanksInTheOrderOfRanks) {
  const HostMap map({"b", "a", "b", "b"});
  EXPECT_EQ(map.num_hosts(), 2);
  EXPECT_EQ(map.WorkersOn(0), (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(map.WorkersOn(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(map.HostOf(2), 0);
  EXPECT_EQ(map.LocalRank(2), 1);
  EXPECT_EQ(map.HostOf(1), 1);
  EXPECT_EQ(map.LocalRank(1), 0);
}

TEST(HostMap, TheWorkersOfAHostTakeTurns) {
  const HostMap map({"b", "a", "b", "b"});
  std::vector<int> owned(4);
  for (uint32_t part = 0; part < 300; ++part) {
    for (int32_t host = 0; host < map.num_hosts(); ++host) {
      ++owned[map.OwnerOn(host, ~0ull - 5, part)];
    }
  }
  EXPECT_EQ(owned[1], 300);
  for (const int32_t worker : {0, 2, 3}) EXPECT_NEAR(owned[worker], 100, 1);
}

}  // namespace
}  // namespace byteps
