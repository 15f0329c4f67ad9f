// What a step costs each worker in jobs of more and more of them, on hosts of their own, over real
// sockets (protocol rule 30): the same number of frames. Processor time is printed only: all of a
// job is in this process, whose threads get in each other's way.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

constexpr int kServers = 4;
constexpr int kTensors = 160;
constexpr size_t kElements = 1024;
constexpr int kSteps = 5;

double ProcessCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Step(Job& job) {
  std::vector<std::shared_ptr<Pending>> pending;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    for (int rank = 0; rank < job.num_workers(); ++rank)
      pending.push_back(Send(job.worker(rank), "t" + std::to_string(tensor),
                             std::vector<float>(kElements, static_cast<float>(rank))));
  }
  for (const auto& each : pending) {
    const Status status = each->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  const auto sum = static_cast<float>(job.num_workers() * (job.num_workers() - 1) / 2);
  EXPECT_EQ(pending[0]->output[0], sum);
}

uint64_t FramesReceived(Job& job) {
  uint64_t frames = 0;
  for (int rank = 0; rank < job.num_workers(); ++rank)
    frames += job.worker(rank).counters().van.frames_received;
  return frames;
}

// Frames that a worker receives for each part that it pushes.
double FramesOfAPart(int32_t workers) {
  EngineOptions options;
  options.network.io_threads = 1;
  options.timeouts.heartbeat_timeout = 300;   // the machine may be busy
  options.timeouts.heartbeat_interval = 100;  // heartbeats are frames, more in a slow step
  Job job(workers, kServers, options, /*on_one_host=*/false);
  Step(job);
  const uint64_t frames = FramesReceived(job);
  double least = std::numeric_limits<double>::max();
  for (int step = 0; step < kSteps; ++step) {
    const double before = ProcessCpuSeconds();
    Step(job);
    least = std::min(least, ProcessCpuSeconds() - before);
  }
  const double frames_of_a_part =
      static_cast<double>(FramesReceived(job) - frames) / (kSteps * kTensors * workers);
  std::cout << workers << " workers: " << least << " s for a step, " << frames_of_a_part
            << " frames for a part" << std::endl;
  return frames_of_a_part;
}

// The reply, a question, and what acknowledges many of them, with reports.
constexpr double kMostFramesOfAPart = 3;

TEST(ScaleTest, APartIsFewFramesForAWorkerInALargeJob) {
  EXPECT_LT(FramesOfAPart(4), kMostFramesOfAPart);
  EXPECT_LT(FramesOfAPart(16), kMostFramesOfAPart);
  EXPECT_LT(FramesOfAPart(48), kMostFramesOfAPart);
}

}  // namespace
}  // namespace byteps
