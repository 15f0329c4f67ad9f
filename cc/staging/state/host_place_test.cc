#include "cc/staging/state/host_place.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace byteps {
namespace {

JobDescription Job(const std::vector<std::string>& hosts, bool shares = true, int servers = 1) {
  JobDescription job;
  job.worker_hosts = hosts;
  job.server_hosts.assign(servers, "server");
  job.server_endpoints.resize(servers);
  job.gpus_share_hosts = shares;
  return job;
}

TEST(HostPlaceTest, WorkersOfAHostAreRanksOfIt) {
  const HostPlace place(Job({"a", "b", "a", "b"}), 3);
  EXPECT_EQ(place.workers, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_FALSE(place.alone());
  EXPECT_FALSE(place.is_one_host());
}

TEST(HostPlaceTest, WithoutSharedHostsEachIsAlone) {
  const HostPlace place(Job({"a", "a"}, /*shares=*/false), 1);
  EXPECT_EQ(place.workers, std::vector<int32_t>{1});
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_TRUE(place.alone());
  EXPECT_FALSE(place.is_one_host());
}

TEST(HostPlaceTest, OneHostNeedsNoServer) {
  EXPECT_TRUE(HostPlace(Job({"a", "a"}), 0).is_one_host());
  // One worker has nobody to add to on its host, but may have servers.
  EXPECT_FALSE(HostPlace(Job({"a"}), 0).is_one_host());
  EXPECT_TRUE(HostPlace(Job({"a"}, /*shares=*/false, /*servers=*/0), 0).is_one_host());
}

TEST(HostPlaceTest, TheRootIsOnItsHost) {
  TensorDescription tensor;
  tensor.root_rank = 2;
  const std::vector<std::string> hosts = {"a", "b", "a", "b"};
  EXPECT_TRUE(HostPlace(Job(hosts), 0).RootIsHere(tensor));
  EXPECT_FALSE(HostPlace(Job(hosts), 1).RootIsHere(tensor));
  EXPECT_FALSE(HostPlace(Job(hosts, /*shares=*/false), 0).RootIsHere(tensor));
  EXPECT_TRUE(HostPlace(Job(hosts, /*shares=*/false), 2).RootIsHere(tensor));
}

}  // namespace
}  // namespace byteps
