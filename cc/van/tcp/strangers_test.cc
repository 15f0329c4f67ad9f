#include "cc/van/tcp/strangers.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/van/open_acceptor.h"
#include "cc/van/tcp/stream.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

constexpr int64_t kSecond = 1000000000;

class FakeStranger : public Stranger {
 public:
  bool is_stranger() const override { return is_stranger_; }
  void EndHandshake(const Status&) override { ended_ = true; }
  bool is_stranger_ = true;
  bool ended_ = false;
};

TEST(StrangersTest, AHostThatFailsOftenIsShutOutForAMoment) {
  Strangers strangers;
  int64_t now = kSecond;
  for (int i = 0; i < Strangers::kBurst; ++i) {
    EXPECT_TRUE(strangers.MayTry("10.0.0.1", now));
    strangers.Failed("10.0.0.1", "refused", now);
  }
  EXPECT_FALSE(strangers.MayTry("10.0.0.1", now));
  EXPECT_TRUE(strangers.MayTry("10.0.0.2", now));
  now += kSecond / 5;
  EXPECT_TRUE(strangers.MayTry("10.0.0.1", now));
}

TEST(StrangersTest, LogsAreFewAndSayHowManyThereWere) {
  Strangers strangers;
  int logged = 0;
  for (int i = 0; i < 1000; ++i)
    logged += !strangers.Failed("10.0.0.1", "refused", kSecond).empty();
  EXPECT_EQ(logged, static_cast<int>(Strangers::kLogBurst));
  EXPECT_EQ(strangers.Failed("10.0.0.1", "refused", 10 * kSecond), "refused (990 more before)");
}

TEST(StrangersTest, ManyHostsTakeBoundedMemoryAndShareWhatIsLeft) {
  Strangers strangers;
  const auto host = [](size_t i) {
    return "10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256);
  };
  for (size_t i = 0; i < 2 * Strangers::kMostHosts; ++i)
    strangers.Failed(host(i), "refused", kSecond);
  // Later all those are forgotten.
  for (size_t i = 0; i < 10; ++i) strangers.Failed("10.9.9.9", "refused", 100 * kSecond);
  EXPECT_TRUE(strangers.MayTry("10.9.9.9", 100 * kSecond));
}

TEST(StrangersTest, TheOldestOfTooManyHandshakesEnds) {
  Strangers strangers;
  std::vector<std::shared_ptr<FakeStranger>> all;
  for (size_t i = 0; i < Strangers::kMostWaiting + 3; ++i) {
    all.push_back(std::make_shared<FakeStranger>());
    if (i == 1) all.back()->is_stranger_ = false;  // it has shaken hands
    strangers.Add(all.back());
  }
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->ended_, i == 0 || i == 2) << i;
}

class Echo : public ConnectionHandler {
 public:
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>*) override {
    return OkStatus();
  }
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink>) override {
    ++frames;
    if (header.part == 1) {
      OutgoingFrame frame;
      frame.header.type = FrameType::kPush;
      connection.Send(std::move(frame));
    }
    return OkStatus();
  }
  void OnClosed(Connection&, const Status&) override { ++closed; }
  std::atomic<int> frames{0};
  std::atomic<int> closed{0};
};

// A listener with a secret, and a connection of one who knows it.
class HostileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    VanOptions options;
    options.secret = "secret";
    options.handshake_timeout = 0.5;
    van_ = NewTcpVan(options);
    ASSERT_TRUE(van_->Listen("127.0.0.1", 0, &acceptor_, &endpoint_).ok());
    friend_van_ = NewTcpVan(options);
    ASSERT_TRUE(Connect(friend_van_.get(), &connection_).ok());
  }
  void TearDown() override {
    friend_van_->Stop();
    van_->Stop();
  }
  Status Connect(Van* van, std::shared_ptr<Connection>* connection, double timeout = 5) {
    Hello hello;
    hello.job_id = "job";
    hello.rank = 0;
    return van->Connect(endpoint_, hello, hello, &client_, timeout, connection);
  }
  bool StillServed() {
    const int before = client_.frames;
    OutgoingFrame frame;
    frame.header.type = FrameType::kPush;
    frame.header.part = 1;
    connection_->Send(std::move(frame));
    for (int i = 0; i < 1000 && client_.frames == before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return client_.frames == before + 1 && client_.closed == 0;
  }
  // What a listener answers to these bytes until it closes the connection.
  std::string Answer(const std::string& bytes) {
    Socket socket;
    const int64_t deadline = MonotonicNanos() + 5 * kSecond;
    EXPECT_TRUE(ConnectTo(endpoint_, {deadline}, &socket).ok());
    Stream stream(std::move(socket), nullptr, TlsSide::kConnecting, &counters_);
    stream.SendExactly("the listener", bytes.data(), bytes.size(), {deadline}).ok();
    std::string answer;
    char byte;
    while (stream.ReceiveExactly("the listener", &byte, 1, {deadline}).ok()) answer += byte;
    EXPECT_LT(MonotonicNanos(), deadline) << "the connection stays open";
    return answer;
  }

  AtomicVanCounters counters_;
  Echo server_, client_;
  OpenAcceptor acceptor_{&server_};
  Endpoint endpoint_;
  std::unique_ptr<Van> van_, friend_van_;
  std::shared_ptr<Connection> connection_;
};

TEST_F(HostileTest, OthersGetNoAnswerAndAreEnded) {
  EXPECT_EQ(Answer("GET / HTTP/1.1\r\n\r\n" + std::string(1000, 'x')), "");
  EXPECT_EQ(Answer(std::string(100000, '\0')), "");
  EXPECT_EQ(Answer("silence"), "");  // after the time for a handshake
  EXPECT_TRUE(StillServed());
  EXPECT_EQ(acceptor_.hellos, 1) << "only the first has got through";
}

TEST_F(HostileTest, AWrongOrMissingSecretIsRefusedWithoutAskingTheJob) {
  for (const std::string secret : {"", "wrong"}) {
    VanOptions options;
    options.secret = secret;
    const std::unique_ptr<Van> van = NewTcpVan(options);
    std::shared_ptr<Connection> connection;
    EXPECT_EQ(Connect(van.get(), &connection).code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(StillServed());
  EXPECT_EQ(acceptor_.hellos, 1);
}

// Many failures shut a host out for a moment only: whoever knows the secret gets in.
TEST_F(HostileTest, AFloodKeepsNobodyOutForLong) {
  for (int i = 0; i < 200; ++i) Answer(std::string(200, '\1'));
  std::shared_ptr<Connection> connection;
  const Status status = Connect(friend_van_.get(), &connection);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(StillServed());
}

TEST_F(HostileTest, IdleConnectionsGiveWay) {
  std::vector<Socket> idle(Strangers::kMostWaiting + 50);
  for (Socket& socket : idle)
    ASSERT_TRUE(ConnectTo(endpoint_, {MonotonicNanos() + 5 * kSecond}, &socket).ok());
  std::shared_ptr<Connection> connection;
  const Status status = Connect(friend_van_.get(), &connection);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(StillServed());
}

}  // namespace
}  // namespace byteps
