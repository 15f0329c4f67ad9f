// Random schedules: frames between workers and a server are delayed, overtake each other and are
// lost with their connections, and exchanges fail on their workers meanwhile. Every sum is right,
// everything else ends with one error, and nobody is taken for an attacker (protocol rule 31).
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/server/testing/fake_workers.h"
#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

constexpr int32_t kWorkers = 3;
constexpr uint32_t kPaths = 2;
constexpr uint64_t kRounds = 30;
constexpr uint64_t kCalmRounds = 2;  // the last ones, in which nothing goes wrong
constexpr int kSchedules = 100;
const std::vector<uint64_t> kParts = {3, 700};

float ValueOf(int32_t worker, uint64_t round, uint64_t element) {
  return static_cast<float>((worker + 1) * 1000 + round * 10 + element % 7);
}

// A worker as the engine's is (cc/worker): at most one round of the tensor is outstanding, a path
// that has broken asks what has become of its pushes, and one exchange ends with one status.
class SimulatedWorker {
 public:
  SimulatedWorker(FakeWorkers* job, const TableEntry& entry, int32_t rank, std::mt19937_64* random)
      : job_(job), entry_(entry), rank_(rank), random_(random), paths_(kPaths) {
    paths_[0].connection = job->connections[rank];
    for (uint32_t path = 1; path < kPaths; ++path) {
      paths_[path].connection = std::make_shared<FakeConnection>(rank, false, path);
      job->service.OnOpen(paths_[path].connection);
    }
    for (Path& path : paths_) path.is_ready = true;
  }

  uint64_t round() const { return round_; }
  bool is_over() const { return round_ == kRounds; }
  bool ended_well() const { return ended_well_; }

  void Begin() {
    done_.assign(kParts.size(), false);
    sent_on_.assign(kParts.size(), -1);
    for (uint32_t part = 0; part < kParts.size(); ++part) Push(part, 0);
    is_live_ = true;
  }

  // Something that may happen. `calm`: but nothing bad.
  void Step(bool calm) {
    if (!is_live_ && !is_over()) return Begin();
    Path& path = paths_[Draw(kPaths)];
    const size_t index = &path - paths_.data();
    switch (Draw(calm ? 4 : 24)) {
      case 0:
      case 1: return Read(&path);
      case 4: return Draw(4) == 0 && is_live_ ? End("it took too long") : void();
      case 5: return Draw(8) == 0 && path.connection != nullptr ? Break(&path) : void();
      default:
        if (path.connection == nullptr) return ComeAgain(static_cast<uint32_t>(index));
        return Write(&path, calm);
    }
  }

 private:
  struct Frame {
    FrameHeader header;
    std::string payload;
  };
  struct Path {
    std::shared_ptr<FakeConnection> connection;  // null: broken
    bool is_ready = false;
    std::vector<Frame> waiting;  // for the network, which takes any of them next
    std::unique_ptr<FakePush> leaving;
    size_t bytes_left = 0;  // of its payload: with the last one it is over
    std::deque<SentFrame> arriving;
  };

  size_t Draw(size_t below) { return (*random_)() % below; }

  std::string PayloadOf(uint32_t part) const {
    std::vector<float> values;
    uint64_t element = part == 0 ? 0 : kParts[0];
    for (uint64_t i = 0; i < kParts[part]; ++i) values.push_back(ValueOf(rank_, round_, element++));
    return BytesOf(values);
  }

  void Push(uint32_t part, uint64_t offset) {
    std::vector<uint32_t> ready;
    for (uint32_t path = 0; path < kPaths; ++path) {
      if (paths_[path].is_ready) ready.push_back(path);
    }
    if (ready.empty()) return parked_.emplace_back(part, offset), void();
    const uint32_t path = ready[Draw(ready.size())];
    Frame frame{FakeWorkers::Header(entry_, rank_, round_, PayloadOf(part), part),
                PayloadOf(part).substr(offset)};
    frame.header.payload_offset = offset;
    frame.header.payload_bytes -= offset;
    paths_[path].waiting.push_back(std::move(frame));
    sent_on_[part] = static_cast<int32_t>(path);
  }

  // The exchange ends with an error: rounds that are not over are given up.
  void End(const std::string& why) {
    EXPECT_FALSE(why.empty());
    for (uint32_t part = 0; part < kParts.size(); ++part) {
      if (done_[part]) continue;
      Frame frame{FakeWorkers::Header(entry_, rank_, round_, why, part), why};
      frame.header.status = StatusCode::kDeadlineExceeded;
      given_up_.push_back(frame);
      for (Path& path : paths_) {
        if (!path.is_ready) continue;
        path.waiting.push_back(frame);
        break;
      }
    }
    parked_.clear();
    Finish(false);
  }

  void Finish(bool well) {
    is_live_ = false;
    ended_well_ = well;
    ++round_;
  }

  void Write(Path* path, bool calm) {
    if (path->leaving == nullptr) {
      if (path->waiting.empty()) return;
      const size_t next = calm ? 0 : Draw(path->waiting.size());
      const Frame frame = std::move(path->waiting[next]);
      path->waiting.erase(path->waiting.begin() + next);
      path->leaving = std::make_unique<FakePush>(&job_->service, path->connection.get(),
                                                 frame.header, frame.payload);
      path->bytes_left = frame.payload.size();
      const Status status = path->leaving->Begin();
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    const size_t bytes = path->bytes_left == 0 ? 0 : Draw(path->bytes_left);
    path->leaving->Feed(bytes);
    path->bytes_left -= bytes;
    if (!calm && path->bytes_left > 0 && Draw(3) > 0) return;
    const Status status = path->leaving->End();
    ASSERT_TRUE(status.ok()) << status.ToString();
    path->leaving.reset();
  }

  void Read(Path* path) {
    if (path->connection == nullptr) return;
    for (SentFrame& frame : path->connection->TakeSent())
      path->arriving.push_back(std::move(frame));
    if (path->arriving.empty()) return;
    const SentFrame frame = std::move(path->arriving.front());
    path->arriving.pop_front();
    if (frame.header.type == FrameType::kControl) return OnAnswer(path, frame);
    if (frame.header.type != FrameType::kReply) return;
    ASSERT_EQ(frame.header.worker, rank_);
    ASSERT_LE(frame.header.round, round_);
    if (!is_live_ || frame.header.round != round_) return;
    const uint32_t part = frame.header.part;
    ASSERT_FALSE(done_[part]) << "answered twice";
    if (frame.header.status != StatusCode::kOk) {
      EXPECT_NE(frame.payload.find("\"t\""), std::string::npos) << frame.payload;
      return End(frame.payload);
    }
    ExpectSum(part, frame.values<float>());
    done_[part] = true;
    sent_on_[part] = -1;
    if (std::find(done_.begin(), done_.end(), false) == done_.end()) Finish(true);
  }

  void ExpectSum(uint32_t part, const std::vector<float>& sum) const {
    ASSERT_EQ(sum.size(), kParts[part]);
    uint64_t element = part == 0 ? 0 : kParts[0];
    for (const float value : sum) {
      float expected = 0;
      for (int32_t worker = 0; worker < kWorkers; ++worker)
        expected += ValueOf(worker, round_, element);
      ASSERT_EQ(value, expected) << "round " << round_ << ", part " << part;
      ++element;
    }
  }

  // What is in flight either way is lost.
  void Break(Path* path) {
    path->is_ready = false;
    path->waiting.clear();
    path->leaving.reset();
    path->arriving.clear();
    const std::shared_ptr<FakeConnection> connection = std::move(path->connection);
    path->connection = nullptr;
    job_->service.OnClosed(*connection, Unavailable("reset by peer"));
  }

  void ComeAgain(uint32_t index) {
    Path& path = paths_[index];
    path.connection = std::make_shared<FakeConnection>(rank_, /*again=*/true, index);
    ASSERT_TRUE(job_->service.CheckReturn(path.connection->peer()).ok());
    job_->service.OnOpen(path.connection);
    ResumeQuery query;
    for (uint32_t part = 0; is_live_ && part < kParts.size(); ++part) {
      if (!done_[part] && sent_on_[part] == static_cast<int32_t>(index))
        query.pushes.push_back({entry_.key, part, round_});
    }
    const OutgoingFrame frame = ControlFrame(query);
    FakePush push(&job_->service, path.connection.get(), frame.header,
                  std::string(static_cast<const char*>(frame.payload), frame.header.payload_bytes));
    const Status status = push.DeliverAll();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  void OnAnswer(Path* path, const SentFrame& frame) {
    ControlMessage message;
    ASSERT_TRUE(DecodeControl(frame.payload, &message).ok());
    ASSERT_FALSE(path->is_ready);
    path->is_ready = true;
    path->waiting = given_up_;
    for (const ResumeAnswer::Push& push : std::get<ResumeAnswer>(message).incomplete) {
      if (!is_live_ || push.round != round_) continue;
      Push(push.part, push.received_bytes);
    }
    for (const auto& [part, offset] : std::exchange(parked_, {})) Push(part, offset);
  }

  FakeWorkers* const job_;
  const TableEntry entry_;
  const int32_t rank_;
  std::mt19937_64* const random_;
  std::vector<Path> paths_;
  uint64_t round_ = 0;
  bool is_live_ = false;
  bool ended_well_ = false;  // the round before
  std::vector<bool> done_;   // by part
  std::vector<int32_t> sent_on_;
  std::vector<std::pair<uint32_t, uint64_t>> parked_;
  std::vector<Frame> given_up_;
};

// How many exchanges have ended with a sum.
int PlaySchedule(uint64_t seed) {
  std::mt19937_64 random(seed);
  FakeWorkers job(kWorkers, {"a", "b", "c"}, 1, /*in_rank_order=*/seed % 2 == 1, 2,
                  /*asks_for_parts=*/true);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {703}), 0, kParts);
  job.Add(entry);
  std::deque<SimulatedWorker> workers;
  for (int32_t rank = 0; rank < kWorkers; ++rank) workers.emplace_back(&job, entry, rank, &random);
  int sums = 0;
  constexpr int kMostSteps = 200000;
  for (int step = 0; step < kMostSteps; ++step) {
    bool is_over = true, is_calm = false;
    for (const SimulatedWorker& worker : workers) {
      is_over = is_over && worker.is_over();
      is_calm = is_calm || worker.round() + kCalmRounds >= kRounds;
    }
    if (is_over) break;
    SimulatedWorker& worker = workers[random() % kWorkers];
    const uint64_t before = worker.round();
    worker.Step(is_calm);
    if (worker.round() > before && worker.ended_well()) ++sums;
    if (testing::Test::HasFailure()) return sums;
  }
  for (const SimulatedWorker& worker : workers) {
    EXPECT_TRUE(worker.is_over()) << "in round " << worker.round();
    EXPECT_TRUE(worker.ended_well()) << "the last round";
  }
  return sums;
}

TEST(SummationSchedulesTest, SumsAreRightWhateverIsLateOrLost) {
  int sums = 0;
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    sums += PlaySchedule(seed);
    ASSERT_FALSE(HasFailure()) << "schedule " << seed;
  }
  // Enough goes well, and enough does not, for the above to mean something.
  const int all = kSchedules * kWorkers * static_cast<int>(kRounds);
  EXPECT_GT(sums, all / 10);
  EXPECT_LT(sums, all * 9 / 10);
}

}  // namespace
}  // namespace byteps
