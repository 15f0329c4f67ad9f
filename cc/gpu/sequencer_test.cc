// The launch log with threads for ranks and arithmetic for GPUs: hosts of three and one.
#include "cc/gpu/sequencer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>

#include "cc/base/host_map.h"

namespace byteps {
namespace {

using Kind = LaunchEntry::Kind;

LaunchReport Ready(int32_t local_rank, uint64_t key, uint64_t round, uint32_t parts = 1,
                   uint64_t agreement = 0) {
  LaunchReport report;
  report.local_rank = local_rank;
  report.key = key;
  report.round = round;
  report.part_count = parts;
  report.agreement = agreement;
  return report;
}

LaunchReport Replied(int32_t local_rank, uint64_t key, uint64_t round, uint32_t part = 0) {
  LaunchReport report = Ready(local_rank, key, round);
  report.kind = LaunchReport::Kind::kReplied;
  report.part = part;
  return report;
}

LaunchReport Failed(int32_t local_rank, uint64_t key, uint64_t round) {
  LaunchReport report = Ready(local_rank, key, round);
  report.kind = LaunchReport::Kind::kFailed;
  report.reason = Unavailable("a server is lost");
  return report;
}

LaunchReport Leaving(int32_t local_rank) {
  LaunchReport report;
  report.local_rank = local_rank;
  report.kind = LaunchReport::Kind::kLeaving;
  return report;
}

LaunchEntry Entry(Kind kind, uint64_t key, uint64_t round, uint32_t part = 0) {
  LaunchEntry entry;
  entry.kind = kind;
  entry.key = key;
  entry.round = round;
  entry.part = part;
  return entry;
}

using Entries = std::vector<LaunchEntry>;

TEST(LaunchLog, ReducesWhenAllAreReadyAndBroadcastsWhenAnOwnerHasTheReply) {
  LaunchLog log(2, ResultsFrom::kServers);
  ASSERT_TRUE(log.Add(Ready(0, 10, 0, 2)).ok());
  ASSERT_TRUE(log.Add(Ready(0, 20, 0)).ok());
  EXPECT_TRUE(log.TakeNew().entries.empty());
  ASSERT_TRUE(log.Add(Ready(1, 20, 0)).ok());
  ASSERT_TRUE(log.Add(Ready(1, 10, 0, 2)).ok());
  LogSlice slice = log.TakeNew();
  EXPECT_EQ(slice.first, 0u);
  EXPECT_EQ(slice.entries, (Entries{Entry(Kind::kReduce, 20, 0), Entry(Kind::kReduce, 10, 0, 0),
                                    Entry(Kind::kReduce, 10, 0, 1)}));
  ASSERT_TRUE(log.Add(Replied(1, 10, 0, 1)).ok());
  slice = log.TakeNew();
  EXPECT_EQ(slice.first, 3u);
  EXPECT_EQ(slice.entries, (Entries{Entry(Kind::kBroadcast, 10, 0, 1)}));
  EXPECT_FALSE(log.Add(Ready(1, 10, 1, 2)).ok()) << "part 0 is in flight";
  ASSERT_TRUE(log.Add(Replied(0, 10, 0, 0)).ok());
  // The next round of a tensor may begin when its broadcasts are in the log.
  EXPECT_TRUE(log.Add(Ready(1, 10, 1, 2)).ok());
}

TEST(LaunchLog, NothingFollowsAReductionForAll) {
  LaunchLog log(2, ResultsFrom::kServers);
  for (uint64_t round = 0; round < 2; ++round) {
    for (const int32_t rank : {0, 1}) {
      LaunchReport report = Ready(rank, 10, round, 2);
      report.takes_shared = true;
      ASSERT_TRUE(log.Add(report).ok());
    }
    EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kReduceForAll, 10, round, 0),
                                              Entry(Kind::kReduceForAll, 10, round, 1)}));
    EXPECT_FALSE(log.Add(Replied(0, 10, round, 0)).ok());
  }
  // All must be able to.
  LaunchReport one = Ready(0, 20, 0);
  one.takes_shared = true;
  ASSERT_TRUE(log.Add(one).ok());
  ASSERT_TRUE(log.Add(Ready(1, 20, 0)).ok());
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kReduce, 20, 0)}));
  // A part that fails later fails on all.
  ASSERT_TRUE(log.Add(Failed(1, 10, 1)).ok());
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kFail, 10, 1)}));
}

TEST(LaunchLog, RefusesWhatNoRankMaySay) {
  LaunchLog log(2, ResultsFrom::kServers);
  EXPECT_FALSE(log.Add(Ready(2, 10, 0)).ok());
  EXPECT_FALSE(log.Add(Ready(-1, 10, 0)).ok());
  EXPECT_FALSE(log.Add(Replied(0, 10, 0)).ok());
  ASSERT_TRUE(log.Add(Ready(0, 10, 0)).ok());
  EXPECT_NE(log.Add(Ready(0, 10, 0)).message().find("ready for that already"), std::string::npos);
  EXPECT_FALSE(log.Add(Replied(0, 10, 0)).ok()) << "not reduced";
  ASSERT_TRUE(log.Add(Ready(1, 10, 0)).ok());
  EXPECT_NE(log.Add(Replied(1, 10, 0)).message().find("local rank 0 owns"), std::string::npos);
  EXPECT_FALSE(log.Add(Replied(0, 10, 0, 2)).ok()) << "no such part";
  EXPECT_TRUE(log.Add(Replied(0, 10, 0)).ok());
  EXPECT_FALSE(log.Add(Replied(0, 10, 0)).ok()) << "again";
}

TEST(LaunchLog, ExchangesInOneStepWithoutServers) {
  LaunchLog log(2, ResultsFrom::kCollective);
  for (uint64_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(log.Add(Ready(0, 10, round, 5)).ok());
    ASSERT_TRUE(log.Add(Ready(1, 10, round, 5)).ok());
    EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kExchange, 10, round)}));
  }
}

TEST(LaunchLog, FailsATensorThatTheRanksDisagreeAbout) {
  for (const ResultsFrom results_from : {ResultsFrom::kServers, ResultsFrom::kCollective}) {
    LaunchLog log(3, results_from);
    ASSERT_TRUE(log.Add(Ready(0, 10, 0, 2, 77)).ok());
    ASSERT_TRUE(log.Add(Ready(1, 10, 0, 3, 78)).ok());
    ASSERT_TRUE(log.Add(Ready(2, 10, 0, 2, 77)).ok());
    const Entries entries = log.TakeNew().entries;
    // The one that came late is told once more.
    EXPECT_EQ(entries, (Entries{Entry(Kind::kFail, 10, 0), Entry(Kind::kFail, 10, 0)}));
    EXPECT_NE(entries[1].reason.message().find("disagree"), std::string::npos);
    // The next round may agree again.
    for (int32_t rank = 0; rank < 3; ++rank) ASSERT_TRUE(log.Add(Ready(rank, 10, 1, 1, 5)).ok());
    EXPECT_NE(log.TakeNew().entries[0].kind, Kind::kFail);
  }
}

TEST(LaunchLog, AFailureIsTheLastEntryOfItsRound) {
  LaunchLog log(2, ResultsFrom::kServers);
  ASSERT_TRUE(log.Add(Ready(0, 10, 0, 2)).ok());
  ASSERT_TRUE(log.Add(Ready(1, 10, 0, 2)).ok());
  ASSERT_TRUE(log.Add(Failed(0, 10, 0)).ok());
  EXPECT_EQ(log.TakeNew().entries.back(), Entry(Kind::kFail, 10, 0));
  // What the other rank had in flight is late, and no fault.
  EXPECT_TRUE(log.Add(Replied(1, 10, 0, 1)).ok());
  EXPECT_TRUE(log.Add(Failed(1, 10, 0)).ok());
  EXPECT_TRUE(log.TakeNew().entries.empty());
  ASSERT_TRUE(log.Add(Ready(1, 10, 1, 2)).ok());
  ASSERT_TRUE(log.Add(Ready(0, 10, 1, 2)).ok());
  EXPECT_EQ(log.TakeNew().entries.size(), 2u);
}

// Rank 1 gives rounds up, and goes on before or after that is reported.
TEST(LaunchLog, WhoGivesRoundsUpFailsThemForTheOthers) {
  LaunchLog log(2, ResultsFrom::kServers);
  ASSERT_TRUE(log.Add(Ready(0, 10, 0)).ok());
  ASSERT_TRUE(log.Add(Failed(1, 10, 7)).ok());
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kFail, 10, 0), Entry(Kind::kFail, 10, 7)}));
  ASSERT_TRUE(log.Add(Ready(0, 10, 1)).ok());
  const Entries late = log.TakeNew().entries;
  EXPECT_EQ(late, (Entries{Entry(Kind::kFail, 10, 1)}));
  EXPECT_NE(late[0].reason.message().find("a server is lost"), std::string::npos);
  // One rank or the other is in the newer round first.
  for (const int32_t first : {0, 1}) {
    const uint64_t round = 8 + 2 * first;
    ASSERT_TRUE(log.Add(Ready(first, 10, round + first)).ok());
    EXPECT_TRUE(log.TakeNew().entries.empty());
    ASSERT_TRUE(log.Add(Ready(1 - first, 10, round + 1 - first)).ok());
    const Entries failed = log.TakeNew().entries;
    EXPECT_EQ(failed, (Entries{Entry(Kind::kFail, 10, round)}));
    EXPECT_NE(failed[0].reason.message().find("has given it up"), std::string::npos);
    ASSERT_TRUE(log.Add(Failed(1, 10, round)).ok());
    EXPECT_TRUE(log.TakeNew().entries.empty());
    ASSERT_TRUE(log.Add(Ready(0, 10, round + 1)).ok());
    EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kReduce, 10, round + 1)}));
    ASSERT_TRUE(log.Add(Replied(0, 10, round + 1)).ok());
    log.TakeNew();
  }
}

// As a rank that leaves a training: all rounds that are yet to come, then the one in flight.
TEST(LaunchLog, ARoundInFlightFailsAfterALaterOne) {
  LaunchLog log(2, ResultsFrom::kServers);
  ASSERT_TRUE(log.Add(Ready(0, 10, 3)).ok());
  ASSERT_TRUE(log.Add(Failed(0, 10, 99)).ok());
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kFail, 10, 99)}));
  ASSERT_TRUE(log.Add(Failed(0, 10, 3)).ok());
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kFail, 10, 3)}));
  for (int32_t rank : {0, 1}) ASSERT_TRUE(log.Add(Ready(rank, 10, 100)).ok());
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kReduce, 10, 100)}));
}

// Its results may still come, or not.
TEST(LaunchLog, WhatIsReducedForAllFailsAfterALaterRound) {
  LaunchLog log(2, ResultsFrom::kServers);
  for (int32_t rank : {0, 1}) {
    LaunchReport ready = Ready(rank, 10, 3);
    ready.takes_shared = true;
    ASSERT_TRUE(log.Add(ready).ok());
  }
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kReduceForAll, 10, 3)}));
  ASSERT_TRUE(log.Add(Failed(0, 10, 99)).ok());
  ASSERT_TRUE(log.Add(Failed(0, 10, 3)).ok());
  EXPECT_EQ(log.TakeNew().entries,
            (Entries{Entry(Kind::kFail, 10, 99), Entry(Kind::kFail, 10, 3)}));
}

TEST(LaunchLog, ThoseWhoWaitForALeaverAreTold) {
  LaunchLog log(2, ResultsFrom::kCollective);
  ASSERT_TRUE(log.Add(Ready(0, 10, 0)).ok());
  ASSERT_TRUE(log.Add(Leaving(1)).ok());
  ASSERT_TRUE(log.Add(Ready(0, 20, 0)).ok());
  const Entries entries = log.TakeNew().entries;
  EXPECT_EQ(entries, (Entries{Entry(Kind::kFail, 10, 0), Entry(Kind::kFail, 20, 0)}));
  EXPECT_NE(entries[0].reason.message().find("local rank 1 of this host has left"),
            std::string::npos);
  ASSERT_TRUE(log.Add(Leaving(0)).ok());
  EXPECT_EQ(log.TakeNew().entries, (Entries{Entry(Kind::kEnd, 0, 0)}));
}

TEST(LogFollower, LaunchesTheLogWithoutGaps) {
  std::vector<LaunchEntry> launched;
  LogFollower follower([&](const LaunchEntry& entry) {
    launched.push_back(entry);
    return OkStatus();
  });
  const LaunchEntry a = Entry(Kind::kReduce, 1, 0);
  const LaunchEntry b = Entry(Kind::kBroadcast, 1, 0);
  ASSERT_TRUE(follower.Receive({0, {a}}).ok());
  EXPECT_FALSE(follower.Receive({2, {b}}).ok());
  EXPECT_FALSE(follower.Receive({0, {a}}).ok());
  ASSERT_TRUE(follower.Receive({1, {b}}).ok());
  EXPECT_EQ(launched, (std::vector<LaunchEntry>{a, b}));
}

TEST(LogFollower, StopsAtTheFirstError) {
  int launches = 0;
  LogFollower follower([&](const LaunchEntry&) {
    ++launches;
    return Internal("lost");
  });
  EXPECT_EQ(follower.Receive({0, {{}, {}}}).message(), "lost");
  EXPECT_EQ(launches, 1);
}

TEST(Sequencer, FailsOnce) {
  std::atomic<int> failures{0};
  {
    Sequencer sequencer(
        1, ResultsFrom::kServers, [](const LogSlice&) { ADD_FAILURE(); },
        [&](const Status&) { ++failures; });
    sequencer.Add({Ready(7, 0, 0)});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (failures == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    sequencer.Add({Ready(7, 0, 0)});
  }
  EXPECT_EQ(failures, 1);
}

// ---- hosts, with what a GPU, NCCL and a server would do done by arithmetic

// What happens to a rank.
struct Event {
  enum class Kind {
    kSlice,    // of its host's log
    kReduced,  // its part was reduced to it: `value`
    kReply,    // the server's result for its part: `value`
    kResult,   // of a broadcast: `value`
  };
  Kind kind;
  LogSlice slice;
  LaunchEntry step;  // whose value it is
  int64_t value = 0;
};

class Mailbox {
 public:
  void Post(Event event) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    changed_.notify_one();
  }
  // False after half a minute without an event.
  bool Take(std::deque<Event>* events) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [this] { return !events_.empty(); })) {
      return false;
    }
    events->swap(events_);
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
};

// As NCCL on a stream: a launch returns at once, the n-th launches of all ranks are one collective,
// and it is a fault when they are not of the same kind and part.
class FakeCommunicator {
 public:
  explicit FakeCommunicator(std::vector<Mailbox*> ranks) : ranks_(std::move(ranks)) {
    launched_.resize(ranks_.size());
  }

  Status Launch(int32_t rank, const LaunchEntry& entry, int64_t value) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t index = launched_[rank]++ - finished_;
    if (index == collectives_.size()) collectives_.push_back({entry, 0, 0});
    Collective& collective = collectives_[index];
    if (!(collective.entry == entry)) {
      return Internal("local rank " + std::to_string(rank) + " launches " + entry.ToString() +
                      ", another one " + collective.entry.ToString());
    }
    const int32_t owner = LocalOwner(entry.key, entry.part, static_cast<int32_t>(ranks_.size()));
    if (entry.kind == Kind::kReduce || rank == owner) collective.value += value;
    if (++collective.joined < ranks_.size()) return OkStatus();
    if (entry.kind == Kind::kReduce) {
      ranks_[owner]->Post({Event::Kind::kReduced, {}, entry, collective.value});
    } else {
      for (Mailbox* mailbox : ranks_) {
        mailbox->Post({Event::Kind::kResult, {}, entry, collective.value});
      }
    }
    collectives_.pop_front();
    ++finished_;
    return OkStatus();
  }

 private:
  struct Collective {
    LaunchEntry entry;
    size_t joined;
    int64_t value;
  };
  const std::vector<Mailbox*> ranks_;
  std::mutex mutex_;
  std::vector<uint64_t> launched_;
  uint64_t finished_ = 0;
  std::deque<Collective> collectives_;
};

// Sums one contribution of each host and answers those that sent them.
class FakeServer {
 public:
  explicit FakeServer(size_t hosts) : hosts_(hosts) {}

  void Push(const LaunchEntry& step, int64_t value, Mailbox* owner) {
    std::lock_guard<std::mutex> lock(mutex_);
    Round& round = rounds_[step.key];
    ASSERT_TRUE(round.owners.empty() || round.step == step) << "two rounds at once";
    round.step = step;
    round.sum += value;
    round.owners.push_back(owner);
    if (round.owners.size() < hosts_) return;
    for (Mailbox* mailbox : round.owners) {
      mailbox->Post({Event::Kind::kReply, {}, step, round.sum});
    }
    round = Round();
  }

 private:
  struct Round {
    LaunchEntry step;
    int64_t sum = 0;
    std::vector<Mailbox*> owners;
  };
  const size_t hosts_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Round> rounds_;
};

struct Host {
  explicit Host(int32_t size) : mailboxes(size) {
    std::vector<Mailbox*> all;
    for (Mailbox& mailbox : mailboxes) all.push_back(&mailbox);
    communicator = std::make_unique<FakeCommunicator>(all);
    sequencer = std::make_unique<Sequencer>(
        size, ResultsFrom::kServers,
        [all](const LogSlice& slice) {
          for (Mailbox* mailbox : all) mailbox->Post({Event::Kind::kSlice, slice, {}, 0});
        },
        [](const Status& status) { ADD_FAILURE() << status.ToString(); });
  }
  int32_t size() const { return static_cast<int32_t>(mailboxes.size()); }

  std::deque<Mailbox> mailboxes;
  std::unique_ptr<FakeCommunicator> communicator;
  std::unique_ptr<Sequencer> sequencer;
};

int64_t Value(int32_t rank, uint64_t key, uint64_t round) {
  return static_cast<int64_t>((rank + 1) * 1000003 + key * 101 + round * 7);
}

// One local rank: makes tensors ready in an order of its own, launches the log, and exchanges its
// own parts with the server.
class Rank {
 public:
  Rank(Host* host, int32_t local_rank, int32_t rank, int32_t size, FakeServer* server)
      : host_(*host),
        local_rank_(local_rank),
        rank_(rank),
        size_(size),
        server_(*server),
        random_(rank),
        follower_([this](const LaunchEntry& entry) { return Launch(entry); }) {}

  // True if all steps have ended with the right sums.
  bool Train(uint64_t steps, uint64_t tensors) {
    std::vector<uint64_t> order(tensors);
    std::iota(order.begin(), order.end(), uint64_t{0});
    for (uint64_t step = 0; step < steps; ++step) {
      std::shuffle(order.begin(), order.end(), random_);
      left_ = tensors;
      for (const uint64_t key : order) host_.sequencer->Add({Ready(local_rank_, key, step)});
      while (left_ > 0) {
        if (!HandleEvents()) return false;
      }
    }
    return true;
  }

 private:
  Status Launch(const LaunchEntry& entry) {
    const int64_t value =
        entry.kind == Kind::kReduce ? Value(rank_, entry.key, entry.round) : replies_[entry.key];
    return host_.communicator->Launch(local_rank_, entry, value);
  }

  bool HandleEvents() {
    std::deque<Event> events;
    if (!host_.mailboxes[local_rank_].Take(&events)) {
      ADD_FAILURE() << "rank " << rank_ << " waits for " << left_ << " tensors";
      return false;
    }
    std::vector<LaunchReport> replied;
    for (const Event& event : events) {
      switch (event.kind) {
        case Event::Kind::kSlice: {
          const Status status = follower_.Receive(event.slice);
          EXPECT_TRUE(status.ok()) << status.ToString();
          if (!status.ok()) return false;
          break;
        }
        case Event::Kind::kReduced:
          server_.Push(event.step, event.value, &host_.mailboxes[local_rank_]);
          break;
        case Event::Kind::kReply:
          replies_[event.step.key] = event.value;
          replied.push_back(Replied(local_rank_, event.step.key, event.step.round));
          break;
        case Event::Kind::kResult:
          --left_;
          int64_t expected = 0;
          for (int32_t rank = 0; rank < size_; ++rank) {
            expected += Value(rank, event.step.key, event.step.round);
          }
          EXPECT_EQ(event.value, expected) << event.step.ToString();
          if (event.value != expected) return false;
          break;
      }
    }
    std::shuffle(replied.begin(), replied.end(), random_);
    host_.sequencer->Add(std::move(replied));
    return true;
  }

  Host& host_;
  const int32_t local_rank_;
  const int32_t rank_;
  const int32_t size_;
  FakeServer& server_;
  std::mt19937 random_;
  LogFollower follower_;
  std::unordered_map<uint64_t, int64_t> replies_;
  uint64_t left_ = 0;
};

TEST(Sequencer, HostsOfThreeAndOneRanksTrainAThousandSteps) {
  constexpr uint64_t kSteps = 1000;
  constexpr uint64_t kTensors = 200;
  Host large(3);
  Host small(1);
  FakeServer server(2);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (Host* host : {&large, &small}) {
    for (int32_t local_rank = 0; local_rank < host->size(); ++local_rank) {
      const auto rank = static_cast<int32_t>(ranks.size());
      ranks.push_back(std::make_unique<Rank>(host, local_rank, rank, 4, &server));
    }
  }
  std::vector<std::thread> threads;
  std::atomic<int> trained{0};
  for (const auto& rank : ranks) {
    threads.emplace_back([&trained, rank = rank.get()] {
      if (rank->Train(kSteps, kTensors)) ++trained;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trained, 4);
}

// What the log is for: the fake communicator must notice ranks that launch in an order of their
// own, as each of them would without it.
TEST(Sequencer, TheFakeCommunicatorNoticesAnotherOrder) {
  Mailbox first;
  Mailbox second;
  FakeCommunicator communicator({&first, &second});
  const LaunchEntry a = Entry(Kind::kReduce, 1, 0);
  const LaunchEntry b = Entry(Kind::kReduce, 2, 0);
  EXPECT_TRUE(communicator.Launch(0, a, 1).ok());
  EXPECT_FALSE(communicator.Launch(1, b, 1).ok());
}

}  // namespace
}  // namespace byteps
