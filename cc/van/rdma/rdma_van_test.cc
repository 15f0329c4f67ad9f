// What the RDMA Van does when there is no RDMA, less of it, or it fails; on a device that does what
// a test says (loopback_verbs.h). What it does when all is well: van/conformance_test.cc.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <tuple>

#include "cc/base/clock.h"
#include "cc/van/buffer_sink.h"
#include "cc/van/open_acceptor.h"
#include "cc/van/rdma/device.h"
#include "cc/van/rdma/queue_pair.h"
#include "cc/van/rdma/testing/loopback_verbs.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

using namespace std::chrono_literals;

class Recorder : public ConnectionHandler {
 public:
  void OnOpen(const std::shared_ptr<Connection>& connection) override {
    Note([&] { connection_ = connection; });
  }
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>* sink) override {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  Status OnFrame(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink> sink) override {
    std::string payload = sink == nullptr ? "" : static_cast<BufferSink&>(*sink).Take();
    Note([&] { payloads_.push_back(std::move(payload)); });
    return OkStatus();
  }
  void OnClosed(Connection&, const Status& reason) override {
    Note([&] { closed_ = reason; });
  }
  bool WaitForPayloads(size_t count) {
    return Wait([&] { return payloads_.size() >= count; });
  }
  // The reason; OK if it does not close.
  Status WaitForClose() {
    Wait([&] { return !closed_.ok(); });
    std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Connection> connection_;
  std::vector<std::string> payloads_;
  Status closed_;

 private:
  bool Wait(const std::function<bool()>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, 20s, condition);
  }
  template <typename F>
  void Note(F change) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
};

Hello ServerPeer() {
  Hello hello;
  hello.role = Role::kServer;
  hello.rank = 0;
  return hello;
}

class RdmaVanTest : public ::testing::Test {
 protected:
  ~RdmaVanTest() override {
    client_van_.reset();
    server_van_.reset();
    connection_.reset();  // a connection keeps its device
    client_.connection_.reset();
    server_.connection_.reset();
    EXPECT_EQ(verbs_.objects(), 0) << "something was not given back to the device";
    EXPECT_EQ(verbs_.violations(), 0);
  }

  VanOptions Options(Transport transport) const {
    VanOptions options;
    options.transport = transport;
    options.verbs = verbs_.table();
    return options;
  }
  Status Listen(Transport transport) {
    server_van_ = NewVan(Options(transport));
    return server_van_->Listen("127.0.0.1", 0, &acceptor_, &endpoint_);
  }
  Status Connect(Transport transport) {
    VanOptions options = Options(transport);
    options.handshake_timeout = handshake_timeout_;
    client_van_ = NewVan(options);
    Hello hello;
    hello.rank = 0;
    hello.again = again_;
    return client_van_->Connect(endpoint_, hello, ServerPeer(), &client_,
                                ConnectTimeout(timeout_, in_vain_), &connection_);
  }
  void Push(const std::string& payload) {
    const auto bytes = std::make_shared<const std::string>(payload);
    OutgoingFrame frame;
    frame.header.type = FrameType::kPush;
    frame.header.payload_bytes = bytes->size();
    frame.payload = bytes->data();
    frame.keep_alive = bytes;
    connection_->Send(std::move(frame));
  }
  // Both Vans with RDMA if there is some, and a frame that goes over TCP.
  void ExpectToGoOnOverTcp() {
    ASSERT_TRUE(Listen(Transport::kRdmaOrTcp).ok());
    const Status status = Connect(Transport::kRdmaOrTcp);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Push("by another way");
    ASSERT_TRUE(server_.WaitForPayloads(1));
    EXPECT_EQ(server_.payloads_[0], "by another way");
    EXPECT_EQ(client_van_->counters().rdma_bytes_sent, 0u);
    EXPECT_EQ(client_van_->counters().payload_bytes_sent, 14u);
  }

  LoopbackVerbs verbs_;
  double timeout_ = 5;
  double handshake_timeout_ = 10;
  bool again_ = false;
  std::function<Status()> in_vain_;
  Recorder server_;
  Recorder client_;
  OpenAcceptor acceptor_{&server_};
  Endpoint endpoint_;
  std::unique_ptr<Van> server_van_;
  std::unique_ptr<Van> client_van_;
  std::shared_ptr<Connection> connection_;
};

void ExpectText(const Status& status, const std::string& text) {
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(text), std::string::npos) << status.ToString();
}

TEST_F(RdmaVanTest, WithoutKernelSupportItFailsIfDemanded) {
  verbs_.Fail("ibv_get_device_list", ENOSYS);
  const Status status = Listen(Transport::kRdma);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ExpectText(status, "this system has no RDMA support");
  ExpectText(status, "BYTEPS_VAN=auto");
}

TEST_F(RdmaVanTest, WithoutKernelSupportItGoesOnOverTcp) {
  verbs_.Fail("ibv_get_device_list", ENOSYS);
  ExpectToGoOnOverTcp();
}

TEST_F(RdmaVanTest, WithoutADeviceItFailsIfDemanded) {
  verbs_.devices = 0;
  ExpectText(Listen(Transport::kRdma), "no RDMA device");
}

TEST_F(RdmaVanTest, ADeviceThatIsDownIsNamed) {
  verbs_.port_state = verbs::IBV_PORT_DOWN;
  ExpectText(Listen(Transport::kRdma), "RDMA device loopback0 port 1 is down");
}

TEST_F(RdmaVanTest, AnUnknownDeviceIsNamedWithThoseThatThereAre) {
  RdmaOptions options;
  options.devices = "mlx5_7";
  std::vector<std::shared_ptr<RdmaDevice>> devices;
  const Status status = OpenRdmaDevices(*verbs_.table(), options, &devices);
  ExpectText(status, "no RDMA device \"mlx5_7\"; there are loopback0");
}

TEST_F(RdmaVanTest, AWrongPortOfADeviceIsNamed) {
  for (const char* entry :
       {"loopback0:one", "loopback0:", "loopback0:0", "loopback0:1x", "loopback0:256"}) {
    RdmaOptions options;
    options.devices = entry;
    std::vector<std::shared_ptr<RdmaDevice>> devices;
    const Status status = OpenRdmaDevices(*verbs_.table(), options, &devices);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    ExpectText(status, "RDMA device \"" + std::string(entry) + "\": what follows the colon");
  }
}

TEST_F(RdmaVanTest, ALowLimitOfLockedMemoryIsNamedWithWhatRaisesIt) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{65536, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  verbs_.Fail("ibv_reg_mr", ENOMEM);
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  const Status status = Connect(Transport::kRdma);
  setrlimit(RLIMIT_MEMLOCK, &before);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  ExpectText(status, "RLIMIT_MEMLOCK) is 65536 bytes");
  ExpectText(status, "ulimit -l unlimited");
}

// Of which each end has locked memory for what may come and go.
TEST_F(RdmaVanTest, ConnectionsOfManyLockLittleEach) {
  constexpr size_t kPeers = 1000;
  for (const size_t expected : {size_t{8}, kPeers}) {
    const RdmaWindow window = WindowFor(expected);
    EXPECT_LE(LockedBytes(window) * expected, uint64_t{1} << 30);
    EXPECT_GE(window.slots * window.slot_payload_bytes, 128u * 1024);
  }
  EXPECT_EQ(WindowFor(8).slots, RdmaWindow().slots) << "as much as ever for few";
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  ASSERT_TRUE(server_van_->Expect(kPeers).ok());
  const Status status = Connect(Transport::kRdma);  // who has one server only
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_LE(verbs_.registered_bytes(), LockedBytes(WindowFor(1)) + LockedBytes(WindowFor(kPeers)));
  const std::string payload(5000000, 'x');
  for (int i = 0; i < 3; ++i) Push(payload);
  ASSERT_TRUE(server_.WaitForPayloads(3));
  EXPECT_EQ(server_.payloads_[2], payload);
}

// Whatever fails while a connection is made, on either side: both go on over TCP.
class RdmaSetupTest : public RdmaVanTest,
                      public ::testing::WithParamInterface<std::tuple<const char*, int>> {};

TEST_P(RdmaSetupTest, AFailureWhileConnectingLeavesTcp) {
  verbs_.Fail(std::get<0>(GetParam()), EINVAL, std::get<1>(GetParam()));
  ExpectToGoOnOverTcp();
}

// Each connection needs one of the queue pairs of either side; it registers two pieces of memory,
// and goes through three states.
INSTANTIATE_TEST_SUITE_P(
    Calls, RdmaSetupTest,
    ::testing::Values(std::make_tuple("ibv_reg_mr", 0), std::make_tuple("ibv_reg_mr", 1),
                      std::make_tuple("ibv_reg_mr", 2), std::make_tuple("ibv_create_cq", 0),
                      std::make_tuple("ibv_create_cq", 1), std::make_tuple("ibv_create_qp", 0),
                      std::make_tuple("ibv_create_qp", 1),
                      std::make_tuple("ibv_create_comp_channel", 1),
                      std::make_tuple("ibv_modify_qp", 0), std::make_tuple("ibv_modify_qp", 1),
                      std::make_tuple("ibv_modify_qp", 2), std::make_tuple("ibv_modify_qp", 3),
                      std::make_tuple("ibv_modify_qp", 4), std::make_tuple("ibv_modify_qp", 5),
                      std::make_tuple("post_recv", 0)));

TEST_F(RdmaVanTest, AFailureOnTheOtherSideIsToldIfRdmaIsDemanded) {
  verbs_.Fail("ibv_create_qp", ENOSPC, 1);
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  const Status status = Connect(Transport::kRdma);
  ExpectText(status, "ibv_create_qp");
  ExpectText(status, "server 0");
}

TEST_F(RdmaVanTest, APeerWithoutRdmaIsRefusedIfRdmaIsDemanded) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  const Status status = Connect(Transport::kTcp);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ExpectText(status, "worker 0 has no RDMA");
}

TEST_F(RdmaVanTest, AServerWithoutRdmaIsAnErrorIfRdmaIsDemanded) {
  ASSERT_TRUE(Listen(Transport::kTcp).ok());
  ExpectText(Connect(Transport::kRdma), "the other side has no RDMA");
}

TEST_F(RdmaVanTest, APeerWithoutRdmaIsServedOverTcp) {
  ASSERT_TRUE(Listen(Transport::kRdmaOrTcp).ok());
  ASSERT_TRUE(Connect(Transport::kTcp).ok());
  Push("over TCP");
  ASSERT_TRUE(server_.WaitForPayloads(1));
  EXPECT_EQ(server_van_->counters().rdma_bytes_received, 0u);
}

TEST_F(RdmaVanTest, ADeviceWithShortQueuesAndSmallMessagesIsUsedAsItIs) {
  verbs_.max_qp_wr = 10;
  verbs_.max_cqe = 20;
  verbs_.max_msg_sz = 8192;
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  ASSERT_TRUE(Connect(Transport::kRdma).ok());
  const std::string large(1000001, 'x');
  for (int i = 0; i < 5; ++i) {
    Push(large);
    Push("");
  }
  ASSERT_TRUE(server_.WaitForPayloads(10));
  EXPECT_EQ(server_.payloads_[8], large);
  EXPECT_EQ(server_van_->counters().rdma_bytes_received, 5000005u);
  EXPECT_LE(verbs_.largest_message(), 8192);
}

// For as long as their owner says that it lives (protocol rule 19).
TEST_F(RdmaVanTest, PayloadsInRegisteredMemoryAreNotCopied) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  ASSERT_TRUE(Connect(Transport::kRdma).ok());
  const auto registry = client_van_->memory_registry();
  std::string memory(3000000, 'm');
  registry->Add(memory.data(), memory.size());
  OutgoingFrame frame;
  frame.header.type = FrameType::kPush;
  frame.header.payload_bytes = 2000000;
  frame.payload = memory.data() + 500000;
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owner;
  frame.keep_alive = std::move(owner);
  connection_->Send(std::move(frame));
  ASSERT_TRUE(server_.WaitForPayloads(1));
  EXPECT_EQ(server_.payloads_[0], std::string(2000000, 'm'));
  EXPECT_EQ(client_van_->counters().bytes_copied, 0u);
  EXPECT_EQ(server_van_->counters().bytes_copied, 2000000u);
  for (int i = 0; i < 200 && !watch.expired(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(watch.expired());
  registry->Remove(memory.data());
  // The same address once more: it proves nothing.
  memory.assign(memory.size(), 'n');
  Push(memory);
  ASSERT_TRUE(server_.WaitForPayloads(2));
  EXPECT_EQ(server_.payloads_[1], memory);
  EXPECT_EQ(client_van_->counters().bytes_copied, 3000000u);
}

TEST_F(RdmaVanTest, AgreeingMayTakeLongerThanConnecting) {
  verbs_.milliseconds_for_a_pair = 300;
  timeout_ = 0.2;
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  const Status status = Connect(Transport::kRdma);
  ASSERT_TRUE(status.ok()) << status.ToString();
  Push("slowly");
  EXPECT_TRUE(server_.WaitForPayloads(1));
}

TEST_F(RdmaVanTest, AHandlerNeverHearsOfAConnectionThatWasGivenUp) {
  verbs_.milliseconds_for_a_pair = 300;
  handshake_timeout_ = 0.1;
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  EXPECT_EQ(Connect(Transport::kRdma).code(), StatusCode::kDeadlineExceeded);
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(client_.connection_, nullptr);
  EXPECT_TRUE(client_.closed_.ok()) << client_.closed_.ToString();
}

TEST_F(RdmaVanTest, APathThatBringsNothingIsNoConnection) {
  handshake_timeout_ = 0.3;
  verbs_.Swallow();
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  const Status status = Connect(Transport::kRdma);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  ExpectText(status, "has not been reached by RDMA");
  EXPECT_EQ(client_.connection_, nullptr);
  EXPECT_EQ(server_.connection_, nullptr);
}

TEST_F(RdmaVanTest, APathThatFailsIsToldInTheDevicesWords) {
  verbs_.Disconnect(verbs::IBV_WC_RETRY_EXC_ERR);
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  const Status status = Connect(Transport::kRdma);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  ExpectText(status, "transport retry counter exceeded");
}

TEST_F(RdmaVanTest, WithoutAPathItGoesOnOverTcp) {
  handshake_timeout_ = 0.3;
  verbs_.Swallow();
  ExpectToGoOnOverTcp();
}

TEST_F(RdmaVanTest, WithAPathThatFailsItGoesOnOverTcp) {
  verbs_.Disconnect(verbs::IBV_WC_RETRY_EXC_ERR);
  ExpectToGoOnOverTcp();
}

double SecondsOf(const std::function<void()>& work) {
  const int64_t start_ns = MonotonicNanos();
  work();
  return (MonotonicNanos() - start_ns) * 1e-9;
}

TEST_F(RdmaVanTest, ConnectingAgainTakesNoLongerThanALostConnectionMay) {
  again_ = true;
  handshake_timeout_ = 60;
  verbs_.Swallow();
  ASSERT_TRUE(Listen(Transport::kRdmaOrTcp).ok());
  Status status;
  EXPECT_LT(SecondsOf([&] { status = Connect(Transport::kRdmaOrTcp); }), kReconnectSeconds + 8);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);  // and not over TCP
}

TEST_F(RdmaVanTest, ConnectingEndsWhenItIsInVain) {
  handshake_timeout_ = 60;
  in_vain_ = [] { return Cancelled("it is over"); };
  verbs_.Swallow();
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  Status status;
  EXPECT_LT(SecondsOf([&] { status = Connect(Transport::kRdma); }), 10);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

TEST_F(RdmaVanTest, ConnectingEndsWhenTheVanStops) {
  handshake_timeout_ = 60;
  std::promise<void> waits;
  in_vain_ = [&, reported = false]() mutable {
    if (!reported) waits.set_value();
    reported = true;
    return OkStatus();
  };
  verbs_.Swallow();
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  Status status;
  std::thread connecting([&] { status = Connect(Transport::kRdma); });
  ASSERT_EQ(waits.get_future().wait_for(20s), std::future_status::ready);
  client_van_->Stop();
  EXPECT_LT(SecondsOf([&] { connecting.join(); }), 10);
  EXPECT_FALSE(status.ok());
}

TEST_F(RdmaVanTest, SlotsThatAreWrittenTogetherWakeThePeerOnce) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  ASSERT_TRUE(Connect(Transport::kRdma).ok());
  const int before = verbs_.reported();
  const std::string part(4 << 20, 'p');
  for (int i = 0; i < 4; ++i) Push(part);
  ASSERT_TRUE(server_.WaitForPayloads(4));
  EXPECT_EQ(server_.payloads_[3], part);
  const int slots = 4 * static_cast<int>(part.size() / RdmaWindow().slot_payload_bytes);
  // With what gives the slots back, of which there is a message for every eight.
  EXPECT_LE(verbs_.reported() - before, slots / 2);
}

TEST_F(RdmaVanTest, ADeviceWithTooShortQueuesIsNamed) {
  verbs_.max_qp_wr = 5;
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  ExpectText(Connect(Transport::kRdma), "loopback0 port 1 has queues of 5 requests");
}

TEST_F(RdmaVanTest, ALostConnectionIsReportedWithTheDevicesWords) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  ASSERT_TRUE(Connect(Transport::kRdma).ok());
  verbs_.Disconnect(verbs::IBV_WC_RETRY_EXC_ERR);
  Push("lost");
  const Status reason = client_.WaitForClose();
  EXPECT_EQ(reason.code(), StatusCode::kUnavailable);
  ExpectText(reason, "transport retry counter exceeded (status 12");
  EXPECT_EQ(server_.WaitForClose().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(server_.payloads_.empty());
}

TEST_F(RdmaVanTest, ARefusedRequestClosesTheConnection) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  ASSERT_TRUE(Connect(Transport::kRdma).ok());
  verbs_.Fail("post_send", ENOMEM);
  Push("refused");
  ExpectText(client_.WaitForClose(), "ibv_post_send");
}

TEST_F(RdmaVanTest, AThreadThatMaySpinStillSleeps) {
  server_van_ = NewVan([this] {
    VanOptions options = Options(Transport::kRdma);
    options.rdma.spin = 0.001;
    return options;
  }());
  ASSERT_TRUE(server_van_->Listen("127.0.0.1", 0, &acceptor_, &endpoint_).ok());
  ASSERT_TRUE(Connect(Transport::kRdma).ok());
  for (int i = 0; i < 20; ++i) Push(std::string(100, 'a'));
  ASSERT_TRUE(server_.WaitForPayloads(20));
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(1s);
  getrusage(RUSAGE_SELF, &after);
  const auto seconds = [](const rusage& usage) {
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6;
  };
  EXPECT_LT(seconds(after) - seconds(before), 0.2);
}

// A peer that speaks the protocol by hand, up to the point where it does not.
class HandMadePeer {
 public:
  HandMadePeer(LoopbackVerbs* verbs, const Endpoint& endpoint) {
    std::vector<std::shared_ptr<RdmaDevice>> devices;
    EXPECT_TRUE(OpenRdmaDevices(*verbs->table(), RdmaOptions(), &devices).ok());
    EXPECT_TRUE(QueuePair::New(devices[0], RdmaWindow(), RdmaOptions(), &pair_).ok());
    VanOptions options;
    van_ = NewTcpVan(options);
    Hello hello;
    hello.features = kRdmaFeature;
    hello.rank = 0;
    EXPECT_TRUE(van_->Connect(endpoint, hello, ServerPeer(), &answers_, 5, &tcp_).ok());
    EXPECT_EQ(tcp_->peer().features, kRdmaFeature);
    SendSetup(EncodeRdmaOffer(pair_->offer()));
  }
  ~HandMadePeer() {
    van_->Stop();
    pair_.reset();
  }
  void SendSetup(const std::string& bytes) {
    const auto owned = std::make_shared<const std::string>(bytes);
    OutgoingFrame frame;
    frame.header.type = FrameType::kControl;
    frame.header.payload_bytes = owned->size();
    frame.payload = owned->data();
    frame.keep_alive = owned;
    tcp_->Send(std::move(frame));
  }
  void BecomeReady() {
    ASSERT_TRUE(answers_.WaitForPayloads(1));
    RdmaOffer answer;
    ASSERT_TRUE(DecodeRdmaOffer(answers_.payloads_[0], &answer).ok());
    ASSERT_TRUE(pair_->Connect(answer).ok());
    SendSetup(EncodeRdmaOffer(pair_->offer()));
  }
  void Greet() {
    FrameHeader header;
    header.type = FrameType::kRoomReturned;
    SendHeader(header);
  }
  void SendHeader(const FrameHeader& header, uint32_t bytes = kFrameHeaderBytes) {
    EncodeFrameHeader(header, pair_->buffer_to_send(0));
    ASSERT_TRUE(pair_->Send(0, bytes).ok());
  }
  void WriteHeader(uint32_t slot, const FrameHeader& header, uint32_t bytes) {
    EncodeFrameHeader(header, pair_->slot_to_write(slot));
    pair_->Write(slot, {0, bytes});
    ASSERT_TRUE(pair_->Announce(slot).ok());
  }
  QueuePair& pair() { return *pair_; }

 private:
  std::unique_ptr<QueuePair> pair_;
  Recorder answers_;
  std::unique_ptr<Van> van_;
  std::shared_ptr<Connection> tcp_;
};

FrameHeader PushHeader(uint64_t payload_bytes) {
  FrameHeader header;
  header.type = FrameType::kPush;
  header.payload_bytes = payload_bytes;
  return header;
}

FrameHeader MoreHeader(uint64_t payload_bytes) {
  FrameHeader header = PushHeader(payload_bytes);
  header.type = FrameType::kMore;
  return header;
}

constexpr uint32_t kFullSlot = kFrameHeaderBytes + RdmaWindow().slot_payload_bytes;

struct Fault {
  const char* name;
  void (*make)(HandMadePeer& peer);
  const char* expected;
};

class RdmaMalformedTest : public RdmaVanTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(RdmaMalformedTest, EndsTheConnectionWithAReason) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  {
    HandMadePeer peer(&verbs_, endpoint_);
    peer.BecomeReady();
    peer.Greet();
    peer.WriteHeader(0, PushHeader(4), kFrameHeaderBytes + 4);  // a good one first
    ASSERT_TRUE(server_.WaitForPayloads(1));
    GetParam().make(peer);
    const Status reason = server_.WaitForClose();
    EXPECT_EQ(reason.code(), StatusCode::kInvalidArgument);
    ExpectText(reason, GetParam().expected);
    EXPECT_EQ(server_.payloads_.size(), 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, RdmaMalformedTest,
    ::testing::Values(
        Fault{"ShortSend", [](HandMadePeer& peer) { peer.SendHeader(PushHeader(0), 5); },
              "less than a frame's header"},
        Fault{"ShortSlot", [](HandMadePeer& peer) { peer.WriteHeader(1, PushHeader(0), 5); },
              "a slot of another length"},
        Fault{"SlotOutOfTurn", [](HandMadePeer& peer) { peer.WriteHeader(3, PushHeader(4), 132); },
              "no tf_byteps frame"},
        Fault{"NoSuchSlot",
              [](HandMadePeer& peer) {
                EncodeFrameHeader(PushHeader(4), peer.pair().slot_to_write(1));
                peer.pair().Write(1, {0, 132});
                ASSERT_TRUE(peer.pair().Announce(16).ok());
              },
              "a slot that there is not"},
        Fault{"SlotGivenBackThatWasNotTaken",
              [](HandMadePeer& peer) {
                EncodeFrameHeader(PushHeader(1000000), peer.pair().slot_to_write(1));
                peer.pair().Write(1, {0, kFullSlot});
                ASSERT_TRUE(peer.pair().Announce(3 << 16 | 1).ok());
              },
              "gives back more room than was taken"},
        Fault{"TooMuchPayload", [](HandMadePeer& peer) { peer.WriteHeader(1, PushHeader(4), 200); },
              "a slot of another length"},
        Fault{"NoPayload", [](HandMadePeer& peer) { peer.WriteHeader(1, PushHeader(4), 128); },
              "a slot of another length"},
        Fault{"LengthOfSend", [](HandMadePeer& peer) { peer.SendHeader(PushHeader(77), 128); },
              "a frame of another length"},
        Fault{"FrameInFrame",
              [](HandMadePeer& peer) {
                peer.WriteHeader(1, PushHeader(1000000), kFullSlot);
                peer.SendHeader(PushHeader(0));
              },
              "a frame inside of another one"},
        Fault{"PieceOfNoFrame", [](HandMadePeer& peer) { peer.WriteHeader(1, MoreHeader(4), 132); },
              "a piece that belongs to no frame"},
        Fault{"PieceOfAnotherLength",
              [](HandMadePeer& peer) {
                peer.WriteHeader(1, PushHeader(kPieceBytes + 4), kFullSlot);
                peer.pair().Write(2, {kFrameHeaderBytes, kFullSlot});
                ASSERT_TRUE(peer.pair().Announce(2).ok());
                peer.WriteHeader(3, MoreHeader(5), 133);
              },
              "a piece that belongs to no frame"},
        Fault{"FrameOfTcp",
              [](HandMadePeer& peer) {
                FrameHeader header;
                header.type = FrameType::kMemoryRead;
                peer.SendHeader(header);
              },
              "a frame that belongs to TCP"},
        Fault{"PayloadElsewhere",
              [](HandMadePeer& peer) {
                FrameHeader header = PushHeader(4);
                header.place = PayloadLocation::kSenderMemory;
                peer.WriteHeader(1, header, 132);
              },
              "a frame that belongs to TCP"},
        Fault{"RoomThatWasNotTaken",
              [](HandMadePeer& peer) {
                FrameHeader header;
                header.type = FrameType::kRoomReturned;
                header.element_count = 1;
                peer.SendHeader(header);
              },
              "gives back more room than was taken"},
        Fault{"Garbage",
              [](HandMadePeer& peer) {
                std::memset(peer.pair().buffer_to_send(1), 0x5a, kFrameHeaderBytes);
                ASSERT_TRUE(peer.pair().Send(1, kFrameHeaderBytes).ok());
              },
              "no tf_byteps frame"},
        Fault{"SetupOnceMore", [](HandMadePeer& peer) { peer.SendSetup("again"); },
              "sent a frame over TCP that belongs to RDMA"}),
    [](const auto& info) { return info.param.name; });

TEST_F(RdmaVanTest, AFrameBeforeTheGreetingEndsTheConnection) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  {
    HandMadePeer peer(&verbs_, endpoint_);
    peer.BecomeReady();
    peer.WriteHeader(0, PushHeader(4), kFrameHeaderBytes + 4);
    std::this_thread::sleep_for(200ms);
  }
  // The handler was never told of it.
  EXPECT_EQ(server_.connection_, nullptr);
  EXPECT_TRUE(server_.closed_.ok());
  EXPECT_TRUE(server_.payloads_.empty());
}

TEST_F(RdmaVanTest, AMalformedOfferEndsTheConnection) {
  ASSERT_TRUE(Listen(Transport::kRdma).ok());
  HandMadePeer peer(&verbs_, endpoint_);
  peer.SendSetup("no offer");
  peer.SendSetup("");
  // Nothing was opened, and the next one finds everything in order.
  ASSERT_TRUE(Connect(Transport::kRdma).ok());
  Push("fine");
  ASSERT_TRUE(server_.WaitForPayloads(1));
}

TEST(RdmaOfferTest, RefusesEveryShorterForm) {
  RdmaOffer offer;
  offer.mtu = verbs::IBV_MTU_1024;
  const std::string bytes = EncodeRdmaOffer(offer);
  RdmaOffer decoded;
  EXPECT_TRUE(DecodeRdmaOffer(bytes, &decoded).ok());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(DecodeRdmaOffer(bytes.substr(0, size), &decoded).ok()) << size;
  EXPECT_FALSE(DecodeRdmaOffer(bytes + "x", &decoded).ok());
  offer.window.slots = 1 << 20;
  EXPECT_FALSE(DecodeRdmaOffer(EncodeRdmaOffer(offer), &decoded).ok());
}

}  // namespace
}  // namespace byteps
