#include "cc/van/tcp/unauthenticated.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/van/open_acceptor.h"
#include "cc/van/tcp/stream.h"
#include "cc/van/van.h"
#include "cc/wire/authentication.h"

namespace byteps {
namespace {

constexpr int64_t kSecond = 1000000000;

class FakeStranger : public Stranger {
 public:
  void EndHandshake(const Status&) override { ended_ = true; }
  bool ended_ = false;
};

TEST(UnauthenticatedConnectionsTest, AHostThatFailsOftenIsKnownForAMoment) {
  UnauthenticatedConnections strangers;
  int64_t now = kSecond;
  for (int i = 0; i < UnauthenticatedConnections::kBurst; ++i) {
    EXPECT_FALSE(strangers.HasFailedTooOften("10.0.0.1", now));
    strangers.Failed("10.0.0.1", "refused", now);
  }
  EXPECT_TRUE(strangers.HasFailedTooOften("10.0.0.1", now));
  EXPECT_FALSE(strangers.HasFailedTooOften("10.0.0.2", now));
  now += kSecond / 5;
  EXPECT_FALSE(strangers.HasFailedTooOften("10.0.0.1", now));
}

TEST(UnauthenticatedConnectionsTest, HandshakesHaveAShareOfTheProcessor) {
  UnauthenticatedConnections strangers;
  int64_t now = kSecond;
  EXPECT_TRUE(strangers.HasTime(now));
  strangers.Spend(1, now);
  EXPECT_FALSE(strangers.HasTime(now));
  // However much that was, it is forgotten soon.
  now += SecondsToNanos(0.5);
  EXPECT_TRUE(strangers.HasTime(now));
}

TEST(UnauthenticatedConnectionsTest, LogsAreFewAndSayHowManyThereWere) {
  UnauthenticatedConnections strangers;
  int logged = 0;
  for (int i = 0; i < 1000; ++i)
    logged += !strangers.Failed("10.0.0.1", "refused", kSecond).empty();
  EXPECT_EQ(logged, static_cast<int>(UnauthenticatedConnections::kLogBurst));
  EXPECT_EQ(strangers.Failed("10.0.0.1", "refused", 10 * kSecond), "refused (990 more before)");
}

TEST(UnauthenticatedConnectionsTest, ManyHostsTakeBoundedMemoryAndShareWhatIsLeft) {
  UnauthenticatedConnections strangers;
  const auto host = [](size_t i) {
    return "10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256);
  };
  for (size_t i = 0; i < 2 * UnauthenticatedConnections::kMostHosts; ++i)
    strangers.Failed(host(i), "refused", kSecond);
  // Later all those are forgotten.
  for (size_t i = 0; i < 10; ++i) strangers.Failed("10.9.9.9", "refused", 100 * kSecond);
  EXPECT_FALSE(strangers.HasFailedTooOften("10.9.9.9", 100 * kSecond));
}

std::vector<std::shared_ptr<FakeStranger>> Added(UnauthenticatedConnections* strangers,
                                                 size_t count) {
  std::vector<std::shared_ptr<FakeStranger>> all;
  for (; count > 0; --count) strangers->Add(all.emplace_back(std::make_shared<FakeStranger>()));
  return all;
}

size_t Ended(const std::vector<std::shared_ptr<FakeStranger>>& all) {
  size_t ended = 0;
  for (const auto& one : all) ended += one->ended_;
  return ended;
}

TEST(UnauthenticatedConnectionsTest, TheOldestOfTooManyHandshakesEnds) {
  UnauthenticatedConnections strangers;
  const auto all = Added(&strangers, UnauthenticatedConnections::kMostWaiting + 3);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->ended_, i < 3) << i;
}

TEST(UnauthenticatedConnectionsTest, ThoseWhoHaveShakenHandsDoNotCount) {
  UnauthenticatedConnections strangers;
  const auto slow = Added(&strangers, 1);
  for (size_t i = 0; i < 10 * UnauthenticatedConnections::kMostWaiting; ++i) {
    const auto quick = Added(&strangers, 1);
    strangers.HasSaidHello(quick[0].get());
    strangers.Remove(quick[0].get());
  }
  EXPECT_FALSE(slow[0]->ended_);
}

TEST(UnauthenticatedConnectionsTest, TheSilentGiveWayFirst) {
  UnauthenticatedConnections strangers;
  const auto greeted = Added(&strangers, 100);
  for (const auto& one : greeted) strangers.HasSaidHello(one.get());
  const auto silent = Added(&strangers, UnauthenticatedConnections::kMostWaiting);
  EXPECT_EQ(Ended(greeted), 0u);
  EXPECT_EQ(Ended(silent), 100u);
  for (const auto& one : silent) strangers.HasSaidHello(one.get());
  Added(&strangers, 1);
  EXPECT_TRUE(greeted[0]->ended_);
}

TEST(UnauthenticatedConnectionsTest, AsManyAsAreExpectedMayComeTwice) {
  UnauthenticatedConnections strangers;
  strangers.Expect(1000);
  EXPECT_EQ(Ended(Added(&strangers, 2000)), 0u);
  EXPECT_EQ(Ended(Added(&strangers, 1)), 0u);
}

TEST(UnauthenticatedConnectionsTest, WhereDescriptorsAreShortTheSilentGo) {
  UnauthenticatedConnections strangers;
  const auto greeted = Added(&strangers, 10);
  for (const auto& one : greeted) strangers.HasSaidHello(one.get());
  const auto silent = Added(&strangers, 11);
  strangers.MakeRoom();
  EXPECT_EQ(Ended(greeted), 0u);
  EXPECT_EQ(Ended(silent), 6u);
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
    options.handshake_timeout = handshake_timeout_;
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

  double handshake_timeout_ = 0.5;
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

TEST_F(HostileTest, IdleConnectionsGiveWay) {
  std::vector<Socket> idle(UnauthenticatedConnections::kMostWaiting + 50);
  for (Socket& socket : idle)
    ASSERT_TRUE(ConnectTo(endpoint_, {MonotonicNanos() + 5 * kSecond}, &socket).ok());
  std::shared_ptr<Connection> connection;
  const Status status = Connect(friend_van_.get(), &connection);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(StillServed());
}

// Accepts connections and closes each without a word, as a listener that has no room does.
class ClosingListener {
 public:
  ClosingListener() {
    EXPECT_TRUE(ListenOn("127.0.0.1", 0, &listener_, &endpoint_).ok());
    fcntl(listener_.get(), F_SETFL, 0);  // accept waits
    thread_ = std::thread([this] {
      for (int accepted; (accepted = accept(listener_.get(), nullptr, nullptr)) >= 0;)
        close(accepted);
    });
  }
  ~ClosingListener() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  Socket listener_;
  Endpoint endpoint_;
  std::thread thread_;
};

TEST(UnheardTest, WhoIsClosedBeforeAnAnswerLearnsWhatMayBeWrong) {
  ClosingListener listener;
  const std::unique_ptr<Van> van = NewTcpVan({});
  Echo handler;
  std::shared_ptr<Connection> connection;
  Hello hello;
  hello.job_id = "job";
  const Status status = van->Connect(listener.endpoint(), hello, hello, &handler, 0.2, &connection);
  EXPECT_NE(status.message().find("before it had said a word: too many others may connect to it"),
            std::string::npos)
      << status.ToString();
  van->Stop();
}

class SlowHandshakeTest : public HostileTest {
 protected:
  SlowHandshakeTest() { handshake_timeout_ = 60; }

  // A connection over which anything can be sent.
  std::unique_ptr<Stream> Handshake(const SocketWait& wait) {
    const std::string name = "the listener";
    Socket socket;
    EXPECT_TRUE(ConnectTo(endpoint_, wait, &socket).ok());
    auto stream =
        std::make_unique<Stream>(std::move(socket), nullptr, TlsSide::kConnecting, &counters_);
    Hello hello;
    hello.job_id = "job";
    ConnectingHandshake handshake("secret", hello);
    uint8_t said[kHelloBytes], challenged[kChallengeBytes], response[kResponseBytes],
        welcome[kWelcomeBytes];
    Challenge challenge;
    handshake.WriteHello(said);
    EXPECT_TRUE(stream->SendExactly(name, said, sizeof(said), wait).ok());
    EXPECT_TRUE(stream->ReceiveExactly(name, challenged, sizeof(challenged), wait).ok());
    EXPECT_TRUE(handshake.ReadChallenge(challenged, &challenge).ok());
    handshake.WriteResponse({}, response);
    EXPECT_TRUE(stream->SendExactly(name, response, sizeof(response), wait).ok());
    EXPECT_TRUE(stream->ReceiveExactly(name, welcome, sizeof(welcome), wait).ok());
    return stream;
  }
};

// Others at the same address connect, send and go, all the time: whoever knows the secret gets in
// at the first attempt.
TEST_F(SlowHandshakeTest, WhoFailsKeepsNobodyOut) {
  const SocketWait wait{MonotonicNanos() + 60 * kSecond};
  std::atomic<bool> is_over{false};
  std::atomic<int> gone{0};
  std::vector<std::thread> attackers(2);
  for (std::thread& attacker : attackers) {
    attacker = std::thread([&] {
      while (!is_over) {
        Socket socket;
        if (!ConnectTo(endpoint_, wait, &socket).ok()) continue;
        Stream stream(std::move(socket), nullptr, TlsSide::kConnecting, &counters_);
        const std::string bytes(kHelloBytes, 'x');
        stream.SendExactly("the listener", bytes.data(), bytes.size(), wait).ok();
        ++gone;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  while (gone < 4 * UnauthenticatedConnections::kBurst)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 0; i < 50; ++i) {
    Handshake(wait);
    const int before = gone;
    while (gone < before + 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_over = true;
  for (std::thread& attacker : attackers) attacker.join();
  EXPECT_TRUE(StillServed());
}

// One who knows the secret, and whose frames come in pieces that do not fit.
TEST_F(SlowHandshakeTest, PiecesThatFitNoFrameEndTheirConnection) {
  const auto header = [](FrameType type, uint64_t bytes,
                         PayloadLocation place = PayloadLocation::kFollows) {
    FrameHeader header;
    header.type = type;
    header.place = place;
    header.payload_bytes = bytes;
    std::string text(kFrameHeaderBytes, '\0');
    EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(text.data()));
    return text;
  };
  const std::string piece(kPieceBytes, 'x');
  const std::string begun = header(FrameType::kPush, 2 * kPieceBytes) + piece;
  std::string many;
  for (size_t i = 0; i <= kMaxBegunFrames; ++i) many += begun;
  const std::vector<std::string> cases = {
      header(FrameType::kMore, 10),
      header(FrameType::kMore, 0),
      begun + header(FrameType::kMore, 10),
      begun + header(FrameType::kMore, 0),
      begun + header(FrameType::kMore, kPieceBytes, PayloadLocation::kSenderMemory),
      many};
  for (const std::string& bytes : cases) {
    const SocketWait wait{MonotonicNanos() + 60 * kSecond};
    const std::unique_ptr<Stream> peer = Handshake(wait);
    peer->SendExactly("the listener", bytes.data(), bytes.size(), wait).ok();  // it may end before
    char answer;
    EXPECT_EQ(peer->ReceiveExactly("the listener", &answer, 1, wait).code(),
              StatusCode::kUnavailable);
  }
  // The peer may know before the handler.
  const auto ended = static_cast<int>(cases.size());
  for (int i = 0; i < 1000 && server_.closed < ended; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server_.closed, ended);
  EXPECT_EQ(server_.frames, 0);
  EXPECT_TRUE(StillServed());
}

// All workers of a large job connect at once, each of which needs a while to answer.
TEST_F(SlowHandshakeTest, AHerdGetsInAtTheFirstAttempt) {
  constexpr size_t kWorkers = 1000;
  ASSERT_TRUE(van_->Expect(2 * kWorkers).ok()) << "both ends are in this process";
  struct Client {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<ConnectingHandshake> handshake;
  };
  const SocketWait wait{MonotonicNanos() + 60 * kSecond};
  const std::string name = "the listener";
  std::vector<Client> herd(kWorkers);
  for (Client& client : herd) {
    Socket socket;
    ASSERT_TRUE(ConnectTo(endpoint_, wait, &socket).ok());
    client.stream =
        std::make_unique<Stream>(std::move(socket), nullptr, TlsSide::kConnecting, &counters_);
    Hello hello;
    hello.job_id = "job";
    client.handshake = std::make_unique<ConnectingHandshake>("secret", hello);
    uint8_t bytes[kHelloBytes];
    client.handshake->WriteHello(bytes);
    ASSERT_TRUE(client.stream->SendExactly(name, bytes, sizeof(bytes), wait).ok());
  }
  for (Client& client : herd) {
    uint8_t bytes[kChallengeBytes];
    const Status status = client.stream->ReceiveExactly(name, bytes, sizeof(bytes), wait);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Challenge challenge;
    ASSERT_TRUE(client.handshake->ReadChallenge(bytes, &challenge).ok());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (Client& client : herd) {
    uint8_t bytes[kResponseBytes];
    client.handshake->WriteResponse({}, bytes);
    ASSERT_TRUE(client.stream->SendExactly(name, bytes, sizeof(bytes), wait).ok());
  }
  for (Client& client : herd) {
    uint8_t bytes[kWelcomeBytes];
    const Status status = client.stream->ReceiveExactly(name, bytes, sizeof(bytes), wait);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Welcome welcome;
    ASSERT_TRUE(client.handshake->ReadWelcome(bytes, &welcome).ok());
  }
  EXPECT_TRUE(StillServed());
}

// A host of the job that is slow to answer, while others come and go.
TEST_F(SlowHandshakeTest, FinishedHandshakesPushNobodyOut) {
  Socket socket;
  const SocketWait wait{MonotonicNanos() + 60 * kSecond};
  ASSERT_TRUE(ConnectTo(endpoint_, wait, &socket).ok());
  Stream slow(std::move(socket), nullptr, TlsSide::kConnecting, &counters_);
  Hello hello;
  hello.job_id = "job";
  ConnectingHandshake handshake("secret", hello);
  uint8_t bytes[kHelloBytes], challenge_bytes[kChallengeBytes], response[kResponseBytes];
  handshake.WriteHello(bytes);
  ASSERT_TRUE(slow.SendExactly("the listener", bytes, sizeof(bytes), wait).ok());
  ASSERT_TRUE(
      slow.ReceiveExactly("the listener", challenge_bytes, sizeof(challenge_bytes), wait).ok());
  std::vector<std::shared_ptr<Connection>> others(UnauthenticatedConnections::kMostWaiting + 50);
  for (auto& other : others) ASSERT_TRUE(Connect(friend_van_.get(), &other).ok());
  Challenge challenge;
  ASSERT_TRUE(handshake.ReadChallenge(challenge_bytes, &challenge).ok());
  handshake.WriteResponse({}, response);
  ASSERT_TRUE(slow.SendExactly("the listener", response, sizeof(response), wait).ok());
  uint8_t welcome[kWelcomeBytes];
  const Status status = slow.ReceiveExactly("the listener", welcome, sizeof(welcome), wait);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

}  // namespace
}  // namespace byteps
