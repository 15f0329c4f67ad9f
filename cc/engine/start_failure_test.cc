// Workers that do not get to a server when they start: because it is lost, and somebody else
// listens at its port already, or for good.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/testing/test_job.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

// Lets nobody in.
class Stranger : public ConnectionAcceptor {
 public:
  Stranger() : van_(NewTcpVan({})) {
    EXPECT_TRUE(van_->Listen("127.0.0.1", 0, this, &endpoint_).ok());
  }
  ~Stranger() override { van_->Stop(); }
  Status OnHello(const Hello&, const std::string&, ConnectionHandler**) override {
    was_asked_ = true;
    return FailedPrecondition("this is somebody else");
  }
  const Endpoint& endpoint() const { return endpoint_; }
  void AwaitCaller() const {
    while (!was_asked_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  Endpoint endpoint_;
  std::unique_ptr<Van> van_;
  std::atomic<bool> was_asked_{false};
};

class StartFailureTest : public ::testing::Test {
 protected:
  void StartJob(int32_t servers) {
    options_.timeouts.heartbeat_interval = 0.1;
    coordinator_ = std::make_unique<Coordinator>(options_);
    ASSERT_TRUE(coordinator_->Listen("127.0.0.1", 0).ok());
    job_.job_id = "start-failure-test";
    job_.options = options_;
    job_.coordinator_endpoint = coordinator_->endpoint();
    job_.worker_hosts.assign(2, "host");
    job_.server_hosts.assign(servers, "host");
    for (int32_t rank = 0; rank < servers; ++rank) {
      servers_.push_back(std::make_unique<Server>(options_));
      ASSERT_TRUE(servers_.back()->Listen("127.0.0.1", 0).ok());
      job_.server_endpoints.push_back(servers_.back()->endpoint());
    }
    ASSERT_TRUE(coordinator_->Start(job_).ok());
    for (int32_t rank = 0; rank < servers; ++rank)
      ASSERT_TRUE(servers_[rank]->Start(job_, rank).ok());
    first_ = std::make_unique<Worker>(job_, 0);
    ASSERT_TRUE(first_->Start().ok());
    JobDescription misled = job_;
    misled.server_endpoints.back() = stranger_.endpoint();
    second_ = std::make_unique<Worker>(misled, 1);
  }

  EngineOptions options_;
  JobDescription job_;
  Stranger stranger_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::unique_ptr<Worker> first_, second_;
};

// Protocol rule 15: training goes on without the server, and so the worker starts.
TEST_F(StartFailureTest, ALostServersPortMayHaveAnotherOwner) {
  StartJob(2);
  Status status = Internal("it has not ended");
  std::thread start([&] { status = second_->Start(); });
  stranger_.AwaitCaller();
  servers_[1]->Stop();
  start.join();
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto one = Send(*first_, "t", {1}), other = Send(*second_, "t", {2});
  EXPECT_TRUE(one->Wait().ok());
  EXPECT_TRUE(other->Wait().ok());
  EXPECT_EQ(one->output[0], 3);
}

// Protocol rule 21: it has not left in order, and elastic jobs go on after a loss only.
TEST_F(StartFailureTest, WhoDoesNotGetInIsLostForTheOthers) {
  StartJob(1);
  const auto pending = Send(*first_, "t", {1});
  const Status status = second_->Start();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
  second_.reset();
  const Status of_first = pending->Wait();
  EXPECT_EQ(of_first.code(), StatusCode::kUnavailable) << of_first.ToString();
  EXPECT_NE(of_first.message().find("worker 1"), std::string::npos) << of_first.ToString();
}

}  // namespace
}  // namespace byteps
