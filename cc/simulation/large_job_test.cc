// A step of BERT-large with as many servers as workers, each on a host of its own: how long the
// NICs are busy, with the parts and the credit that the coordinator chooses for such links.
//
// A byte stands for kScale bytes of the model, of a part and of the credit. What is exact are the
// numbers of tensors, parts, frames and peers, and with them the engine's decisions.
//
//     BYTEPS_SIMULATION_PEERS=64    so many workers, and as many servers; 16 by default
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/coordinator/coordinator.h"
#include "cc/coordinator/state/tuning.h"
#include "cc/server/server.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/program_exchange.h"
#include "cc/simulation/testing/seeds.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulated_van.h"
#include "cc/worker/worker.h"

namespace byteps {
namespace {

constexpr int64_t kScale = 1024;
constexpr int kSteps = 2;  // in the first one the tensors are declared, too
constexpr double kNicBytesPerSecond = 25e9 / 8;
constexpr double kCpuBytesPerSecond = 12e9;

// Elements of each gradient, in the order of the layers.
std::vector<int64_t> BertLarge() {
  constexpr int64_t kWidth = 1024, kWords = 30522, kPlaces = 512;
  std::vector<int64_t> elements = {kWords * kWidth, kPlaces * kWidth, 2 * kWidth, kWidth, kWidth};
  for (int layer = 0; layer < 24; ++layer) {
    for (int i = 0; i < 4; ++i) elements.insert(elements.end(), {kWidth * kWidth, kWidth});
    elements.insert(elements.end(), {kWidth, kWidth, 4 * kWidth * kWidth, 4 * kWidth,
                                     4 * kWidth * kWidth, kWidth, kWidth, kWidth});
  }
  elements.insert(elements.end(), {kWidth * kWidth, kWidth});
  return elements;
}

class LargeJob {
 public:
  explicit LargeJob(int32_t peers) : peers_(peers), schedule_(1), network_(&schedule_) {
    HostSpeeds speeds;
    speeds.nic_nanos_per_byte = kScale / kNicBytesPerSecond * 1e9;
    speeds.cpu_nanos_per_byte = kScale / kCpuBytesPerSecond * 1e9;
    speeds.frame_nanos = 200;
    speeds.delay_ns = 20000;
    speeds.piece_bytes = (256 << 10) / kScale;
    speeds.kernel_bytes = (512 << 10) / kScale;
    network_.GiveHosts(speeds);
    for (const int64_t elements : BertLarge()) {
      const int64_t bytes = elements * static_cast<int64_t>(sizeof(float)) / kScale;
      elements_.push_back(std::max<int64_t>(bytes / static_cast<int64_t>(sizeof(int64_t)), 1));
      bytes_ += elements_.back() * static_cast<int64_t>(sizeof(int64_t));
    }
  }

  // Returns what went wrong, or "".
  std::string Run() {
    schedule_.Run([this] { RunJob(); });
    return schedule_.failure();
  }

  uint64_t events() const { return schedule_.events_done(); }
  size_t tensors() const { return elements_.size(); }
  // Simulated seconds of each step, and what its bytes need on a worker's NIC.
  const std::vector<double>& steps() const { return steps_; }
  double optimum() const { return static_cast<double>(bytes_) * kScale / kNicBytesPerSecond; }

 private:
  void ExpectOk(const Status& status) {
    if (!status.ok()) schedule_.Fail(status.ToString());
  }
  std::unique_ptr<Van> NewVan(const std::string& process) {
    return std::make_unique<SimulatedVan>(&network_, process);
  }

  void RunJob() {
    JobDescription job;
    job.job_id = "simulation";
    const TunedSizes sizes = SizesFor(static_cast<uint64_t>(kNicBytesPerSecond),
                                      /*round_trip_ns=*/100000, peers_, job.options);
    job.options.flow.part_bytes = sizes.part_bytes / kScale;
    job.options.flow.credit_bytes = sizes.credit_bytes / kScale;
    job.options.timeouts.connect_timeout = 100;
    for (int32_t rank = 0; rank < peers_; ++rank) {
      job.worker_hosts.push_back("w" + std::to_string(rank));
      job.server_hosts.push_back("s" + std::to_string(rank));
    }
    Coordinator coordinator(job.options, NewVan("coordinator"));
    ExpectOk(coordinator.Listen("", 0));
    job.coordinator_endpoint = coordinator.endpoint();
    std::vector<std::unique_ptr<Server>> servers;
    for (int32_t rank = 0; rank < peers_; ++rank) {
      servers.push_back(std::make_unique<Server>(job.options, NewVan(job.server_hosts[rank])));
      ExpectOk(servers.back()->Listen("", 0));
      job.server_endpoints.push_back(servers.back()->endpoint());
    }
    ExpectOk(coordinator.Start(job));
    for (int32_t rank = 0; rank < peers_; ++rank) ExpectOk(servers[rank]->Start(job, rank));
    std::vector<std::unique_ptr<Worker>> workers;
    for (int32_t rank = 0; rank < peers_; ++rank) {
      workers.push_back(
          std::make_unique<Worker>(job, rank, nullptr, NewVan(job.worker_hosts[rank])));
      ExpectOk(workers.back()->Start());
    }
    ProgramBarrier barrier(&schedule_, peers_);
    std::vector<Thread> programs(peers_);
    for (int32_t rank = 0; rank < peers_; ++rank) {
      programs[rank] = Thread("program", [this, rank, worker = workers[rank].get(), &barrier] {
        for (int step = 0; step < kSteps; ++step) {
          barrier.Meet(rank);
          const int64_t begin_ns = schedule_.NowNanos();
          Step(worker, rank);
          barrier.Meet(rank);
          if (rank == 0)
            steps_.push_back(static_cast<double>(schedule_.NowNanos() - begin_ns) * 1e-9);
        }
        worker->Stop();
      });
    }
    for (Thread& program : programs) program.Join();
    workers.clear();
    for (auto& server : servers) server->Stop();
    coordinator.Stop();
  }

  // All gradients at once, those of the last layer first.
  void Step(Worker* worker, int32_t rank) {
    std::vector<std::shared_ptr<ProgramExchange>> begun(elements_.size());
    for (size_t i = elements_.size(); i-- > 0;) {
      ExchangeRequest request;
      request.tensor.name = "gradient" + std::to_string(i);
      request.priority = -static_cast<int32_t>(i);
      begun[i] = ProgramExchange::Begin(worker, std::move(request),
                                        std::vector<int64_t>(elements_[i], rank + 1));
    }
    const int64_t sum = int64_t{peers_} * (peers_ + 1) / 2;
    for (const auto& each : begun) {
      ExpectOk(each->Await());
      if (std::count(each->output.begin(), each->output.end(), sum) !=
          static_cast<std::ptrdiff_t>(each->output.size()))
        schedule_.Fail("a sum is wrong");
    }
  }

  const int32_t peers_;
  EventSchedule schedule_;
  SimulatedNetwork network_;
  std::vector<int64_t> elements_;
  int64_t bytes_ = 0;
  std::vector<double> steps_;
};

class LargeJobTest : public SimulationTest {};

TEST_F(LargeJobTest, AStepOfBertLargeKeepsAllNicsBusy) {
  const auto begin = std::chrono::steady_clock::now();
  const auto peers = static_cast<int32_t>(Given("BYTEPS_SIMULATION_PEERS", 16));
  LargeJob job(peers);
  ASSERT_EQ(job.tensors(), 391u);
  ASSERT_EQ(job.Run(), "");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_EQ(job.steps().size(), static_cast<size_t>(kSteps));
  std::cout << peers << " workers and servers, " << kSteps << " steps: " << job.events()
            << " events in " << seconds << " s; the last step takes " << job.steps().back()
            << " simulated seconds, " << job.steps().back() / job.optimum()
            << " times what its bytes need" << std::endl;
  EXPECT_GE(job.steps().back(), job.optimum()) << "faster than a NIC";
  EXPECT_LE(job.steps().back(), 1.25 * job.optimum());
}

}  // namespace
}  // namespace byteps
