// Servers that are lost and started again while training goes on: they get their share of the parts
// back, and every worker has every sum, the same on all.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/testing/killable_job.h"

namespace byteps {
namespace {

constexpr size_t kPartFloats = 1024;
constexpr size_t kParts = 8;
constexpr size_t kFloats = kParts * kPartFloats;
constexpr uint64_t kReplyBytes = kFrameHeaderBytes + kPartFloats * sizeof(float);

EngineOptions ShortParts() {
  EngineOptions options;
  options.flow.part_bytes = kPartFloats * sizeof(float);
  return options;
}

// Rounds until a server that has been started again has its share of them.
void TrainUntilItServes(KillableJob& job, int32_t server) {
  const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(20);
  while (job.server(server).counters().rounds_completed == 0) {
    ASSERT_LT(MonotonicNanos(), deadline_ns) << "the server gets no parts";
    ExpectAllTheSame(SendOnAll(job, kFloats));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(ReturnTest, AServerThatIsStartedAgainGetsItsShareBack) {
  KillableJob job(3, 2, ShortParts());
  for (int life = 0; life < 3; ++life) {
    ExpectAllTheSame(SendOnAll(job, kFloats));
    job.Kill(0);
    ExpectAllTheSame(SendOnAll(job, kFloats));
    job.StartAgain(0);
    TrainUntilItServes(job, 0);
    ASSERT_FALSE(HasFatalFailure()) << "in life " << life;
    const uint64_t before[2] = {job.server(0).counters().rounds_completed,
                                job.server(1).counters().rounds_completed};
    for (int round = 0; round < 5; ++round) ExpectAllTheSame(SendOnAll(job, kFloats));
    for (int32_t server = 0; server < 2; ++server) {
      EXPECT_EQ(job.server(server).counters().rounds_completed - before[server], 5 * kParts / 2)
          << "server " << server << " in life " << life;
    }
  }
  for (int32_t rank = 0; rank < 3; ++rank) {
    const WorkerCounters counters = job.worker(rank).counters();
    EXPECT_EQ(counters.unanswered_bytes, 0u);
    EXPECT_EQ(counters.lost_servers, 3u);
    EXPECT_EQ(counters.returned_servers, 3u);
    EXPECT_EQ(counters.started_exchanges, counters.exchanges);
    EXPECT_GT(counters.exchanging_ns, 0);
  }
  EXPECT_EQ(job.coordinator().failure(), "");
}

TEST(ReturnTest, TheOthersMayDieThen) {
  KillableJob job(2, 2, ShortParts());
  ExpectAllTheSame(SendOnAll(job, kFloats));
  for (int life = 0; life < 4; ++life) {
    const int32_t server = life % 2;
    job.Kill(server);
    ExpectAllTheSame(SendOnAll(job, kFloats));
    job.StartAgain(server);
    TrainUntilItServes(job, server);
    ASSERT_FALSE(HasFatalFailure()) << "in life " << life;
  }
}

TEST(ReturnTest, OnlyLostServersAreTakenBack) {
  KillableJob job(2, 2, ShortParts());
  ExpectAllTheSame(SendOnAll(job, kFloats));
  EXPECT_TRUE(job.coordinator().lost_servers().empty());
  EXPECT_EQ(job.coordinator().Readmit(0, {"127.0.0.1", 1}, "host").code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(job.coordinator().Readmit(7, {"127.0.0.1", 1}, "host").code(),
            StatusCode::kFailedPrecondition);
}

// Server 1 has all parts, and has sent worker 0 so many replies and a half; nobody else has got
// any.
class MiddleOfARound : public ::testing::TestWithParam<int> {
 protected:
  MiddleOfARound() : job_(3, 2, ShortParts()) {
    ExpectAllTheSame(SendOnAll(job_, kFloats));
    job_.Kill(0);
    ExpectAllTheSame(SendOnAll(job_, kFloats));
    job_.gate(1, 0).Admit(kAll, GetParam() * kReplyBytes + kReplyBytes / 2);
    job_.gate(1, 1).Admit(kAll, 0);
    job_.gate(1, 2).Admit(kAll, 0);
    sent_ = SendOnAll(job_, kFloats);
    const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(20);
    while (!job_.gate(1, 0).is_shut() || !job_.gate(1, 1).is_shut() || !job_.gate(1, 2).is_shut()) {
      if (MonotonicNanos() > deadline_ns) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void Open() {
    // What has been said until now reaches all workers first.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int32_t rank = 0; rank < 3; ++rank) job_.gate(1, rank).Admit(kAll, kAll);
  }
  // Server 0, and all workers know it.
  void StartAgain() {
    job_.StartAgain(0);
    const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(20);
    while (job_.gate(0, 0).connections() < 3) {
      ASSERT_LT(MonotonicNanos(), deadline_ns) << "not all workers connect to it";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  KillableJob job_;
  std::vector<std::shared_ptr<Pending>> sent_;
};

TEST_P(MiddleOfARound, AllGetTheSameSum) {
  job_.StartAgain(0);
  Open();
  ExpectAllTheSame(sent_);
  TrainUntilItServes(job_, 0);
}

// It is lost once more while worker 0 cannot say yet how far it is.
TEST_P(MiddleOfARound, ItDiesAgain) {
  StartAgain();
  job_.Kill(0);
  Open();
  ExpectAllTheSame(sent_);
  for (int round = 0; round < 3; ++round) ExpectAllTheSame(SendOnAll(job_, kFloats));
  job_.StartAgain(0);
  TrainUntilItServes(job_, 0);
}

// The new one has no part yet.
TEST_P(MiddleOfARound, TheOtherDies) {
  StartAgain();
  job_.Kill(1);
  ExpectAllTheSame(sent_);
  for (int round = 0; round < 3; ++round) ExpectAllTheSame(SendOnAll(job_, kFloats));
}

INSTANTIATE_TEST_SUITE_P(Replies, MiddleOfARound, ::testing::Values(0, 3, 7));

class RandomReturnsTest : public ::testing::TestWithParam<KillableShape> {};

// Servers die at random bytes and are started again, all through a job. One that has its share is
// always left.
TEST_P(RandomReturnsTest, SumsAreExact) {
  const KillableShape shape = GetParam();
  Draw draw;
  const int jobs = Asked("BYTEPS_TEST_DEATHS").value_or(2);
  constexpr int kRounds = 40;
  int returns = 0;
  for (int i = 0; i < jobs; ++i) {
    KillableJob job(shape);
    std::atomic<bool> over{false};
    const auto wait_for = [&](const auto& condition) {
      while (!condition() && !over) std::this_thread::sleep_for(std::chrono::microseconds(200));
    };
    std::thread killer([&] {
      int32_t serving = 0;  // has its share, and is spared
      while (!over && !::testing::Test::HasFatalFailure()) {
        const auto doomed = static_cast<int32_t>((serving + 1 + draw(shape.servers - 2)) %
                                                 static_cast<uint64_t>(shape.servers));
        GatedProxy& gate = job.gate(doomed, static_cast<int32_t>(draw(job.num_gates(doomed) - 1)));
        const bool in_push = draw(1) == 0;
        const uint64_t bytes = draw(1000 * 1000);
        gate.Admit(in_push ? bytes : kAll, in_push ? kAll : bytes);
        wait_for([&] { return gate.is_shut(); });
        if (over) break;
        job.Kill(doomed);
        std::this_thread::sleep_for(std::chrono::microseconds(draw(5000)));
        job.StartAgain(doomed);
        ++returns;
        if (draw(1) == 0) continue;  // perhaps it dies again before it has parts
        wait_for([&] { return job.server(doomed).counters().rounds_completed > 0; });
        serving = doomed;
      }
    });
    job.OnEachWorker([&](Worker& worker, int rank) {
      for (int round = 0; round < kRounds && !::testing::Test::HasFatalFailure(); ++round)
        ExchangeRound(worker, rank, shape.workers, round);
    });
    over = true;
    killer.join();
    ASSERT_FALSE(HasFatalFailure()) << "in job " << i;
  }
  EXPECT_GT(returns, 0);
  std::cout << returns << " returns" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Jobs, RandomReturnsTest,
                         ::testing::Values(KillableShape{2, 2, 1, false},
                                           KillableShape{3, 2, 2, false},
                                           KillableShape{2, 3, 1, true}),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace byteps
