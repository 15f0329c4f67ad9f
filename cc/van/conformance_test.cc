// What every Van must do, see van/van.h. A new transport adds itself to the list at the end and
// passes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/van/rdma/testing/loopback_verbs.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

// Collects a payload in spans of a given size.
class CollectingSink : public PayloadSink {
 public:
  explicit CollectingSink(size_t span_bytes) : span_(span_bytes) {}
  Span Prepare(uint64_t) override { return {span_.data(), span_.size()}; }
  void Commit(size_t bytes) override {
    collected_.insert(collected_.end(), span_.begin(), span_.begin() + bytes);
  }
  std::vector<uint8_t> collected_;

 private:
  std::vector<uint8_t> span_;
};

struct Received {
  FrameHeader header;
  std::vector<uint8_t> payload;
};

// Records all that happens on its connections.
class Recorder : public ConnectionHandler {
 public:
  void OnOpen(const std::shared_ptr<Connection>& connection) override {
    if (greet_) greet_(*connection);
    Note([&] { opened_.push_back(connection); });
  }
  Status OnHeader(Connection&, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) override {
    if (refuse_part_ == header.part) return InvalidArgument("part refused");
    if (no_memory_part_ == header.part) throw std::bad_alloc();
    if (drop_part_ != header.part) *sink = new_sink_();
    return OkStatus();
  }
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override {
    Received received{header, {}};
    if (sink != nullptr)
      received.payload = std::move(static_cast<CollectingSink&>(*sink).collected_);
    Note([&] { received_.push_back(std::move(received)); });
    if (answer_) answer_(connection, header);
    return OkStatus();
  }
  void OnDrained(Connection&) override {
    Note([&] { drained_after_.push_back(received_.size()); });
  }
  void OnClosed(Connection&, const Status& reason) override {
    Note([&] { closed_.push_back(reason); });
  }

  // Waits until `condition` holds; checked after every event.
  bool Wait(const std::function<bool()>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kPatience, condition);
  }
  template <typename F>
  void Note(F change) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  // Set before use.
  std::function<std::shared_ptr<CollectingSink>()> new_sink_ = [] {
    return std::make_shared<CollectingSink>(4000);
  };
  uint32_t refuse_part_ = UINT32_MAX;
  uint32_t drop_part_ = UINT32_MAX;
  uint32_t no_memory_part_ = UINT32_MAX;
  std::function<void(Connection&, const FrameHeader&)> answer_;
  std::function<void(Connection&)> greet_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Connection>> opened_;
  std::vector<Received> received_;
  std::vector<size_t> drained_after_;
  std::vector<Status> closed_;
};

class Acceptor : public ConnectionAcceptor {
 public:
  explicit Acceptor(ConnectionHandler* handler) : handler_(handler) {}
  Status OnHello(const Hello& hello, const std::string&, ConnectionHandler** handler) override {
    ++hellos_;
    if (not_ready_ > 0 && not_ready_-- > 0) return Unavailable("not ready yet");
    BYTEPS_RETURN_IF_ERROR(CheckHello(hello, "job", 1, Role::kServer, 0));
    *handler = handler_;
    return OkStatus();
  }
  std::atomic<int> hellos_{0};
  std::atomic<int> not_ready_{0};

 private:
  ConnectionHandler* handler_;
};

Hello WorkerHello(int32_t rank = 0) {
  Hello hello;
  hello.job_id = "job";
  hello.epoch = 1;
  hello.role = Role::kWorker;
  hello.rank = rank;
  return hello;
}

Hello ServerPeer() {
  Hello hello;
  hello.role = Role::kServer;
  hello.rank = 0;
  return hello;
}

std::vector<uint8_t> Pattern(size_t bytes, uint8_t seed) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(seed + i * 31 + (i >> 8));
  return data;
}

OutgoingFrame PushFrame(uint32_t part, std::vector<uint8_t> payload, int32_t priority = 0) {
  auto owned = std::make_shared<const std::vector<uint8_t>>(std::move(payload));
  OutgoingFrame frame;
  frame.header.type = FrameType::kPush;
  frame.header.part = part;
  frame.header.priority = priority;
  frame.header.payload_bytes = owned->size();
  frame.payload = owned->data();
  frame.keep_alive = owned;
  return frame;
}

struct VanKind {
  const char* name;
  std::unique_ptr<Van> (*create)(const VanOptions&);
  bool same_host = false;
  const char* secret = "";
  bool by_rdma = false;
  bool needs_device = false;

  // Nobody's word is taken for whose memory something is, without a secret.
  bool reads_memory() const { return same_host && *secret != '\0'; }
};

std::unique_ptr<Van> NewRdmaVanForSure(const VanOptions& given) {
  VanOptions options = given;
  options.transport = Transport::kRdma;
  return NewRdmaVan(options);
}

std::unique_ptr<Van> NewLoopbackRdmaVan(const VanOptions& given) {
  static LoopbackVerbs* const verbs = new LoopbackVerbs;
  VanOptions options = given;
  options.verbs = verbs->table();
  return NewRdmaVanForSure(options);
}

// As between two processes.
std::unique_ptr<Van> NewReadingTcpVan(const VanOptions& given) {
  VanOptions options = given;
  options.lend_to_own_process = false;
  return NewTcpVan(options);
}

// Changes its keys all the time.
std::unique_ptr<Van> NewTlsVan(const VanOptions& given) {
  VanOptions options = given;
  options.tls = true;
  options.tls_records_per_key = 3;
  if (options.secret.empty()) options.secret = "secret";
  return NewTcpVan(options);
}

// Without opening one: the test is about to fork.
bool HasRdmaDevice() {
  std::error_code error;
  return !std::filesystem::is_empty("/sys/class/infiniband", error) && !error;
}

class VanConformanceTest : public ::testing::TestWithParam<VanKind> {
 protected:
  void SetUp() override {
    if (GetParam().needs_device && !HasRdmaDevice()) GTEST_SKIP() << "no RDMA device";
    VanOptions options;
    options.handshake_timeout = 2;
    options.secret = GetParam().secret;
    server_van_ = GetParam().create(options);
    client_van_ = GetParam().create(options);
    ASSERT_TRUE(server_van_->Listen("127.0.0.1", 0, &acceptor_, &endpoint_).ok());
    ASSERT_NE(endpoint_.port, 0);
  }
  void TearDown() override {
    if (client_van_ == nullptr) return;  // skipped
    client_van_->Stop();
    server_van_->Stop();
  }
  std::shared_ptr<Connection> Connect(int32_t rank = 0) {
    std::shared_ptr<Connection> connection;
    Hello hello = WorkerHello(rank);
    hello.same_host = GetParam().same_host;
    const Status status =
        client_van_->Connect(endpoint_, hello, ServerPeer(), &client_, 5, &connection);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return connection;
  }
  bool ServerReceived(size_t frames) {
    return server_.Wait([&] { return server_.received_.size() >= frames; });
  }

  Recorder server_;
  Recorder client_;
  Acceptor acceptor_{&server_};
  Endpoint endpoint_;
  std::unique_ptr<Van> server_van_;
  std::unique_ptr<Van> client_van_;
};

TEST_P(VanConformanceTest, MovesPayloadsOfEverySizeUnchanged) {
  const auto connection = Connect();
  const std::vector<size_t> sizes = {0,    1,    127,  128,  4095,   4096,
                                     8063, 8064, 8065, 8192, 100000, 5000001};
  for (size_t i = 0; i < sizes.size(); ++i) connection->Send(PushFrame(i, Pattern(sizes[i], i)));
  ASSERT_TRUE(ServerReceived(sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(server_.received_[i].header.part, i);
    EXPECT_EQ(server_.received_[i].payload, Pattern(sizes[i], i)) << sizes[i];
  }
  const VanCounters counters = server_van_->counters();
  if (GetParam().reads_memory()) {
    EXPECT_GE(counters.memory_bytes_read, 5100001u);
    EXPECT_LT(counters.wire_bytes_received, 100000u);
  } else {
    EXPECT_EQ(counters.memory_bytes_read, 0u);
  }
  EXPECT_EQ(counters.rdma_bytes_received,
            GetParam().by_rdma ? counters.payload_bytes_received : 0u);
}

TEST_P(VanConformanceTest, AnswersComeBackOnTheSameConnection) {
  server_.answer_ = [](Connection& connection, const FrameHeader& header) {
    connection.Send(PushFrame(header.part + 100, Pattern(header.part * 1000, 9)));
  };
  const auto connection = Connect();
  for (uint32_t part = 0; part < 50; ++part) connection->Send(PushFrame(part, Pattern(part, 1)));
  ASSERT_TRUE(client_.Wait([&] { return client_.received_.size() == 50; }));
  for (uint32_t part = 0; part < 50; ++part) {
    EXPECT_EQ(client_.received_[part].header.part, part + 100);
    EXPECT_EQ(client_.received_[part].payload, Pattern(part * 1000, 9));
  }
}

// Which may arrive together with the end of the handshake.
TEST_P(VanConformanceTest, WhatIsSentWhenAConnectionOpensArrives) {
  server_.greet_ = [](Connection& connection) {
    connection.Send(PushFrame(1, Pattern(100, 1)));
    connection.Send(PushFrame(2, Pattern(5000, 2)));
  };
  for (size_t count = 1; count <= 20; ++count) {
    const auto connection = Connect();
    ASSERT_TRUE(client_.Wait([&] { return client_.received_.size() == 2 * count; })) << count;
    EXPECT_EQ(client_.received_.back().payload, Pattern(5000, 2));
    connection->Close(Cancelled("next"));
  }
}

TEST_P(VanConformanceTest, BothSidesKnowWhoThePeerIs) {
  const auto connection = Connect(3);
  EXPECT_EQ(connection->peer().role, Role::kServer);
  EXPECT_NE(connection->peer_name().find("server 0 at 127.0.0.1:"), std::string::npos)
      << connection->peer_name();
  ASSERT_TRUE(server_.Wait([&] { return server_.opened_.size() == 1; }));
  EXPECT_EQ(server_.opened_[0]->peer().rank, 3);
  EXPECT_NE(server_.opened_[0]->peer_name().find("worker 3 at 127.0.0.1:"), std::string::npos);
}

TEST_P(VanConformanceTest, EqualPrioritiesKeepTheirOrderFromEveryThread) {
  const auto connection = Connect();
  constexpr int kThreads = 4;
  constexpr int kFrames = 200;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kFrames; ++i)
        connection->Send(PushFrame(thread * 1000 + i, Pattern(i * 37, thread)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(ServerReceived(kThreads * kFrames));
  std::vector<uint32_t> next(kThreads, 0);
  for (const Received& received : server_.received_) {
    const uint32_t thread = received.header.part / 1000;
    ASSERT_EQ(received.header.part % 1000, next[thread]++);
    ASSERT_EQ(received.payload, Pattern(received.header.part % 1000 * 37, thread));
  }
}

// In spite of the kernel's buffers (protocol rule 14).
TEST_P(VanConformanceTest, HigherPriorityOvertakesWhatStillWaits) {
  // The receiver holds still until everything has been queued, so that most of it has to wait. It
  // may be at the gate for the last frame when the test is already over.
  auto gate = std::make_shared<std::mutex>();
  server_.answer_ = [gate](Connection&, const FrameHeader&) {
    std::lock_guard<std::mutex> lock(*gate);
  };
  const auto connection = Connect();
  {
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < 40; ++part)
      connection->Send(PushFrame(part, Pattern(2000000, 0), 0));
    connection->Send(PushFrame(1000, Pattern(1000, 0), 5));
  }
  ASSERT_TRUE(ServerReceived(41));
  size_t position = 0;
  while (server_.received_[position].header.part != 1000) ++position;
  EXPECT_LT(position, 20u) << "the frame of highest priority came as number " << position;
}

// However much its process has to say; long messages are no exception (protocol rule 20).
TEST_P(VanConformanceTest, ASignOfLifeOvertakesAll) {
  if (GetParam().by_rdma) GTEST_SKIP() << "control frames go over TCP";
  auto gate = std::make_shared<std::mutex>();
  server_.answer_ = [gate](Connection&, const FrameHeader&) {
    std::lock_guard<std::mutex> lock(*gate);
  };
  const auto connection = Connect();
  const auto control = [](uint32_t part, size_t bytes) {
    OutgoingFrame frame = PushFrame(part, Pattern(bytes, 0));
    frame.header.type = FrameType::kControl;
    return frame;
  };
  constexpr uint32_t kFrames = 40;
  {
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < kFrames; ++part) connection->Send(control(part, 2000000));
    OutgoingFrame beat = control(kFrames, 10);
    beat.is_sign_of_life = true;
    connection->Send(std::move(beat));
  }
  ASSERT_TRUE(ServerReceived(kFrames + 1));
  size_t position = 0;
  while (server_.received_[position].header.part != kFrames) ++position;
  EXPECT_LT(position, kFrames / 2);
}

// Its I/O thread is in a long call; the peer says something, or it does not.
TEST_P(VanConformanceTest, WhatWaitsToBeReadHasBeenHeard) {
  if (GetParam().by_rdma) GTEST_SKIP() << "heartbeats go over TCP";
  auto gate = std::make_shared<std::mutex>();
  server_.answer_ = [gate](Connection&, const FrameHeader&) {
    std::lock_guard<std::mutex> lock(*gate);
  };
  const auto connection = Connect();
  ASSERT_TRUE(server_.Wait([&] { return server_.opened_.size() == 1; }));
  const std::shared_ptr<Connection> at_server = server_.opened_[0];
  const auto is_heard_after = [&](int64_t begin_ns) {
    return at_server->last_heard_ns() >= begin_ns;
  };
  int64_t begin_ns = 0;
  {
    std::lock_guard<std::mutex> lock(*gate);
    connection->Send(PushFrame(1, {}));
    ASSERT_TRUE(ServerReceived(1));
    EXPECT_GT(at_server->last_heard_ns(), 0);
    std::this_thread::sleep_for(10ms);
    begin_ns = MonotonicNanos();
    EXPECT_FALSE(is_heard_after(begin_ns)) << "nothing has come meanwhile";
    connection->Send(PushFrame(2, {}));
    for (int i = 0; i < 10000 && !is_heard_after(begin_ns); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(is_heard_after(begin_ns));
  }
  ASSERT_TRUE(ServerReceived(2));
}

// Of very different lengths, so that pieces of the wire begin and end anywhere in them.
TEST_P(VanConformanceTest, APayloadMayLieInSeveralPlaces) {
  const auto connection = Connect();
  const std::vector<std::vector<size_t>> cases = {{1},
                                                  {100, 100000},
                                                  {524288, 524288, 1},
                                                  {1, 3000000, 2, 70000, 600000},
                                                  std::vector<size_t>(1000, 777)};
  std::vector<std::vector<uint8_t>> wholes;
  for (uint32_t part = 0; part < cases.size(); ++part) {
    const auto scattered = std::make_shared<ScatteredPayload>();
    std::vector<uint8_t> whole;
    for (const size_t bytes : cases[part]) {
      const auto piece = std::make_shared<const std::vector<uint8_t>>(Pattern(bytes, whole.size()));
      scattered->Add(piece->data(), piece->size(), piece);
      whole.insert(whole.end(), piece->begin(), piece->end());
    }
    OutgoingFrame frame = PushFrame(part, {}, /*priority=*/part % 3);
    frame.header.payload_bytes = whole.size();
    frame.scattered = scattered.get();
    frame.keep_alive = scattered;
    connection->Send(std::move(frame));
    wholes.push_back(std::move(whole));
  }
  ASSERT_TRUE(ServerReceived(cases.size()));
  for (const Received& received : server_.received_)
    EXPECT_EQ(received.payload, wholes[received.header.part]) << received.header.part;
}

TEST_P(VanConformanceTest, WhatIsRevokedBeforeItLeavesNeverArrives) {
  constexpr uint32_t kFrames = 40;
  constexpr size_t kBytes = 2000000;
  auto gate = std::make_shared<std::mutex>();
  server_.answer_ = [gate](Connection&, const FrameHeader&) {
    std::lock_guard<std::mutex> lock(*gate);
  };
  const auto connection = Connect();
  const int owner = 0;
  std::vector<std::shared_ptr<const void>> dropped;
  uint64_t revoked = 0;
  {
    // The receiver holds still.
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < kFrames; ++part) {
      OutgoingFrame frame = PushFrame(part, Pattern(kBytes, 0));
      if (part % 2 == 1) frame.owner = &owner;
      connection->Send(std::move(frame));
    }
    revoked = connection->Revoke(&owner, &dropped);
    connection->Send(PushFrame(kFrames, Pattern(10, 0)));
  }
  EXPECT_GE(dropped.size(), kFrames / 4);
  EXPECT_EQ(revoked, dropped.size() * kBytes);
  const size_t left = kFrames + 1 - dropped.size();
  ASSERT_TRUE(ServerReceived(left));
  EXPECT_EQ(server_.received_.back().header.part, kFrames);
  uint32_t even = 0;
  for (const Received& received : server_.received_)
    even += received.header.part < kFrames && received.header.part % 2 == 0 ? 1 : 0;
  EXPECT_EQ(even, kFrames / 2);
  EXPECT_EQ(connection->Revoke(&owner, &dropped), 0u);
}

// A payload is long, and has begun to leave.
TEST_P(VanConformanceTest, WhatIsUrgentNeedNotWaitForTheEndOfWhatIsLong) {
  if (GetParam().by_rdma) GTEST_SKIP() << "one frame after the other";
  auto gate = std::make_shared<std::mutex>();
  class Gated : public CollectingSink {
   public:
    explicit Gated(std::shared_ptr<std::mutex> gate) : CollectingSink(65536), gate_(gate) {}
    Span Prepare(uint64_t remaining) override {
      std::lock_guard<std::mutex> lock(*gate_);
      return CollectingSink::Prepare(remaining);
    }

   private:
    const std::shared_ptr<std::mutex> gate_;
  };
  server_.new_sink_ = [gate] { return std::make_shared<Gated>(gate); };
  const auto connection = Connect();
  const std::vector<std::vector<uint8_t>> payloads = {Pattern(40 << 20, 1), Pattern(3 << 20, 2),
                                                      Pattern(600000, 3), Pattern(10, 4),
                                                      Pattern(700000, 5)};
  const std::vector<int32_t> priorities = {0, 1, 2, 3, 1};
  {
    // The receiver holds still.
    std::lock_guard<std::mutex> lock(*gate);
    for (uint32_t part = 0; part < payloads.size(); ++part) {
      connection->Send(PushFrame(part, payloads[part], priorities[part]));
      std::this_thread::sleep_for(50ms);
    }
  }
  ASSERT_TRUE(ServerReceived(payloads.size()));
  // Of the others more may have begun when a more urgent one came.
  EXPECT_EQ(server_.received_.back().header.part, 0u);
  for (const Received& received : server_.received_)
    EXPECT_EQ(received.payload, payloads[received.header.part]) << received.header.part;
}

// Each more urgent than the one before, and all long.
TEST_P(VanConformanceTest, ManyLongFramesMayHaveBegun) {
  constexpr uint32_t kFrames = 100;
  const auto connection = Connect();
  for (uint32_t part = 0; part < kFrames; ++part) {
    connection->Send(PushFrame(part, Pattern(600000, part), static_cast<int32_t>(part)));
    if (part % 8 == 0) std::this_thread::sleep_for(1ms);
  }
  ASSERT_TRUE(ServerReceived(kFrames));
  for (const Received& received : server_.received_)
    ASSERT_EQ(received.payload, Pattern(600000, received.header.part)) << received.header.part;
}

TEST_P(VanConformanceTest, DropsPayloadsWithoutASink) {
  server_.drop_part_ = 7;
  const auto connection = Connect();
  connection->Send(PushFrame(7, Pattern(300000, 1)));
  connection->Send(PushFrame(8, Pattern(300000, 2)));
  ASSERT_TRUE(ServerReceived(2));
  EXPECT_TRUE(server_.received_[0].payload.empty());
  EXPECT_EQ(server_.received_[1].payload, Pattern(300000, 2));
}

TEST_P(VanConformanceTest, DrainedFollowsTheLastFrame) {
  const auto connection = Connect();
  for (uint32_t part = 0; part < 100; ++part) connection->Send(PushFrame(part, Pattern(50000, 1)));
  ASSERT_TRUE(server_.Wait(
      [&] { return !server_.drained_after_.empty() && server_.drained_after_.back() == 100; }));
}

TEST_P(VanConformanceTest, KeepAliveIsDroppedOnceSent) {
  const auto connection = Connect();
  auto payload = std::make_shared<std::vector<uint8_t>>(Pattern(3000000, 1));
  OutgoingFrame frame = PushFrame(0, {});
  frame.header.payload_bytes = payload->size();
  frame.payload = payload->data();
  frame.keep_alive = payload;
  const std::weak_ptr<std::vector<uint8_t>> watch = payload;
  payload.reset();
  connection->Send(std::move(frame));
  ASSERT_TRUE(ServerReceived(1));
  for (int i = 0; i < 200 && !watch.expired(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(watch.expired());
}

TEST_P(VanConformanceTest, KeepAliveIsDroppedWhenTheConnectionEnds) {
  const auto connection = Connect();
  auto payload = std::make_shared<std::vector<uint8_t>>(100);
  const std::weak_ptr<std::vector<uint8_t>> watch = payload;
  connection->Close(Cancelled("enough"));
  ASSERT_TRUE(client_.Wait([&] { return client_.closed_.size() == 1; }));
  OutgoingFrame frame = PushFrame(0, {});
  frame.keep_alive = payload;
  payload.reset();
  connection->Send(std::move(frame));
  frame.keep_alive.reset();
  EXPECT_TRUE(watch.expired());
}

// The receiver is slow, and the sender's memory is used for something else as soon as it may be.
TEST_P(VanConformanceTest, NothingWrongIsDeliveredWhenTheSenderStops) {
  class Slow : public CollectingSink {
   public:
    Slow(std::shared_future<void> open, std::atomic<bool>* begun)
        : CollectingSink(65536), open_(std::move(open)), begun_(begun) {}
    Span Prepare(uint64_t remaining) override {
      *begun_ = true;
      open_.wait();
      return CollectingSink::Prepare(remaining);
    }

   private:
    const std::shared_future<void> open_;
    std::atomic<bool>* const begun_;
  };
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future();
  std::atomic<bool> begun{false};
  server_.new_sink_ = [&] { return std::make_shared<Slow>(open, &begun); };
  const auto connection = Connect();
  std::vector<uint8_t> memory = Pattern(300000, 1);
  std::atomic<bool> dropped{false};
  OutgoingFrame frame;
  frame.header.type = FrameType::kPush;
  frame.header.payload_bytes = memory.size();
  frame.payload = memory.data();
  frame.keep_alive = std::shared_ptr<void>(&memory, [&](void*) {
    std::fill(memory.begin(), memory.end(), uint8_t{0xee});
    dropped = true;
  });
  connection->Send(std::move(frame));
  for (int i = 0; i < 1000 && !begun; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(begun);
  // One that lends its memory to the receiver waits for it.
  std::thread later([&] {
    std::this_thread::sleep_for(300ms);
    gate.set_value();
  });
  client_van_->Stop();
  EXPECT_TRUE(dropped);
  later.join();
  ASSERT_TRUE(server_.Wait([&] { return server_.closed_.size() == 1; }));
  EXPECT_EQ(server_.closed_[0].code(), StatusCode::kUnavailable);
  // All of it may have left before.
  for (const Received& received : server_.received_)
    EXPECT_TRUE(received.payload == Pattern(300000, 1)) << "something else was delivered";
  server_van_->Stop();
}

TEST_P(VanConformanceTest, CloseIsSeenOnceOnBothSides) {
  const auto connection = Connect();
  connection->Close(FailedPrecondition("enough"));
  connection->Close(FailedPrecondition("again"));
  ASSERT_TRUE(client_.Wait([&] { return client_.closed_.size() == 1; }));
  ASSERT_TRUE(server_.Wait([&] { return server_.closed_.size() == 1; }));
  EXPECT_EQ(client_.closed_[0].message(), "enough");
  EXPECT_EQ(server_.closed_[0].code(), StatusCode::kUnavailable);
  EXPECT_EQ(client_.closed_.size(), 1u);
}

TEST_P(VanConformanceTest, AHandlersErrorClosesTheConnection) {
  server_.refuse_part_ = 1;
  const auto connection = Connect();
  connection->Send(PushFrame(1, Pattern(10, 0)));
  ASSERT_TRUE(server_.Wait([&] { return server_.closed_.size() == 1; }));
  EXPECT_EQ(server_.closed_[0].message(), "part refused");
  ASSERT_TRUE(client_.Wait([&] { return client_.closed_.size() == 1; }));
}

TEST_P(VanConformanceTest, AnExceptionEndsItsConnectionOnly) {
  server_.no_memory_part_ = 7;
  const auto doomed = Connect(0);
  const auto other = Connect(1);
  doomed->Send(PushFrame(7, Pattern(300000, 1)));
  ASSERT_TRUE(server_.Wait([&] { return server_.closed_.size() == 1; }));
  EXPECT_EQ(server_.closed_[0].code(), StatusCode::kResourceExhausted);
  other->Send(PushFrame(8, Pattern(300000, 2)));
  ASSERT_TRUE(ServerReceived(1));
  EXPECT_EQ(server_.received_[0].payload, Pattern(300000, 2));
}

TEST_P(VanConformanceTest, CloseFromInsideAHandlerCall) {
  server_.answer_ = [](Connection& connection, const FrameHeader&) {
    connection.Close(Cancelled("from inside"));
  };
  const auto connection = Connect();
  connection->Send(PushFrame(1, Pattern(10, 0)));
  ASSERT_TRUE(server_.Wait([&] { return server_.closed_.size() == 1; }));
  EXPECT_EQ(server_.closed_[0].message(), "from inside");
}

TEST_P(VanConformanceTest, RefusalTellsTheReason) {
  Hello stranger = WorkerHello();
  stranger.job_id = "another job";
  std::shared_ptr<Connection> connection;
  const Status status =
      client_van_->Connect(endpoint_, stranger, ServerPeer(), &client_, 5, &connection);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("another job"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("server 0"), std::string::npos) << status.message();
  EXPECT_EQ(acceptor_.hellos_, 1) << "a refusal is final";
  EXPECT_EQ(connection, nullptr);
}

TEST_P(VanConformanceTest, WhoIsNotMeantRefuses) {
  Hello another = ServerPeer();
  another.rank = 3;
  std::shared_ptr<Connection> connection;
  const Status status =
      client_van_->Connect(endpoint_, WorkerHello(), another, &client_, 5, &connection);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("asked for server 3, and this is server 0"), std::string::npos)
      << status.message();
}

TEST_P(VanConformanceTest, AnotherSecretIsRefusedBeforeAnybodyIsAsked) {
  VanOptions options;
  options.secret = std::string(GetParam().secret) + "another";
  const std::unique_ptr<Van> stranger = GetParam().create(options);
  std::shared_ptr<Connection> connection;
  const Status status =
      stranger->Connect(endpoint_, WorkerHello(), ServerPeer(), &client_, 5, &connection);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("secret"), std::string::npos) << status.message();
  EXPECT_EQ(acceptor_.hellos_, 0);
}

TEST_P(VanConformanceTest, TriesAgainWhileThePeerIsNotReady) {
  acceptor_.not_ready_ = 3;
  EXPECT_NE(Connect(), nullptr);
  EXPECT_EQ(acceptor_.hellos_, 4);
}

TEST_P(VanConformanceTest, NobodyThereIsUnavailableWithinTheTimeout) {
  server_van_->Stop();
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<Connection> connection;
  const Status status =
      client_van_->Connect(endpoint_, WorkerHello(), ServerPeer(), &client_, 1, &connection);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(endpoint_.ToString()), std::string::npos) << status.message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
}

TEST_P(VanConformanceTest, StopEndsEveryConnectionAndIsFinal) {
  std::vector<std::shared_ptr<Connection>> connections;
  for (int32_t rank = 0; rank < 5; ++rank) connections.push_back(Connect(rank));
  for (const auto& connection : connections) connection->Send(PushFrame(0, Pattern(4000000, 0)));
  client_van_->Stop();
  EXPECT_EQ(client_.closed_.size(), 5u);
  for (const Status& reason : client_.closed_) EXPECT_EQ(reason.code(), StatusCode::kCancelled);
  for (const auto& connection : connections) connection->Send(PushFrame(0, Pattern(10, 0)));
  client_van_->Stop();
  ASSERT_TRUE(server_.Wait([&] { return server_.closed_.size() == 5; }));
}

TEST_P(VanConformanceTest, CountsFramesAndBytes) {
  const auto connection = Connect();
  connection->Send(PushFrame(0, Pattern(1000, 0)));
  connection->Send(PushFrame(1, {}));
  ASSERT_TRUE(ServerReceived(2));
  EXPECT_EQ(client_van_->counters().frames_sent, 2u);
  EXPECT_EQ(client_van_->counters().payload_bytes_sent, 1000u);
  EXPECT_EQ(server_van_->counters().frames_received, 2u);
  EXPECT_EQ(server_van_->counters().payload_bytes_received, 1000u);
  EXPECT_EQ(server_van_->counters().wire_bytes_received, client_van_->counters().wire_bytes_sent);
}

// Without the fixture's Vans: a child forked from a process with a running Van may not use one
// (base/fork.h).
class VanProcessTest : public ::testing::TestWithParam<VanKind> {};

// A process of its own that connects, sends half of what it announces, and is killed.
TEST_P(VanProcessTest, APeerKilledInMidFrameIsReported) {
  if (GetParam().needs_device && !HasRdmaDevice()) GTEST_SKIP() << "no RDMA device";
  VanOptions options;
  options.secret = GetParam().secret;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::unique_ptr<Van> van = GetParam().create(options);
    Recorder recorder;
    std::shared_ptr<Connection> connection;
    Endpoint endpoint{"127.0.0.1", 0};
    if (read(ready[0], &endpoint.port, sizeof(endpoint.port)) != sizeof(endpoint.port)) _exit(3);
    Hello hello = WorkerHello();
    hello.same_host = GetParam().same_host;
    if (!van->Connect(endpoint, hello, ServerPeer(), &recorder, 5, &connection).ok()) _exit(1);
    // More than the socket's buffers hold while the receiver stands still: it cannot have left when
    // the kill comes.
    connection->Send(PushFrame(1, Pattern(64 << 20, 0)));
    pause();
    _exit(2);
  }
  std::mutex gate;
  gate.lock();
  std::atomic<bool> begun{false};
  class Blocking : public PayloadSink {
   public:
    Blocking(std::mutex* gate, std::atomic<bool>* begun)
        : gate_(gate), begun_(begun), span_(65536) {}
    Span Prepare(uint64_t) override {
      *begun_ = true;
      std::lock_guard<std::mutex> lock(*gate_);
      return {span_.data(), span_.size()};
    }
    void Commit(size_t) override {}

   private:
    std::mutex* gate_;
    std::atomic<bool>* begun_;
    std::vector<uint8_t> span_;
  };
  class Handler : public Recorder {
   public:
    Handler(std::mutex* gate, std::atomic<bool>* begun) : gate_(gate), begun_(begun) {}
    Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>* sink) override {
      *sink = std::make_shared<Blocking>(gate_, begun_);
      return OkStatus();
    }

   private:
    std::mutex* gate_;
    std::atomic<bool>* begun_;
  } handler(&gate, &begun);
  Acceptor acceptor(&handler);
  const std::unique_ptr<Van> van = GetParam().create(options);
  Endpoint endpoint;
  ASSERT_TRUE(van->Listen("127.0.0.1", 0, &acceptor, &endpoint).ok());
  ASSERT_EQ(write(ready[1], &endpoint.port, sizeof(endpoint.port)),
            static_cast<ssize_t>(sizeof(endpoint.port)));
  for (int i = 0; i < 1000 && !begun; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(begun);
  kill(child, SIGKILL);
  int exit_status = 0;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(exit_status)) << exit_status;
  gate.unlock();
  EXPECT_TRUE(handler.Wait([&] { return handler.closed_.size() == 1; }));
  EXPECT_EQ(handler.closed_[0].code(), StatusCode::kUnavailable);
  EXPECT_TRUE(handler.received_.empty()) << "half a frame was delivered as a whole one";
  van->Stop();
  close(ready[0]);
  close(ready[1]);
}

const auto kVans =
    ::testing::Values(VanKind{"Tcp", NewTcpVan}, VanKind{"TcpSameHost", NewReadingTcpVan, true},
                      VanKind{"TcpWithSecret", NewTcpVan, false, "secret"},
                      VanKind{"TcpSameHostWithSecret", NewReadingTcpVan, true, "secret"},
                      VanKind{"TcpSameProcessWithSecret", NewTcpVan, true, "secret"},
                      VanKind{"TcpWithTls", NewTlsVan, false, "secret"},
                      VanKind{"TcpSameHostWithTls", NewTlsVan, true, "secret"},
                      VanKind{"Rdma", NewRdmaVanForSure, false, "", true, true},
                      VanKind{"RdmaWithSecret", NewRdmaVanForSure, false, "secret", true, true});
const auto kVansOfOneProcess =
    ::testing::Values(VanKind{"RdmaLoopback", NewLoopbackRdmaVan, false, "", true},
                      VanKind{"RdmaLoopbackWithSecret", NewLoopbackRdmaVan, false, "secret", true});
const auto kVanName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(AllVans, VanConformanceTest, kVans, kVanName);
INSTANTIATE_TEST_SUITE_P(VansOfOneProcess, VanConformanceTest, kVansOfOneProcess, kVanName);
INSTANTIATE_TEST_SUITE_P(AllVans, VanProcessTest, kVans, kVanName);

}  // namespace
}  // namespace byteps
