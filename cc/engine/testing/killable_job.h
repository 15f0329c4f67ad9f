// For tests: a job whose servers are killed, and started again.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/testing/on_threads.h"
#include "cc/engine/testing/gated_proxy.h"
#include "cc/engine/testing/test_job.h"

namespace byteps {

inline constexpr uint64_t kAll = GatedProxy::kAll;

// What the random tests vary.
struct KillableShape {
  int workers;
  int servers;
  int connections;
  bool in_rank_order;
};

inline std::string NameOf(const KillableShape& shape) {
  return std::to_string(shape.workers) + "Workers" + std::to_string(shape.servers) + "Servers" +
         std::to_string(shape.connections) + "Connections" +
         (shape.in_rank_order ? "InRankOrder" : "");
}

// Short parts: a tensor has many.
inline EngineOptions OptionsOf(const KillableShape& shape) {
  EngineOptions options;
  options.flow.part_bytes = 16 * 1024;
  options.network.connections_per_server = shape.connections;
  options.deterministic = shape.in_rank_order;
  return options;
}

// A job whose workers reach the servers through a proxy for each pair. One thread at a time kills
// servers and starts them again.
class KillableJob {
 public:
  explicit KillableJob(const KillableShape& shape)
      : KillableJob(shape.workers, shape.servers, OptionsOf(shape)) {}
  KillableJob(int32_t workers, int32_t servers, EngineOptions options) {
    options.network.read_peer_memory = false;
    options.compression.min_compress_bytes = 0;
    coordinator_ = std::make_unique<Coordinator>(options);
    Check(coordinator_->Listen("127.0.0.1", 0));
    JobDescription& job = description_;
    // Another process that runs such jobs may get a port that was this one's.
    job.job_id = "failover-" + std::to_string(getpid());
    job.options = options;
    job.coordinator_endpoint = coordinator_->endpoint();
    job.worker_hosts.assign(workers, "host");
    job.server_hosts.assign(servers, "host");
    for (int32_t rank = 0; rank < servers; ++rank) {
      servers_.push_back(std::make_unique<Server>(options));
      Check(servers_.back()->Listen("127.0.0.1", 0));
      job.server_endpoints.push_back(servers_.back()->endpoint());
    }
    Check(coordinator_->Start(job));
    for (int32_t rank = 0; rank < servers; ++rank) Check(servers_[rank]->Start(job, rank));
    gates_.resize(servers);
    for (int32_t rank = 0; rank < workers; ++rank) {
      JobDescription seen = job;
      for (int32_t server = 0; server < servers; ++server) {
        gates_[server].push_back(std::make_unique<GatedProxy>(job.server_endpoints[server]));
        seen.server_endpoints[server] = gates_[server].back()->endpoint();
      }
      workers_.push_back(std::make_unique<Worker>(seen, rank));
      Check(workers_.back()->Start());
    }
  }

  // As kill -9: nothing that is in flight arrives.
  void Kill(int32_t server) {
    for (const auto& gate : gates_[server]) gate->Die();
    servers_[server]->Stop();
  }

  // Starts one anew that has been killed, once that is known. All workers reach it through
  // gate(server, 0).
  void StartAgain(int32_t server) {
    const auto is_lost = [&] {
      const std::vector<int32_t> lost = coordinator_->lost_servers();
      return std::find(lost.begin(), lost.end(), server) != lost.end();
    };
    const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(20);
    while (!is_lost()) {
      ASSERT_LT(MonotonicNanos(), deadline_ns) << "nobody has missed the server";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ended_servers_.push_back(std::move(servers_[server]));
    servers_[server] = std::make_unique<Server>(description_.options);
    Check(servers_[server]->Listen("127.0.0.1", 0));
    for (auto& gate : gates_[server]) ended_gates_.push_back(std::move(gate));
    gates_[server].clear();
    gates_[server].push_back(std::make_unique<GatedProxy>(servers_[server]->endpoint()));
    Check(coordinator_->Readmit(server, gates_[server][0]->endpoint(), "host"));
    Check(servers_[server]->Start(description_, server));
  }

  Coordinator& coordinator() { return *coordinator_; }
  Worker& worker(int32_t rank) { return *workers_[rank]; }
  Server& server(int32_t rank) { return *servers_[rank]; }
  GatedProxy& gate(int32_t server, int32_t worker) { return *gates_[server][worker]; }
  size_t num_gates(int32_t server) const { return gates_[server].size(); }
  int32_t num_workers() const { return static_cast<int32_t>(workers_.size()); }

  // On a thread for each worker.
  template <typename Body>
  void OnEachWorker(Body body) {
    OnThreads(num_workers(), [&](int32_t rank) { body(*workers_[rank], rank); });
  }

 private:
  static void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

  JobDescription description_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Server>> servers_, ended_servers_;
  std::vector<std::vector<std::unique_ptr<GatedProxy>>> gates_;
  std::vector<std::unique_ptr<GatedProxy>> ended_gates_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// The sum of three of these depends on their order: it is 0, 1 or something else.
inline std::vector<float> OrderMatters(int rank, size_t count) {
  const float value = rank == 0 ? 1e8f : rank == 1 ? -1e8f : 1.0f;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value + static_cast<float>(rank == 2 ? i % 7 : 0);
  return values;
}

// One round of tensor "t" on all workers, and what they got.
inline std::vector<std::shared_ptr<Pending>> SendOnAll(KillableJob& job, size_t count) {
  std::vector<std::shared_ptr<Pending>> sent;
  for (int32_t rank = 0; rank < job.num_workers(); ++rank)
    sent.push_back(Send(job.worker(rank), "t", OrderMatters(rank, count)));
  return sent;
}

inline void ExpectAllTheSame(const std::vector<std::shared_ptr<Pending>>& sent) {
  for (const auto& pending : sent) {
    const Status status = pending->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  for (size_t rank = 1; rank < sent.size(); ++rank) {
    ASSERT_EQ(std::memcmp(sent[0]->output.data(), sent[rank]->output.data(),
                          sent[0]->output.size() * sizeof(float)),
              0)
        << "worker " << rank << " has another sum than worker 0";
  }
}

}  // namespace byteps
