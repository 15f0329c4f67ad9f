// What a push costs a server in jobs of 8 to 1,024 workers: the same (protocol rule 30). Frames are
// counted; processor time is compared within one run.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cc/base/thread_cpu.h"
#include "cc/server/summation_service.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

constexpr int32_t kSizes[] = {8, 64, 256, 1024};
constexpr int kRounds = 8;
constexpr size_t kElements = 256;
// Of what a push costs with 1,024 workers, in what it costs with 64. A job's state outgrows caches;
// work that grew with the workers would make it 16.
constexpr double kMostGrowth = 3;

// Counts what it is given, by type.
class CountingConnection : public Connection {
 public:
  explicit CountingConnection(int32_t rank) : name_("worker " + std::to_string(rank)) {
    peer_.role = Role::kWorker;
    peer_.rank = rank;
  }
  void Send(OutgoingFrame frame) override {
    ++sent[frame.header.type];
    if (frame.header.type == FrameType::kControl) controls.push_back(frame);
    if (frame.header.status != StatusCode::kOk)
      longest_text = std::max(longest_text, frame.header.payload_bytes);
  }
  void Close(const Status& reason) override { ADD_FAILURE() << reason.ToString(); }
  const Hello& peer() const override { return peer_; }
  const std::string& peer_name() const override { return name_; }

  std::map<FrameType, uint64_t> sent;
  std::vector<OutgoingFrame> controls;
  uint64_t longest_text = 0;  // of an error

 private:
  Hello peer_;
  const std::string name_;
};

// Workers on a host each, so that servers ask for parts.
class ManyWorkers {
 public:
  explicit ManyWorkers(int32_t count, bool asks_for_parts = true, bool in_rank_order = false)
      : service_({0, count, kTestEpoch, Hosts(count), 1, in_rank_order, 2, asks_for_parts}),
        entry_(Entry(Tensor("t", DType::kFloat32, {kElements}))) {
    EXPECT_TRUE(service_.AddEntries({entry_}).ok());
    for (int32_t rank = 0; rank < count; ++rank) {
      connections_.push_back(std::make_shared<CountingConnection>(rank));
      service_.OnOpen(connections_.back());
      headers_.push_back(FakeWorkers::Header(entry_, rank, 0, payload_));
    }
  }

  // All push `round`.
  void Push(uint64_t round) {
    for (size_t rank = 0; rank < connections_.size(); ++rank) Push(rank, round);
  }

  void Push(size_t rank, uint64_t round) {
    CountingConnection& connection = *connections_[rank];
    FrameHeader& header = headers_[rank];
    header.round = round;
    std::shared_ptr<PayloadSink> sink;
    ASSERT_TRUE(service_.OnHeader(connection, header, &sink).ok());
    if (sink != nullptr) sink->Take(payload_.data(), payload_.size(), payload_.size());
    ASSERT_TRUE(service_.OnFrame(connection, header, std::move(sink)).ok());
  }

  uint64_t sent(FrameType type) const {
    uint64_t frames = 0;
    for (const auto& connection : connections_) frames += connection->sent[type];
    return frames;
  }
  uint64_t longest_text() const {
    uint64_t longest = 0;
    for (const auto& connection : connections_)
      longest = std::max(longest, connection->longest_text);
    return longest;
  }
  SummationService& service() { return service_; }
  const CountingConnection& connection(size_t rank) const { return *connections_[rank]; }

 private:
  static std::vector<std::string> Hosts(int32_t count) {
    std::vector<std::string> hosts;
    for (int32_t rank = 0; rank < count; ++rank) hosts.push_back("host" + std::to_string(rank));
    return hosts;
  }

  SummationService service_;
  const TableEntry entry_;
  const std::string payload_ = std::string(kElements * sizeof(float), '\0');
  std::vector<std::shared_ptr<CountingConnection>> connections_;
  std::vector<FrameHeader> headers_;  // by rank
};

// Seconds for each push of rounds in which all push.
double CostOfPush(ManyWorkers* workers, int32_t count) {
  uint64_t round = 0;
  workers->Push(round++);
  return LeastCpuSeconds(kRounds, [&] { workers->Push(round++); }) / count;
}

void ExpectFlat(const std::map<int32_t, double>& costs) {
  for (const auto& [count, cost] : costs)
    std::cout << count << " workers: " << cost * 1e6 << " us" << std::endl;
  EXPECT_LT(costs.at(1024), kMostGrowth * costs.at(64));
}

TEST(ScaleTest, AsksEachWorkerOnceForEachPartAndRound) {
  for (const int32_t count : kSizes) {
    ManyWorkers workers(count);
    for (uint64_t round = 0; round < kRounds; ++round) workers.Push(round);
    EXPECT_EQ(workers.sent(FrameType::kReply), uint64_t{kRounds} * count);
    EXPECT_EQ(workers.sent(FrameType::kRequested), uint64_t{kRounds} * (count - 1));
  }
}

TEST(ScaleTest, APushCostsTheSame) {
  std::map<int32_t, double> costs;
  for (const int32_t count : kSizes) {
    ManyWorkers workers(count);
    costs[count] = CostOfPush(&workers, count);
  }
  ExpectFlat(costs);
}

TEST(ScaleTest, APushCostsTheSameInRankOrder) {
  std::map<int32_t, double> costs;
  for (const int32_t count : kSizes) {
    ManyWorkers workers(count, /*asks_for_parts=*/false, /*in_rank_order=*/true);
    costs[count] = CostOfPush(&workers, count);
  }
  ExpectFlat(costs);
}

// What a worker receives of it at once does not grow with the job, and in time it is all.
TEST(ScaleTest, AnArrivalReportIsAsLongInLargeJobs) {
  uint64_t longest = 0;
  for (const int32_t count : {64, 256, 1024}) {
    ManyWorkers workers(count);
    workers.Push(0);
    for (int32_t sent = 0; sent < count; sent += 64) workers.service().ReportArrivals();
    std::set<int32_t> ranks;
    for (const OutgoingFrame& frame : workers.connection(1).controls) {
      ControlMessage message;
      const std::string bytes(static_cast<const char*>(frame.payload), frame.header.payload_bytes);
      ASSERT_TRUE(DecodeControl(bytes, &message).ok());
      for (const auto& row : std::get<ArrivalReport>(message).rows) ranks.insert(row.rank);
      if (longest == 0) longest = frame.header.payload_bytes;
      EXPECT_EQ(frame.header.payload_bytes, longest) << count << " workers";
    }
    EXPECT_EQ(ranks.size(), static_cast<size_t>(count));
    workers.service().ReportArrivals();  // nothing is new
    EXPECT_EQ(workers.sent(FrameType::kControl), static_cast<uint64_t>(count) * (count / 64));
  }
}

// Who waits is told whom it has waited for, in a text that does not grow with the job.
TEST(ScaleTest, ADeathCostsTheSameForEachWhoWaits) {
  constexpr int kTimes = 5;  // of which the least counts: the machine may be busy
  std::map<int32_t, double> costs;
  for (const int32_t count : kSizes) {
    for (int time = 0; time < kTimes; ++time) {
      ManyWorkers workers(count);
      workers.Push(0);
      for (int32_t rank = 1; rank < count; ++rank) workers.Push(rank, 1);
      const double before = ThreadCpuSeconds();
      workers.service().OnWorkersLeft({0});
      const double cost = (ThreadCpuSeconds() - before) / (count - 1);
      costs[count] = time == 0 ? cost : std::min(costs[count], cost);
      EXPECT_EQ(workers.sent(FrameType::kReply), 2u * count - 1);
      EXPECT_LT(workers.longest_text(), 1000u);
    }
  }
  ExpectFlat(costs);
}

}  // namespace
}  // namespace byteps
