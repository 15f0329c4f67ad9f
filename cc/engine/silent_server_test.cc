// A worker that waits for a server which is there and does not answer.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "cc/coordinator/coordinator.h"
#include "cc/van/tcp/socket.h"
#include "cc/worker/worker.h"

namespace byteps {
namespace {

// Takes connections and says nothing.
class SilentServer {
 public:
  Status Listen(Endpoint* endpoint) {
    BYTEPS_RETURN_IF_ERROR(ListenOn("127.0.0.1", 0, &socket_, endpoint));
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }
  ~SilentServer() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int connections() const { return connections_; }

 private:
  void Run() {
    while (!stopping_) {
      pollfd entry{socket_.get(), POLLIN, 0};
      if (poll(&entry, 1, 50) != 1) continue;
      taken_.emplace_back(accept(socket_.get(), nullptr, nullptr));
      ++connections_;
    }
  }

  Socket socket_;
  std::vector<Socket> taken_;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class SilentServerTest : public ::testing::Test {
 protected:
  Status StartWorker(double connect_timeout) {
    EngineOptions options;
    options.timeouts.connect_timeout = connect_timeout;
    coordinator_ = std::make_unique<Coordinator>(options);
    EXPECT_TRUE(coordinator_->Listen("127.0.0.1", 0).ok());
    JobDescription job;
    job.job_id = "job";
    job.options = options;
    job.worker_hosts = {"a"};
    job.server_hosts = {"b"};
    job.server_endpoints.resize(1);
    job.coordinator_endpoint = coordinator_->endpoint();
    EXPECT_TRUE(server_.Listen(&job.server_endpoints[0]).ok());
    EXPECT_TRUE(coordinator_->Start(job).ok());
    const Status status = Worker(job, 0).Start();
    return status;
  }

  SilentServer server_;
  std::unique_ptr<Coordinator> coordinator_;
};

// A server on a slow machine would get one more half-open connection each time, and log it.
TEST_F(SilentServerTest, AServerThatDoesNotAnswerIsAskedOnce) {
  const Status status = StartWorker(3);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("BYTEPS_CONNECT_TIMEOUT"), std::string::npos);
  EXPECT_EQ(server_.connections(), 1);
}

TEST_F(SilentServerTest, TheWaitEndsWhenTheJobDoes) {
  const auto began = std::chrono::steady_clock::now();
  std::thread ends([this] {
    while (server_.connections() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    coordinator_->Stop();
  });
  const Status status = StartWorker(60);
  ends.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

}  // namespace
}  // namespace byteps
