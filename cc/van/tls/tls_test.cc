// What TLS is for: what somebody between two Vans can see, change and pretend. That a Van with TLS
// is a Van is in van/conformance_test.cc.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "cc/base/clock.h"
#include "cc/van/buffer_sink.h"
#include "cc/van/open_acceptor.h"
#include "cc/van/tcp/socket.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

const char kSecret[] = "a secret of at least sixteen bytes";
const std::string kPayload = [] {
  std::string text;
  while (text.size() < 300000) text += "a gradient that nobody is to see. ";
  return text;
}();

// Keeps what it receives.
class Collector : public ConnectionHandler {
 public:
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>* sink) override {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  Status OnFrame(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink> sink) override {
    received_ += static_cast<BufferSink&>(*sink).Take();
    ++frames;
    return OkStatus();
  }
  void OnClosed(Connection&, const Status& reason) override {
    reason_ = reason;
    ++closed;
  }
  std::string received_;  // to be read after `frames` says so
  Status reason_;         // and after `closed`
  std::atomic<int> frames{0};
  std::atomic<int> closed{0};
};

template <typename Condition>
bool WaitUntil(Condition condition) {
  for (int i = 0; i < 2000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

std::unique_ptr<Van> NewVanWith(bool tls, const std::string& secret = kSecret) {
  VanOptions options;
  options.secret = secret;
  options.tls = tls;
  return NewTcpVan(options);
}

// Passes one connection on, records both directions, and may change a byte of the first.
class Eavesdropper {
 public:
  explicit Eavesdropper(const Endpoint& to) : to_(to) {
    EXPECT_TRUE(ListenOn("127.0.0.1", 0, &listening_, &endpoint_).ok());
    thread_ = std::thread([this] { Run(); });
  }
  ~Eavesdropper() { Join(); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  const Endpoint& endpoint() const { return endpoint_; }
  std::atomic<int64_t> changed_byte{-1};
  std::string sent[2];  // of the side that connects, and of the other; after Join

 private:
  void Run() {
    const SocketWait wait{MonotonicNanos() + SecondsToNanos(20)};
    if (!WaitFor(listening_, POLLIN, wait, "accept").ok()) return;
    Socket ends[2] = {Socket(accept(listening_.get(), nullptr, nullptr)), Socket()};
    ASSERT_TRUE(ConnectTo(to_, wait, &ends[1]).ok());
    while (true) {
      pollfd polled[2] = {{ends[0].get(), POLLIN, 0}, {ends[1].get(), POLLIN, 0}};
      if (poll(polled, 2, 20000) <= 0) return;
      for (const int from : {0, 1}) {
        if (polled[from].revents != 0 && !Pass(ends[from], ends[1 - from], from)) return;
      }
    }
  }
  bool Pass(const Socket& from, const Socket& to, int direction) {
    char bytes[4096];
    const ssize_t received = recv(from.get(), bytes, sizeof(bytes), 0);
    if (received <= 0) return false;
    const int64_t changed = changed_byte - static_cast<int64_t>(sent[direction].size());
    sent[direction].append(bytes, received);
    if (direction == 0 && changed_byte >= 0 && changed < received)
      bytes[std::max<int64_t>(changed, 0)] ^= 1;
    for (ssize_t done = 0; done < received;) {
      const ssize_t passed = send(to.get(), bytes + done, received - done, MSG_NOSIGNAL);
      if (passed < 0 && errno != EAGAIN) return false;
      done += std::max<ssize_t>(passed, 0);
    }
    return true;
  }

  const Endpoint to_;
  Socket listening_;
  Endpoint endpoint_;
  std::thread thread_;
};

class TlsTest : public ::testing::Test {
 protected:
  void Listen(bool tls) {
    server_van_ = NewVanWith(tls);
    ASSERT_TRUE(server_van_->Listen("127.0.0.1", 0, &acceptor_, &endpoint_).ok());
  }
  Status Connect(Van* van, const Endpoint& endpoint) {
    Hello hello;
    hello.job_id = "the name of a job";
    hello.rank = 0;
    return van->Connect(endpoint, hello, hello, &client_, 5, &connection_);
  }
  void SendPayload() {
    OutgoingFrame frame;
    frame.header.type = FrameType::kPush;
    frame.header.payload_bytes = kPayload.size();
    frame.payload = kPayload.data();
    connection_->Send(std::move(frame));
  }

  Collector server_, client_;
  OpenAcceptor acceptor_{&server_};
  Endpoint endpoint_;
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<Van> server_van_;
};

// All records of a direction in turn: their types.
std::string RecordTypes(const std::string& bytes) {
  std::string types;
  for (size_t at = 0; at + 5 <= bytes.size();) {
    EXPECT_EQ(bytes[at + 1], 3) << "no TLS record at " << at;
    types += bytes[at];
    at += 5 + (static_cast<uint8_t>(bytes[at + 3]) << 8) + static_cast<uint8_t>(bytes[at + 4]);
  }
  return types;
}

TEST_F(TlsTest, WhoeverListensOnTheWaySeesTls13AndNothingElse) {
  for (const bool tls : {false, true}) {
    Listen(tls);
    Eavesdropper between(endpoint_);
    const std::unique_ptr<Van> van = NewVanWith(tls);
    const Status status = Connect(van.get(), between.endpoint());
    ASSERT_TRUE(status.ok()) << status.ToString();
    const int before = server_.frames;
    SendPayload();
    ASSERT_TRUE(WaitUntil([&] { return server_.frames > before; }));
    EXPECT_EQ(server_.received_, kPayload);
    server_.received_.clear();
    van->Stop();
    between.Join();
    server_van_->Stop();
    const std::string& said = between.sent[0];
    const std::string& answered = between.sent[1];
    // In clear all of it is there: the eavesdropper does hear.
    for (const char* seen : {"the name of a job", "nobody is to see", "BPSH", "BPS1"})
      EXPECT_EQ(said.find(seen) == std::string::npos, tls) << seen;
    EXPECT_EQ(answered.find("BPSC") == std::string::npos, tls);
    if (!tls) continue;
    // Of the handshake only the first messages are outside of records for data (23); what is behind
    // them is one record of 20 for old middleboxes.
    EXPECT_EQ(RecordTypes(said).substr(0, 3), "\x16\x14\x17");
    EXPECT_EQ(RecordTypes(answered).substr(0, 3), "\x16\x14\x17");
    EXPECT_EQ(RecordTypes(said + answered).find_last_not_of('\x17'), RecordTypes(said).size() + 1);
    // The ServerHello's supported_versions: TLS 1.3; and the suite TLS_AES_128_GCM_SHA256.
    const std::string hello = answered.substr(0, 200);
    EXPECT_NE(hello.find(std::string("\x00\x2b\x00\x02\x03\x04", 6)), std::string::npos);
    EXPECT_NE(hello.find("\x13\x01"), std::string::npos);
  }
}

TEST_F(TlsTest, AByteThatIsChangedOnTheWayEndsTheConnection) {
  Listen(true);
  Eavesdropper between(endpoint_);
  const std::unique_ptr<Van> van = NewVanWith(true);
  const Status status = Connect(van.get(), between.endpoint());
  ASSERT_TRUE(status.ok()) << status.ToString();
  between.changed_byte = 50000;
  SendPayload();
  ASSERT_TRUE(WaitUntil([&] { return server_.closed == 1; }));
  // A broken connection, which may be made again; not the end of the job.
  EXPECT_EQ(server_.reason_.code(), StatusCode::kUnavailable);
  EXPECT_NE(server_.reason_.message().find("somebody in between"), std::string::npos)
      << server_.reason_.message();
  EXPECT_EQ(server_.frames, 0);
  van->Stop();
  server_van_->Stop();
}

TEST_F(TlsTest, TheOtherSettingIsRefusedByItsName) {
  for (const bool tls : {false, true}) {
    Listen(tls);
    const std::unique_ptr<Van> stranger = NewVanWith(!tls);
    const int64_t begin = MonotonicNanos();
    const Status status = Connect(stranger.get(), endpoint_);
    EXPECT_LT(MonotonicNanos() - begin, SecondsToNanos(4)) << "it is final";
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    EXPECT_NE(status.message().find("BYTEPS_TLS"), std::string::npos) << status.ToString();
    EXPECT_EQ(acceptor_.hellos, 0);
    const std::unique_ptr<Van> van = NewVanWith(tls);
    EXPECT_TRUE(Connect(van.get(), endpoint_).ok()) << "the listener goes on";
    van->Stop();
    server_van_->Stop();
    acceptor_.hellos = 0;
  }
}

TEST_F(TlsTest, AnotherSecretDisturbsNobody) {
  Listen(true);
  const std::unique_ptr<Van> van = NewVanWith(true);
  ASSERT_TRUE(Connect(van.get(), endpoint_).ok());
  const std::shared_ptr<Connection> connection = connection_;
  const std::unique_ptr<Van> stranger = NewVanWith(true, "another secret, as long");
  const Status status = Connect(stranger.get(), endpoint_);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("another secret"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("BYTEPS_JOB_SECRET"), std::string::npos) << status.ToString();
  EXPECT_EQ(acceptor_.hellos, 1);
  connection_ = connection;
  SendPayload();
  EXPECT_TRUE(WaitUntil([&] { return server_.frames == 1; }));
  EXPECT_EQ(server_.received_, kPayload);
  van->Stop();
  server_van_->Stop();
}

// Somebody who takes the listener's place, with a certificate instead of the secret.
TEST_F(TlsTest, ACertificateProvesNothing) {
  if (std::system("openssl version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no openssl command";
  Socket probe;
  ASSERT_TRUE(ListenOn("127.0.0.1", 0, &probe, &endpoint_).ok());  // a free port
  probe.Reset();
  const std::string folder = ::testing::TempDir();
  const std::string pem = folder + "/tls_test.pem";
  const std::string make = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=server -keyout " +
                           pem + " -out " + pem + ".crt > /dev/null 2>&1";
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string serve = "timeout 20 openssl s_server -www -tls1_3 -naccept 1 -accept " +
                            endpoint_.ToString() + " -key " + pem + " -cert " + pem +
                            ".crt > /dev/null 2>&1";
  std::thread impostor([&] { EXPECT_NE(std::system(serve.c_str()), -1); });
  const std::unique_ptr<Van> van = NewVanWith(true);
  const Status status = Connect(van.get(), endpoint_);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
  EXPECT_NE(status.message().find("another secret, or none"), std::string::npos)
      << status.ToString();
  impostor.join();
  van->Stop();
}

TEST_F(TlsTest, WithoutASecretThereAreNoKeys) {
  const std::unique_ptr<Van> van = NewVanWith(true, "");
  const Status status = van->Listen("127.0.0.1", 0, &acceptor_, &endpoint_);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("BYTEPS_JOB_SECRET"), std::string::npos) << status.ToString();
}

TEST_F(TlsTest, RdmaWouldSendInClear) {
  VanOptions options;
  options.secret = kSecret;
  options.tls = true;
  options.transport = Transport::kRdma;
  const Status status = NewVan(options)->Listen("127.0.0.1", 0, &acceptor_, &endpoint_);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("BYTEPS_TLS=1"), std::string::npos) << status.ToString();
  options.transport = Transport::kRdmaOrTcp;
  const std::unique_ptr<Van> van = NewVan(options);
  EXPECT_TRUE(van->Listen("127.0.0.1", 0, &acceptor_, &endpoint_).ok());
  van->Stop();
}

}  // namespace
}  // namespace byteps
