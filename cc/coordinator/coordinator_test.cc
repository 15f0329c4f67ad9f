#include "cc/coordinator/coordinator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "cc/coordinator/coordinator_link.h"
#include "cc/coordinator/testing/fake_peer.h"

namespace byteps {
namespace {

constexpr int kServers = 12;
constexpr int kJobs = 12;

// A process of a job, as far as the coordinator sees it. A worker that hears of a loss leaves.
class Member {
 public:
  Member(const JobDescription& job, Role role, int32_t rank)
      : role_(role),
        rank_(rank),
        link_([this](ControlMessage message) { Hear(message); }, [](const Status&) {}) {
    VanOptions options;
    options.io_threads = 1;
    van_ = NewTcpVan(options);
    const Status status = link_.Start(van_.get(), job, role, rank);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  ~Member() {
    link_.Stop();
    van_->Stop();
  }

  // What it has heard by the end of the job, in that order.
  std::string HeardUntilTheEnd() {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_over = [this] { return heard_.find("ended") != std::string::npos; };
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), is_over)) << heard_;
    return heard_;
  }

 private:
  void Hear(const ControlMessage& message) {
    const bool is_loss = std::holds_alternative<PeerLost>(message);
    if (is_loss && role_ == Role::kWorker) link_.Send(Goodbye{{rank_}});
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_loss) heard_ += "lost ";
    if (std::holds_alternative<Goodbye>(message)) heard_ += "left ";
    if (std::holds_alternative<JobEnded>(message)) heard_ += "ended";
    changed_.notify_all();
  }

  const Role role_;
  const int32_t rank_;
  std::mutex mutex_;  // guards `heard_`
  std::condition_variable changed_;
  std::string heard_;
  CoordinatorLink link_;
  std::unique_ptr<Van> van_;
};

// A server that heard only that the job has ended would go, and not come back for the next one. Two
// threads say these things: heartbeats find the loss, and a goodbye the end.
TEST(CoordinatorTest, AllHearOfALossBeforeTheEnd) {
  for (int number = 0; number < kJobs; ++number) {
    JobDescription job;
    job.job_id = "a job";
    job.options.timeouts.heartbeat_interval = 0.01;
    job.options.timeouts.heartbeat_timeout = 10;
    job.options.timeouts.connect_timeout = 0.3;  // worker 1 never comes
    job.worker_hosts = {"host", "host"};
    job.server_hosts.assign(kServers, "host");
    job.server_endpoints.resize(kServers);
    Coordinator coordinator(job.options);
    ASSERT_TRUE(coordinator.Listen("127.0.0.1", 0).ok());
    job.coordinator_endpoint = coordinator.endpoint();
    ASSERT_TRUE(coordinator.Start(job).ok());
    std::vector<std::unique_ptr<Member>> members;
    members.push_back(std::make_unique<Member>(job, Role::kWorker, 0));
    for (int rank = 0; rank < kServers; ++rank)
      members.push_back(std::make_unique<Member>(job, Role::kServer, rank));
    for (const auto& member : members)
      EXPECT_EQ(member->HeardUntilTheEnd(), "lost left ended") << "job " << number;
    if (HasFailure()) return;
  }
}

// The connection breaks between the coordinator's Welcome and the worker that waits for it.
TEST(CoordinatorTest, WhoHasNotHeardThatItWasLetInMayComeAnew) {
  JobDescription job;
  job.job_id = "a job";
  job.worker_hosts = {"host"};
  job.server_hosts = {"host"};
  job.server_endpoints.resize(1);
  Coordinator coordinator(job.options);
  ASSERT_TRUE(coordinator.Start(job).ok());
  FakePeer worker(&coordinator, job.job_id, Role::kWorker, 0);
  ASSERT_TRUE(worker.Connect().ok());
  ASSERT_TRUE(worker.Connect().ok()) << "as new as before";
  ASSERT_TRUE(worker.Say(Reachable{"10.0.0.1", 1}).ok());
  FakePeer another(&coordinator, job.job_id, Role::kWorker, 0);
  EXPECT_EQ(another.Connect().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(worker.Say(Goodbye{{0}}).ok());
  EXPECT_EQ(worker.TakeHeard().size(), 2u) << "the answer, and the end of the job";
  EXPECT_EQ(coordinator.failure(), "");
  coordinator.Stop();
}

// Its I/O thread, of which it has one, is busy with whoever knocks.
class BusyCoordinator : public Coordinator {
 public:
  using Coordinator::Coordinator;
  Status OnHello(const Hello& hello, const std::string& address,
                 byteps::ConnectionHandler** handler) override {
    if (seconds_busy > 0) std::this_thread::sleep_for(std::chrono::seconds(seconds_busy));
    return Coordinator::OnHello(hello, address, handler);
  }
  std::atomic<int> seconds_busy{0};
};

// What it has not read yet tells that the others live (protocol rule 20).
TEST(CoordinatorTest, ABusyCoordinatorTakesNobodyForLost) {
  JobDescription job;
  job.job_id = "a job";
  job.options.timeouts.heartbeat_interval = 0.05;
  job.options.timeouts.heartbeat_timeout = 2;
  job.worker_hosts = {"host"};
  job.server_hosts = {"host", "host"};
  job.server_endpoints.resize(2);
  BusyCoordinator coordinator(job.options);
  ASSERT_TRUE(coordinator.Listen("127.0.0.1", 0).ok());
  job.coordinator_endpoint = coordinator.endpoint();
  ASSERT_TRUE(coordinator.Start(job).ok());
  Member worker(job, Role::kWorker, 0), server(job, Role::kServer, 0),
      another(job, Role::kServer, 1);
  coordinator.seconds_busy = 5;
  const std::unique_ptr<Van> van = NewTcpVan({});
  Hello stranger;
  stranger.job_id = "another job";
  std::shared_ptr<Connection> connection;
  EXPECT_FALSE(
      van->Connect(job.coordinator_endpoint, stranger, Hello(), nullptr, 20, &connection).ok());
  EXPECT_EQ(coordinator.failure(), "");
}

}  // namespace
}  // namespace byteps
