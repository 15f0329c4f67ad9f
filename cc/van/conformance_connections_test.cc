// How the connections of every Van must begin and end, see van/van.h.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/van/testing/conformance.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

using namespace std::chrono_literals;

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

// Keeps a port of this host from others, and does not listen there.
int HoldPort(uint16_t port) {
  const int held = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(held, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return held;
}

TEST_P(VanConformanceTest, NobodyThereIsUnavailableWithinTheTimeout) {
  server_van_->Stop();
  const int held = HoldPort(endpoint_.port);
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<Connection> connection;
  const Status status =
      client_van_->Connect(endpoint_, WorkerHello(), ServerPeer(), &client_, 1, &connection);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(endpoint_.ToString()), std::string::npos) << status.message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
  close(held);
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

// Without the fixture's Vans: a child forked from a process with a running Van may not use one
// (base/fork.h).
class VanProcessTest : public ::testing::TestWithParam<VanKind> {};

// Takes no more of a payload than it has begun while `gate` is locked; says that it has begun.
class BlockingSink : public PayloadSink {
 public:
  BlockingSink(std::mutex* gate, std::atomic<bool>* begun)
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

// Receives payloads with such sinks.
class BlockingRecorder : public Recorder {
 public:
  BlockingRecorder(std::mutex* gate, std::atomic<bool>* begun) : gate_(gate), begun_(begun) {}
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>* sink) override {
    *sink = std::make_shared<BlockingSink>(gate_, begun_);
    return OkStatus();
  }

 private:
  std::mutex* gate_;
  std::atomic<bool>* begun_;
};

// What a child does: reads a port from `ready`, connects and sends until it is killed.
[[noreturn]] void SendToPort(const VanKind& kind, const VanOptions& options, int ready) {
  const std::unique_ptr<Van> van = kind.create(options);
  Recorder recorder;
  std::shared_ptr<Connection> connection;
  Endpoint endpoint{"127.0.0.1", 0};
  if (read(ready, &endpoint.port, sizeof(endpoint.port)) != sizeof(endpoint.port)) _exit(3);
  Hello hello = WorkerHello();
  hello.same_host = kind.same_host;
  if (!van->Connect(endpoint, hello, ServerPeer(), &recorder, 5, &connection).ok()) _exit(1);
  // More than the socket's buffers hold while the receiver stands still: it cannot have left when
  // the kill comes.
  connection->Send(PushFrame(1, Pattern(64 << 20, 0)));
  pause();
  _exit(2);
}

// A process of its own that connects, sends half of what it announces, and is killed.
TEST_P(VanProcessTest, APeerKilledInMidFrameIsReported) {
  if (GetParam().needs_device && !HasRdmaDevice()) GTEST_SKIP() << "no RDMA device";
  VanOptions options;
  options.secret = GetParam().secret;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) SendToPort(GetParam(), options, ready[0]);
  std::mutex gate;
  gate.lock();
  std::atomic<bool> begun{false};
  BlockingRecorder handler(&gate, &begun);
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

INSTANTIATE_TEST_SUITE_P(AllVans, VanConformanceTest, kVans, kVanName);
INSTANTIATE_TEST_SUITE_P(VansOfOneProcess, VanConformanceTest, kVansOfOneProcess, kVanName);
INSTANTIATE_TEST_SUITE_P(AllVans, VanProcessTest, kVans, kVanName);

}  // namespace
}  // namespace byteps
