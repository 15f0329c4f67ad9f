// A worker whose I/O thread has no time for what arrives.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

constexpr int kWorkers = 2;
constexpr auto kBusy = std::chrono::seconds(5);

// Longer than silence may last: the scheduler's heartbeats arrive and wait (protocol rule 20).
TEST(BusyWorkerTest, ACallbackThatTakesLongIsNoSilenceOfTheScheduler) {
  EngineOptions options;
  options.network.io_threads = 1;
  options.timeouts.heartbeat_timeout = 2;
  Job job(kWorkers, 1, options);
  job.OnEachWorker([](Worker& worker, int rank) {
    auto pending = std::make_shared<Pending>(Values(rank, 100));
    ExchangeRequest request = Request("t", pending);
    request.done = [pending, rank](const Status& status) {
      if (rank == 0) std::this_thread::sleep_for(kBusy);
      pending->Finish(status);
    };
    worker.Enqueue(std::move(request));
    const Status status = pending->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExchangeRound(worker, rank, kWorkers, 0);
  });
  EXPECT_EQ(job.coordinator().failure(), "");
}

}  // namespace
}  // namespace byteps
