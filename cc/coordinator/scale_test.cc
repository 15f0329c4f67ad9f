// What a process of a job costs the coordinator in jobs of 8 to 1,024 workers: the same (protocol
// rule 30). Messages are counted; processor time is compared within one run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/thread_cpu.h"
#include "cc/coordinator/coordinator.h"
#include "cc/coordinator/testing/fake_peer.h"

namespace byteps {
namespace {

constexpr int32_t kSizes[] = {8, 64, 256, 1024};
constexpr int32_t kServers = 4;
constexpr int kTensors = 50;
// Of what a message costs with 1,024 workers, in what it costs with 64; see
// cc/server/scale_test.cc.
constexpr double kMostGrowth = 3;

class FakeJob {
 public:
  explicit FakeJob(int32_t count) : coordinator_(OptionsOf(&description_, count)) {
    EXPECT_TRUE(coordinator_.Start(description_).ok());
    for (int32_t rank = 0; rank < count; ++rank) Add(Role::kWorker, rank, &workers);
    for (int32_t rank = 0; rank < kServers; ++rank) Add(Role::kServer, rank, &servers);
  }
  ~FakeJob() { coordinator_.Stop(); }

  Coordinator& coordinator() { return coordinator_; }

  // Seconds of this thread for each worker that says what `message` returns for its rank.
  double CostOfMessage(const std::function<ControlMessage(int32_t)>& message) {
    const double before = ThreadCpuSeconds();
    for (size_t rank = 0; rank < workers.size(); ++rank) {
      const Status status = workers[rank]->Say(message(static_cast<int32_t>(rank)));
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    return (ThreadCpuSeconds() - before) / workers.size();
  }

  // How many messages all have been sent since the last call.
  size_t TakeCount() {
    size_t count = 0;
    for (const auto* peers : {&workers, &servers}) {
      for (const auto& peer : *peers) count += peer->TakePayloads().size();
    }
    return count;
  }

  // What a server does when it hears of tensors.
  void Acknowledge(uint64_t update) {
    for (const auto& server : servers) EXPECT_TRUE(server->Say(TableAck{update}).ok());
  }

  std::vector<std::unique_ptr<FakePeer>> workers, servers;

 private:
  static EngineOptions OptionsOf(JobDescription* job, int32_t count) {
    job->job_id = "a job";
    job->options.timeouts.heartbeat_timeout = job->options.timeouts.heartbeat_interval = 1000;
    for (int32_t rank = 0; rank < count; ++rank)
      job->worker_hosts.push_back("host" + std::to_string(rank));
    job->server_hosts.assign(kServers, "host");
    job->server_endpoints.resize(kServers);
    return job->options;
  }

  void Add(Role role, int32_t rank, std::vector<std::unique_ptr<FakePeer>>* peers) {
    peers->push_back(std::make_unique<FakePeer>(&coordinator_, description_.job_id, role, rank));
    EXPECT_TRUE(peers->back()->Connect().ok());
  }

  JobDescription description_;
  Coordinator coordinator_;
};

using Costs = std::map<int32_t, double>;

void ExpectFlat(const Costs& costs) {
  for (const auto& [count, cost] : costs)
    std::cout << count << " workers: " << cost * 1e6 << " us" << std::endl;
  EXPECT_LT(costs.at(1024), kMostGrowth * costs.at(64));
}

// The least of several jobs.
void NoteLeast(Costs* costs, int32_t count, double cost) {
  const auto [known, is_new] = costs->emplace(count, cost);
  if (!is_new) known->second = std::min(known->second, cost);
}

constexpr int kTimes = 3;

template <typename Body>
void ForEachSize(Body body) {
  for (const int32_t count : kSizes) {
    for (int i = 0; i < kTimes; ++i) body(count);
  }
}

TEST(ScaleTest, AMessageCostsTheSame) {
  Costs costs;
  ForEachSize([&](int32_t count) {
    FakeJob job(count);
    const auto message = [](int32_t) { return Reachable{"10.0.0.1", 1}; };
    NoteLeast(&costs, count, job.CostOfMessage(message));
    EXPECT_EQ(job.TakeCount(), 0u);
  });
  ExpectFlat(costs);
}

TEST(ScaleTest, ALinkReportCostsTheSame) {
  Costs costs;
  ForEachSize([&](int32_t count) {
    FakeJob job(count);
    const auto message = [](int32_t) { return LinkReport{1000000000, 1000, 17000000000}; };
    NoteLeast(&costs, count, job.CostOfMessage(message));
    EXPECT_EQ(job.TakeCount(), size_t(count) + kServers);
  });
  ExpectFlat(costs);
}

TEST(ScaleTest, AReportOfResultsCostsTheSame) {
  Costs costs;
  ForEachSize([&](int32_t count) {
    FakeJob job(count);
    ResultProgress held;
    for (uint64_t key = 1; key <= kTensors; ++key) held.tensors.push_back({key, 1});
    NoteLeast(&costs, count, job.CostOfMessage([&](int32_t) { return held; }));
    EXPECT_EQ(job.TakeCount(), size_t(count) + kServers) << "when the last one has them";
  });
  ExpectFlat(costs);
}

TEST(ScaleTest, ADeclarationCostsTheSameAndItsAnswerIsEncodedOnce) {
  Costs costs;
  ForEachSize([&](int32_t count) {
    FakeJob job(count);
    DeclareRequest request;
    request.request_id = 1;
    for (int i = 0; i < kTensors; ++i) {
      TensorDescription tensor;
      tensor.name = "layer/" + std::to_string(i);
      tensor.shape = {1000, 1000};
      request.tensors.push_back(tensor);
    }
    // The first one has the tensors placed; all wait for the servers.
    ASSERT_TRUE(job.workers[0]->Say(request).ok());
    for (int32_t rank = 1; rank < count / 2; ++rank)
      ASSERT_TRUE(job.workers[rank]->Say(request).ok());
    const double before = ThreadCpuSeconds();
    job.Acknowledge(1);
    for (int32_t rank = count / 2; rank < count; ++rank)
      ASSERT_TRUE(job.workers[rank]->Say(request).ok());
    NoteLeast(&costs, count, (ThreadCpuSeconds() - before) / count);
    std::set<const void*> payloads;
    for (const auto& worker : job.workers) {
      const std::vector<const void*> heard = worker->TakePayloads();
      ASSERT_EQ(heard.size(), 1u);
      payloads.insert(heard[0]);
    }
    EXPECT_EQ(payloads.size(), 1u);
    EXPECT_EQ(job.TakeCount(), size_t{kServers}) << "of one update of the table";
  });
  ExpectFlat(costs);
}

TEST(ScaleTest, ALeaveCostsTheSame) {
  Costs costs;
  ForEachSize([&](int32_t count) {
    FakeJob job(count);
    const auto begin = std::chrono::steady_clock::now();
    NoteLeast(&costs, count, job.CostOfMessage([](int32_t rank) { return Goodbye{{rank}}; }));
    const auto took = std::chrono::steady_clock::now() - begin;
    // An answer each, the end of the job for all, and what servers are told from time to time.
    const size_t batches = 1 + took / std::chrono::milliseconds(50);
    EXPECT_LE(job.TakeCount(), size_t(count) + (count + kServers) + kServers * (batches + 1));
    EXPECT_EQ(job.coordinator().failure(), "");
  });
  ExpectFlat(costs);
}

// All hear of the first one, which ends the job.
TEST(ScaleTest, ADeathAfterTheFirstCostsTheSame) {
  Costs costs;
  ForEachSize([&](int32_t count) {
    FakeJob job(count);
    job.workers[0]->Break();
    EXPECT_EQ(job.TakeCount(), size_t(count) - 1 + kServers);
    const double before = ThreadCpuSeconds();
    for (int32_t rank = 1; rank < count - 1; ++rank) job.workers[rank]->Break();
    NoteLeast(&costs, count, (ThreadCpuSeconds() - before) / (count - 2));
    EXPECT_EQ(job.TakeCount(), 0u) << "those whose connection has ended hear nothing";
  });
  ExpectFlat(costs);
}

TEST(ScaleTest, AStallOfAllIsFourMessagesForEach) {
  for (const int32_t count : kSizes) {
    FakeJob job(count);
    job.CostOfMessage([&](int32_t rank) -> ControlMessage {
      if (rank == count - 1) return Heartbeat{};  // all others wait for it
      return StallQuery{0, rank, 0, false, {{"t", 7, "float32[2] sum", 61}}};
    });
    // What each hears next, as soon as it does.
    const auto hear = [](FakePeer* worker) {
      std::vector<ControlMessage> heard;
      while (heard.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        heard = worker->TakeHeard();
      }
      EXPECT_EQ(heard.size(), 1u);
      return heard[0];
    };
    for (int32_t rank = 0; rank < count; ++rank) {
      const ControlMessage heard = hear(job.workers[rank].get());
      const auto* const question = std::get_if<StallQuery>(&heard);
      ASSERT_NE(question, nullptr);
      const bool has_sent = rank != count - 1;
      const StallAnswer answer{question->id, rank, {has_sent}, has_sent ? "waits" : "computes"};
      ASSERT_TRUE(job.workers[rank]->Say(answer).ok());
    }
    for (int32_t rank = 0; rank < count - 1; ++rank) {
      const ControlMessage heard = hear(job.workers[rank].get());
      const auto* const notice = std::get_if<StallNotice>(&heard);
      ASSERT_NE(notice, nullptr);
      EXPECT_EQ(notice->reporter, 0);
      EXPECT_EQ(notice->text.empty(), rank != 0);
      if (rank > 0) continue;
      EXPECT_NE(notice->text.find("rank " + std::to_string(count - 1) + ": computes"),
                std::string::npos)
          << notice->text;
    }
    EXPECT_EQ(job.TakeCount(), 0u);
  }
}

}  // namespace
}  // namespace byteps
