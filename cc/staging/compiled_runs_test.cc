// Memory that XLA owns is freed as soon as a run has ended or failed: tests free it at that moment,
// so that the sanitizers see who is late.
#include "cc/staging/compiled_runs.h"

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

constexpr size_t kFloats = 100000;

// A run of a program of one worker: its memory, and its ends.
class Program {
 public:
  Program(CompiledRuns* runs, uint32_t run) : runs_(*runs), run_(run) {}

  void Start(const std::string& name, float value, size_t floats = kFloats) {
    auto memory = std::make_unique<std::vector<float>>(floats, value);
    ExchangeRequest request;
    request.tensor.name = name;
    request.tensor.shape = {static_cast<int64_t>(floats)};
    request.input = memory->data();
    names_.push_back(name);
    memory_.push_back(std::move(memory));
    ASSERT_TRUE(runs_.Start(run_, std::move(request), 0).ok());
  }

  // As XLA does when another library's call has failed: it asks for no end, and frees the memory.
  void FailElsewhere() { memory_.clear(); }

  // As XLA does: it asks for all ends, and frees the memory when it knows them. The first failure,
  // or OK.
  Status End(std::vector<float>* results) {
    for (size_t i = 0; i < names_.size(); ++i) {
      runs_.WhenEnded(run_, names_[i], memory_[i]->data(),
                      [this](const Status& status, const void* result, uint64_t bytes) {
                        std::lock_guard<std::mutex> lock(mutex_);
                        if (!status.ok()) status_ = status;
                        if (bytes > 0) results_.push_back(*static_cast<const float*>(result));
                        ++ended_;
                        changed_.notify_all();
                      });
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, kTestTimeout, [this] { return ended_ == names_.size(); }))
      return Internal("the run did not end");
    memory_.clear();
    *results = results_;
    return status_;
  }

 private:
  CompiledRuns& runs_;
  const uint32_t run_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t ended_ = 0;
  std::vector<float> results_;
  Status status_;
};

std::unique_ptr<CompiledRuns> RunsOf(Worker& worker) {
  return std::make_unique<CompiledRuns>(
      [&worker](ExchangeRequest request) { worker.Enqueue(std::move(request)); },
      [](const std::function<void()>& continuation) { continuation(); });
}

TEST(CompiledRunsTest, ResultsComeAsOftenAsTheyAreAskedFor) {
  Job job(2, 1);
  job.OnEachWorker([](Worker& worker, int rank) {
    const auto runs = RunsOf(worker);
    for (uint32_t run = 1; run <= 20; ++run) {
      Program program(runs.get(), run);
      for (int i = 0; i < 10; ++i) program.Start("tensor " + std::to_string(i), rank + run);
      std::vector<float> results;
      ASSERT_TRUE(program.End(&results).ok());
      EXPECT_EQ(results, std::vector<float>(10, 2 * run + 1));
    }
  });
}

TEST(CompiledRunsTest, AFailedRunEndsWithItsExchangesAndTheNextOneWorks) {
  Job job(2, 1);
  job.OnEachWorker([](Worker& worker, int rank) {
    const auto runs = RunsOf(worker);
    for (uint32_t run = 1; run <= 40; run += 2) {
      {
        Program program(runs.get(), run);
        // The workers disagree about the second of many.
        for (int i = 0; i < 8; ++i)
          program.Start("tensor " + std::to_string(i), 1, i == 1 ? 10 + rank : kFloats);
        std::vector<float> results;
        const Status status = program.End(&results);
        EXPECT_NE(status.message().find("\"tensor 1\""), std::string::npos) << status.ToString();
      }
      Program program(runs.get(), run + 1);
      for (int i = 0; i < 8; ++i) program.Start("tensor " + std::to_string(i), 1);
      std::vector<float> results;
      const Status status = program.End(&results);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(results, std::vector<float>(8, 2));
    }
  });
}

// XLA does not say that a run has failed between start and done.
TEST(CompiledRunsTest, ARunThatFailsElsewhereHasSentWhatItStarted) {
  std::unique_ptr<CompiledRuns> runs_of[2];  // outlive the workers: exchanges end in them
  Job job(2, 1);
  std::promise<void> failed;
  job.OnEachWorker([&](Worker& worker, int rank) {
    runs_of[rank] = RunsOf(worker);
    if (rank == 1) failed.get_future().wait();
    Program program(runs_of[rank].get(), 1);
    for (int i = 0; i < 8; ++i) program.Start("tensor " + std::to_string(i), 1);
    if (rank == 0) {
      program.FailElsewhere();
      failed.set_value();
      return;
    }
    std::vector<float> results;
    ASSERT_TRUE(program.End(&results).ok());
    EXPECT_EQ(results, std::vector<float>(8, 2));
  });
}

TEST(CompiledRunsTest, ARunGetsItsOwnResultWhereAnEarlierOneHasFailed) {
  std::vector<float> sums = {5, 6};
  CompiledRuns runs(
      [&, next = size_t{0}](ExchangeRequest request) mutable {
        *static_cast<float*>(request.output) = sums[next++];
        request.done(OkStatus());
      },
      [](const std::function<void()>& continuation) { continuation(); });
  float memory = 1;
  for (uint32_t run = 1; run <= 2; ++run) {
    ExchangeRequest request;
    request.tensor.name = "tensor";
    request.tensor.shape = {1};
    request.input = &memory;
    ASSERT_TRUE(runs.Start(run, std::move(request), 0).ok());
  }
  float result = 0;
  runs.WhenEnded(2, "tensor", &memory, [&](const Status& status, const void* from, uint64_t) {
    ASSERT_TRUE(status.ok()) << status.ToString();
    result = *static_cast<const float*>(from);
  });
  EXPECT_EQ(result, sums[1]);
}

// The other workers may have started all of the run's exchanges: one that this worker left out
// would be paired with the exchange of its next run, and each one after it with the wrong one.
TEST(CompiledRunsTest, AfterAFailureTheRestOfARunStartsUntilSomebodyIsTold) {
  std::vector<std::string> enqueued;
  CompiledRuns runs(
      [&](ExchangeRequest request) {
        enqueued.push_back(request.tensor.name);
        request.done(Unavailable("the server was lost"));
      },
      [](const std::function<void()>& continuation) { continuation(); });
  Program program(&runs, 1);
  for (int i = 0; i < 3; ++i) program.Start(std::to_string(i), 1);
  EXPECT_EQ(enqueued, (std::vector<std::string>{"0", "1", "2"}));
  std::vector<float> results;
  EXPECT_FALSE(program.End(&results).ok());

  std::vector<float> memory(1);
  ExchangeRequest late;
  late.tensor.name = "late";
  late.tensor.shape = {1};
  late.input = memory.data();
  EXPECT_TRUE(runs.Start(1, std::move(late), 0).ok());
  EXPECT_EQ(enqueued.size(), 3u);
}

TEST(CompiledRunsTest, AWorkerThatStopsEndsItsRuns) {
  Job job(2, 1);
  const auto runs = RunsOf(job.worker(0));
  Program program(runs.get(), 1);
  for (int i = 0; i < 8; ++i) program.Start("alone " + std::to_string(i), 1);
  std::thread stopping([&] { job.worker(0).Stop(); });
  std::vector<float> results;
  EXPECT_FALSE(program.End(&results).ok());
  EXPECT_TRUE(results.empty());
  stopping.join();
}

TEST(CompiledRunsTest, MemoryThatHasMovedIsAnError) {
  Job job(1, 1);
  const auto runs = RunsOf(job.worker(0));
  const float moved = 1;
  Status status;
  runs->WhenEnded(1, "tensor", &moved,
                  [&](const Status& ended, const void*, uint64_t) { status = ended; });
  EXPECT_NE(status.message().find("has moved it"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace byteps
