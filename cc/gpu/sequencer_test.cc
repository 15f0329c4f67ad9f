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

namespace byteps {
namespace {

using Kind = LaunchEntry::Kind;

LaunchReport Ready(int32_t local_rank, std::vector<PartRound> parts) {
  return {local_rank, LaunchReport::Kind::kReady, std::move(parts)};
}

LaunchReport Replied(int32_t local_rank, std::vector<PartRound> parts) {
  return {local_rank, LaunchReport::Kind::kReplied, std::move(parts)};
}

TEST(LaunchLog, ReducesWhenAllAreReadyAndBroadcastsWhenTheOwnerHasTheReply) {
  LaunchLog log(2, ResultsFrom::kServers);
  const PartRound a{10, 0, 0};
  const PartRound b{10, 1, 0};
  ASSERT_TRUE(log.Add(Ready(0, {a, b})).ok());
  EXPECT_TRUE(log.TakeNew().entries.empty());
  ASSERT_TRUE(log.Add(Ready(1, {b, a})).ok());
  LogSlice slice = log.TakeNew();
  EXPECT_EQ(slice.first, 0u);
  EXPECT_EQ(slice.entries, (std::vector<LaunchEntry>{{Kind::kReduce, b}, {Kind::kReduce, a}}));
  ASSERT_TRUE(log.Add(Replied(LocalOwner(a, 2), {a})).ok());
  slice = log.TakeNew();
  EXPECT_EQ(slice.first, 2u);
  EXPECT_EQ(slice.entries, (std::vector<LaunchEntry>{{Kind::kBroadcast, a}}));
  // The next round of a part may begin when its broadcast is in the log.
  EXPECT_TRUE(log.Add(Ready(1, {{10, 0, 1}})).ok());
  EXPECT_FALSE(log.Add(Ready(1, {{10, 1, 1}})).ok());
}

TEST(LaunchLog, RefusesWhatNoRankMaySay) {
  const PartRound part{10, 0, 0};
  LaunchLog log(2, ResultsFrom::kServers);
  EXPECT_FALSE(log.Add(Ready(2, {part})).ok());
  EXPECT_FALSE(log.Add(Ready(-1, {part})).ok());
  EXPECT_FALSE(log.Add(Replied(0, {part})).ok());
  ASSERT_TRUE(log.Add(Ready(0, {part})).ok());
  EXPECT_NE(log.Add(Ready(0, {part})).message().find("ready for that already"), std::string::npos);
  EXPECT_FALSE(log.Add(Replied(0, {part})).ok()) << "not reduced";
  ASSERT_TRUE(log.Add(Ready(1, {part})).ok());
  EXPECT_NE(log.Add(Replied(1, {part})).message().find("local rank 0 owns"), std::string::npos);
  EXPECT_TRUE(log.Add(Replied(0, {part})).ok());
}

TEST(LaunchLog, ExchangesInOneStepWithoutServers) {
  LaunchLog log(2, ResultsFrom::kCollective);
  for (uint64_t round = 0; round < 3; ++round) {
    const PartRound part{10, 0, round};
    ASSERT_TRUE(log.Add(Ready(0, {part})).ok());
    ASSERT_TRUE(log.Add(Ready(1, {part})).ok());
    EXPECT_EQ(log.TakeNew().entries, (std::vector<LaunchEntry>{{Kind::kExchange, part}}));
  }
}

TEST(LaunchLog, RefusesAPartThatTheRanksDisagreeAbout) {
  for (const ResultsFrom results_from : {ResultsFrom::kServers, ResultsFrom::kCollective}) {
    LaunchLog log(3, results_from);
    ASSERT_TRUE(log.Add(Ready(0, {{10, 0, 0, 77}})).ok());
    ASSERT_TRUE(log.Add(Ready(1, {{10, 0, 0, 78}})).ok());
    ASSERT_TRUE(log.Add(Ready(2, {{10, 0, 0, 77}})).ok());
    EXPECT_EQ(log.TakeNew().entries, (std::vector<LaunchEntry>{{Kind::kRefuse, {10, 0, 0}}}));
    // The next round may agree again.
    for (int32_t rank = 0; rank < 3; ++rank)
      ASSERT_TRUE(log.Add(Ready(rank, {{10, 0, 1, 5}})).ok());
    EXPECT_NE(log.TakeNew().entries[0].kind, Kind::kRefuse);
  }
}

TEST(LaunchLog, OwnersTakeTurns) {
  for (int32_t size = 1; size <= 8; ++size) {
    std::vector<int> owned(size);
    for (uint32_t part = 0; part < 800; ++part) ++owned[LocalOwner({~0ull - 5, part, 0}, size)];
    for (const int count : owned) EXPECT_NEAR(count, 800.0 / size, 2);
  }
}

TEST(LogFollower, LaunchesTheLogWithoutGaps) {
  std::vector<LaunchEntry> launched;
  LogFollower follower([&](const LaunchEntry& entry) {
    launched.push_back(entry);
    return OkStatus();
  });
  const LaunchEntry a{Kind::kReduce, {1, 0, 0}};
  const LaunchEntry b{Kind::kBroadcast, {1, 0, 0}};
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
    sequencer.Add(Ready(7, {{}}));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (failures == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    sequencer.Add(Ready(7, {{}}));
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
  PartRound part;
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
    const int32_t owner = LocalOwner(entry.part, static_cast<int32_t>(ranks_.size()));
    if (entry.kind == Kind::kReduce || rank == owner) collective.value += value;
    if (++collective.joined < ranks_.size()) return OkStatus();
    if (entry.kind == Kind::kReduce) {
      ranks_[owner]->Post({Event::Kind::kReduced, {}, entry.part, collective.value});
    } else {
      for (Mailbox* mailbox : ranks_) {
        mailbox->Post({Event::Kind::kResult, {}, entry.part, collective.value});
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

  void Push(const PartRound& part, int64_t value, Mailbox* owner) {
    std::lock_guard<std::mutex> lock(mutex_);
    Round& round = rounds_[part.key];
    ASSERT_TRUE(round.owners.empty() || round.part == part) << "two rounds at once";
    round.part = part;
    round.sum += value;
    round.owners.push_back(owner);
    if (round.owners.size() < hosts_) return;
    for (Mailbox* mailbox : round.owners) {
      mailbox->Post({Event::Kind::kReply, {}, part, round.sum});
    }
    round = Round();
  }

 private:
  struct Round {
    PartRound part;
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
      for (size_t begin = 0; begin < tensors;) {
        const size_t end = std::min<size_t>(tensors, begin + 1 + random_() % 20);
        LaunchReport report = Ready(local_rank_, {});
        for (; begin < end; ++begin) report.parts.push_back({order[begin], 0, step});
        host_.sequencer->Add(std::move(report));
      }
      while (left_ > 0) {
        if (!HandleEvents()) return false;
      }
    }
    return true;
  }

 private:
  Status Launch(const LaunchEntry& entry) {
    const int64_t value = entry.kind == Kind::kReduce
                              ? Value(rank_, entry.part.key, entry.part.round)
                              : replies_[entry.part.key];
    return host_.communicator->Launch(local_rank_, entry, value);
  }

  bool HandleEvents() {
    std::deque<Event> events;
    if (!host_.mailboxes[local_rank_].Take(&events)) {
      ADD_FAILURE() << "rank " << rank_ << " waits for " << left_ << " tensors";
      return false;
    }
    LaunchReport replied = Replied(local_rank_, {});
    for (const Event& event : events) {
      switch (event.kind) {
        case Event::Kind::kSlice: {
          const Status status = follower_.Receive(event.slice);
          EXPECT_TRUE(status.ok()) << status.ToString();
          if (!status.ok()) return false;
          break;
        }
        case Event::Kind::kReduced:
          server_.Push(event.part, event.value, &host_.mailboxes[local_rank_]);
          break;
        case Event::Kind::kReply:
          replies_[event.part.key] = event.value;
          replied.parts.push_back(event.part);
          break;
        case Event::Kind::kResult:
          --left_;
          int64_t expected = 0;
          for (int32_t rank = 0; rank < size_; ++rank) {
            expected += Value(rank, event.part.key, event.part.round);
          }
          EXPECT_EQ(event.value, expected) << event.part.ToString();
          if (event.value != expected) return false;
          break;
      }
    }
    std::shuffle(replied.parts.begin(), replied.parts.end(), random_);
    if (!replied.parts.empty()) host_.sequencer->Add(std::move(replied));
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
  const LaunchEntry a{Kind::kReduce, {1, 0, 0}};
  const LaunchEntry b{Kind::kReduce, {2, 0, 0}};
  EXPECT_TRUE(communicator.Launch(0, a, 1).ok());
  EXPECT_FALSE(communicator.Launch(1, b, 1).ok());
}

}  // namespace
}  // namespace byteps
