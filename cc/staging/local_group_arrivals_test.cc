// Streams that wait for what servers send: of workers that are alone on their hosts, and of several
// on a host, for which the results come to memory that they share.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "cc/staging/testing/local_group_job.h"

namespace byteps {
namespace {

using Hosts = std::vector<std::string>;

// Whether there are GPUs, one for each rank; and the ranks' hosts.
class WaitingStreamsTest : public LocalGroupJob,
                           public ::testing::WithParamInterface<std::tuple<bool, Hosts>> {
 protected:
  WaitingStreamsTest() : LocalGroupJob(std::get<0>(GetParam())) {}

  // Streams wait from the time on when the workers of a host are connected.
  void StartConnected(EngineOptions options = {}) {
    const Hosts& hosts = std::get<1>(GetParam());
    const std::string missing = MissingGpus(static_cast<int>(hosts.size()));
    if (uses_gpus_ && !missing.empty()) GTEST_SKIP() << missing;
    StartJob(hosts, std::move(options));
    if (IsSkipped()) return;
    OnEachRank([](Rank& mine, int32_t) {
      Check(mine.Send(Tensor("first", 1), std::vector<float>(1))->Wait());
    });
  }

  bool SharesHosts() const {
    const Hosts& hosts = std::get<1>(GetParam());
    return std::set<std::string>(hosts.begin(), hosts.end()).size() < hosts.size();
  }
  float n() const { return static_cast<float>(size()); }
};

INSTANTIATE_TEST_SUITE_P(With, WaitingStreamsTest,
                         ::testing::Combine(::testing::Values(false, true),
                                            ::testing::Values(Hosts{"a", "b"},
                                                              Hosts{"a", "a", "b", "b"},
                                                              Hosts{"a", "b", "b"})),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param) ? "Gpus_" : "Arithmetic_";
                           for (const std::string& host : std::get<1>(info.param)) name += host;
                           return name;
                         });

TEST_P(WaitingStreamsTest, WaitBeforeTheirInputsAreComputed) {
  StartConnected();
  if (IsSkipped()) return;
  std::promise<void> computed;
  ComputeUntil(computed.get_future().share());
  const std::vector<std::shared_ptr<Sent>> sent = SendTwenty(5000);
  MakeStreamsWait(sent);
  computed.set_value();
  ExpectSums(sent, 5000);
}

TEST_P(WaitingStreamsTest, RunsOfAProgramTakeTurns) {
  StartConnected();
  if (IsSkipped()) return;
  constexpr int kRuns = 20;
  std::vector<std::shared_ptr<Sent>> sent(size() * kRuns);
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (int run = 0; run < kRuns; ++run) {
      // Nothing keeps a run's memory for longer than until the next but one.
      if (mine.cpu_device != nullptr) {
        EXPECT_LE(mine.cpu_device->pinned_pool().counters().bytes_in_use, 200000u);
      }
      auto& each = sent[size() * run + rank] = mine.SendAhead(
          Tensor("turns", 5000), std::vector<float>(5000, static_cast<float>(run + rank)));
      MakeStreamWait(mine, *each);
    }
  });
  ExpectSums(sent, 5000);
}

// Copies wait for their inputs one behind the other. So the first input that a run computes must
// not come behind the last one, though the run before has waited for that first.
TEST_P(WaitingStreamsTest, TheNextRunIsPlacedInTheOrderOfItsStarts) {
  StartConnected();
  if (IsSkipped()) return;
  const uint64_t before = server_->counters().pushes;
  std::promise<void> first, last;
  const auto send = [&](const char* name) {
    std::vector<std::shared_ptr<Sent>> sent;
    for (Rank& rank : ranks_)
      sent.push_back(rank.SendAhead(Tensor(name, 10), std::vector<float>(10, 1)));
    return sent;
  };
  ComputeUntil(first.get_future().share());
  const auto early = send("early"), late = send("late");
  MakeStreamsWait(late);
  MakeStreamsWait(early);
  const auto early_again = send("early");
  ComputeUntil(last.get_future().share());
  const auto late_again = send("late");
  first.set_value();
  const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
  while (server_->counters().pushes < before + 6 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(server_->counters().pushes, before + 6);
  last.set_value();
  MakeStreamsWait(early_again);
  MakeStreamsWait(late_again);
  for (const auto& sent : {early, late, early_again, late_again}) {
    for (const std::shared_ptr<Sent>& each : sent) {
      Check(each->Wait());
      EXPECT_EQ(each->input->Get(), std::vector<float>(10, n()));
    }
  }
}

// A module that CUDA loads keeps all others out until the stream that waits goes on. So what it
// waits for must come without a call of the device's, also where the next run of the program has
// been started already.
TEST_P(WaitingStreamsTest, WhatTheyWaitForComesWhileTheDeviceIsBusy) {
  StartConnected();
  if (IsSkipped() || uses_gpus_) return;
  const auto set_busy = [&](bool is_busy) {
    for (Rank& rank : ranks_) rank.cpu_device->BeBusy(is_busy);
  };
  std::promise<void> first, last;
  ComputeUntil(first.get_future().share());
  const std::vector<std::shared_ptr<Sent>> sent = SendTwenty(5000);
  MakeStreamsWait(sent);
  const std::vector<std::shared_ptr<Sent>> next = SendTwenty(5000);
  ComputeUntil(last.get_future().share());
  set_busy(true);
  first.set_value();
  for (const std::shared_ptr<Sent>& each : sent) Check(each->Wait());
  set_busy(false);
  last.set_value();
  MakeStreamsWait(next);
  ExpectSums(next, 5000);
}

// A stream would wait for ever for what does not come, and all that is behind it with it.
TEST_P(WaitingStreamsTest, GoOnWhenAWorkerIsLost) {
  StartConnected();
  if (IsSkipped()) return;
  const auto is_on_a = [this](int32_t rank) { return job_.worker_hosts[rank] == "a"; };
  OnEachRank([&](Rank& mine, int32_t rank) {
    // The shapes differ: it fails.
    const auto half = mine.SendAhead(Tensor("half", is_on_a(rank) ? 5000 : 8),
                                     std::vector<float>(is_on_a(rank) ? 5000 : 8, 1));
    EXPECT_FALSE(half->Wait().ok());
    if (!is_on_a(rank)) return;
    const auto none = mine.SendAhead(Tensor("none", 5000), std::vector<float>(5000, 7));
    MakeStreamWait(mine, *none);
    if (rank == 0) ranks_.back().worker->Stop();
    EXPECT_FALSE(none->Wait().ok());
    EXPECT_EQ(none->input->Get(), std::vector<float>(5000, 0));
  });
}

TEST_P(WaitingStreamsTest, GoOnWhenTheServerIsLost) {
  StartConnected();
  if (IsSkipped()) return;
  std::vector<std::shared_ptr<Sent>> sent;
  for (int32_t rank = 0; rank < size(); ++rank) {
    if (job_.worker_hosts[rank] != "a") continue;  // the others' waits at the server
    sent.push_back(ranks_[rank].SendAhead(Tensor("t", 5000), std::vector<float>(5000, 7)));
  }
  for (size_t rank = 0; rank < sent.size(); ++rank) MakeStreamWait(ranks_[rank], *sent[rank]);
  server_->Stop();
  for (const std::shared_ptr<Sent>& each : sent)
    EXPECT_EQ(each->Wait().code(), StatusCode::kUnavailable);
}

TEST_P(WaitingStreamsTest, WhatNoneWaitsForEndsByItself) {
  StartConnected();
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (int run = 0; run < 3; ++run) {
      const auto sent = mine.SendAhead(Tensor("left", 5000), std::vector<float>(5000, 3));
      const DeviceEvent event = sent->WaitForEvent();
      ASSERT_NE(event, nullptr);
      rank == 0 ? event->EndByItself() : Check(event->MakeStreamWait(mine.stream_handle()));
      Check(sent->Wait());
      EXPECT_EQ(sent->input->Get(), std::vector<float>(5000, 3 * n()));
    }
  });
}

TEST_P(WaitingStreamsTest, CopyAResultToWhereItIsWanted) {
  StartConnected();
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t) {
    const auto sent = mine.SendAhead(Tensor("elsewhere", 100000), std::vector<float>(100000, 3));
    const std::unique_ptr<Values> wanted = mine.NewValues(100000);
    const DeviceEvent event = sent->WaitForEvent();
    ASSERT_NE(event, nullptr);
    Check(event->CopyResult(mine.stream_handle(), wanted->pointer()));
    Check(sent->Wait());
    EXPECT_EQ(wanted->Get(), std::vector<float>(100000, 3 * n()));
    // Otherwise the host's sum is there.
    if (SharesHosts()) return;
    EXPECT_EQ(sent->input->Get(), std::vector<float>(100000, 3));
  });
}

// A tensor whose shape changes is another one under the same name.
TEST_P(WaitingStreamsTest, TensorsGrowAndShrink) {
  StartConnected();
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t) {
    for (const size_t count : {10, 5000, 100, 20000, 5000}) {
      const auto sent =
          mine.SendAhead(Tensor("size", static_cast<int64_t>(count)), std::vector<float>(count, 2));
      MakeStreamWait(mine, *sent);
      Check(sent->Wait());
      EXPECT_EQ(sent->input->Get(), std::vector<float>(count, 2 * n()));
    }
  });
}

// Where one stream cannot wait, or the devices decode, all exchange as without.
TEST_P(WaitingStreamsTest, OneOfAHostCannotWait) {
  if (uses_gpus_ || !SharesHosts()) GTEST_SKIP() << "for several ranks of a host";
  waits_for_nothing_ = 2;
  StartConnected();
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (int run = 0; run < 3; ++run) {
      const auto sent = mine.SendAhead(Tensor("t", 5000), std::vector<float>(5000, 3));
      if (job_.worker_hosts[rank] == "b") {
        Check(sent->Wait());
      } else {
        MakeStreamWait(mine, *sent);
        Check(sent->Wait());
      }
      EXPECT_EQ(sent->input->Get(), std::vector<float>(5000, 3 * n()));
    }
  });
}

TEST_P(WaitingStreamsTest, DoNotWaitForWhatTheDeviceDecodes) {
  StartConnected();
  if (IsSkipped()) return;
  TensorDescription tensor = Tensor("gradient", 100000);
  tensor.codec = "int8";
  OnEachRank([&](Rank& mine, int32_t) {
    const auto sent = mine.SendAhead(tensor, std::vector<float>(100000, 127));
    EXPECT_EQ(sent->WaitForEvent(), nullptr);
    Check(sent->Wait());
    EXPECT_EQ(sent->input->Get(), std::vector<float>(100000, 127 * n()));
  });
}

}  // namespace
}  // namespace byteps
