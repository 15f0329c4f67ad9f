// A server that hears nothing of the coordinator any more, while the workers do.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/engine/testing/gated_proxy.h"
#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

class CutOffServerTest : public ::testing::Test {
 protected:
  void StartJob(int32_t servers) {
    EngineOptions options;
    options.timeouts.heartbeat_interval = 0.1;
    EngineOptions of_the_server = options;  // the one that is cut off alone finds others silent
    of_the_server.timeouts.heartbeat_timeout = 1;
    coordinator_ = std::make_unique<Coordinator>(options);
    ASSERT_TRUE(coordinator_->Listen("127.0.0.1", 0).ok());
    gate_ = std::make_unique<GatedProxy>(coordinator_->endpoint());
    JobDescription job;
    job.job_id = "cut-off-server-test";
    job.options = options;
    job.coordinator_endpoint = coordinator_->endpoint();
    job.worker_hosts.assign(2, "host");
    job.server_hosts.assign(servers, "host");
    for (int32_t rank = 0; rank < servers; ++rank) {
      servers_.push_back(std::make_unique<Server>(rank == 0 ? of_the_server : options));
      ASSERT_TRUE(servers_.back()->Listen("127.0.0.1", 0).ok());
      job.server_endpoints.push_back(servers_.back()->endpoint());
    }
    ASSERT_TRUE(coordinator_->Start(job).ok());
    for (int32_t rank = 0; rank < servers; ++rank) {
      JobDescription seen = job;
      if (rank == 0) {
        seen.coordinator_endpoint = gate_->endpoint();
        seen.options = of_the_server;
      }
      ASSERT_TRUE(servers_[rank]->Start(seen, rank).ok());
    }
    for (int32_t rank = 0; rank < 2; ++rank) {
      workers_.push_back(std::make_unique<Worker>(job, rank));
      ASSERT_TRUE(workers_.back()->Start().ok());
    }
  }

  // The server's heartbeats still get to the coordinator.
  void CutOff() {
    gate_->Admit(GatedProxy::kAll, 0);
    ASSERT_TRUE(servers_[0]->Wait(20));
  }

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<GatedProxy> gate_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Protocol rules 15 and 20.
TEST_F(CutOffServerTest, TheOtherServersGoOn) {
  StartJob(2);
  CutOff();
  for (int i = 0; i < 8; ++i) {
    const std::string name = "t" + std::to_string(i);
    const auto one = Send(*workers_[0], name, {1}), other = Send(*workers_[1], name, {2});
    const Status status = one->Wait();
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(other->Wait().ok());
    EXPECT_EQ(one->output[0], 3);
  }
  EXPECT_EQ(coordinator_->lost_servers(), std::vector<int32_t>{0});
}

TEST_F(CutOffServerTest, TheErrorNamesTheServer) {
  StartJob(1);
  const auto pending = Send(*workers_[0], "t", {1});
  CutOff();
  const Status status = pending->Wait();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("server 0"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("is cut off"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace byteps
