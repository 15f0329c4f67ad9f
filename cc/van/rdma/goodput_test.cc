// How fast the RDMA Van is beside a bare loop of RDMA WRITEs with the same messages on the same
// device, and how much user time it takes beside the TCP Van. On a software device the speeds
// themselves say nothing, nor does TCP's, which is printed beside them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "cc/base/clock.h"
#include "cc/van/open_acceptor.h"
#include "cc/van/rdma/device.h"
#include "cc/van/rdma/offer.h"
#include "cc/van/rdma/testing/loopback_verbs.h"
#include "cc/van/rdma/verbs.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

constexpr uint64_t kMessageBytes = RdmaWindow().slot_payload_bytes;
constexpr uint32_t kDepth = RdmaWindow().slots;
constexpr int kMessages = 480;  // each way
constexpr int kTurns = 3;
constexpr int kTurnsOfUserTime = 7;
constexpr int kTurnsOfOwnTime = 20;
constexpr double kLeastShare = 0.8;

// Of some runs: the best of their speeds, and the user time of all.
struct Cost {
  double bytes_per_second = 0;  // each way
  double user_seconds = 0;
  double gigabytes = 0;  // both ways

  void Add(const Cost& run) {
    bytes_per_second = std::max(bytes_per_second, run.bytes_per_second);
    user_seconds += run.user_seconds;
    gigabytes += run.gigabytes;
  }
  double user_seconds_per_gigabyte() const { return user_seconds / gigabytes; }
};

double UserSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + usage.ru_utime.tv_usec * 1e-6;
}

class Stopwatch {
 public:
  Cost Stop(uint64_t bytes_each_way) const {
    const double seconds = (MonotonicNanos() - start_ns_) * 1e-9;
    return {bytes_each_way / seconds, UserSeconds() - user_, 2 * bytes_each_way / 1e9};
  }

 private:
  const int64_t start_ns_ = MonotonicNanos();
  const double user_ = UserSeconds();
};

// While it lives this thread, and those that it starts, run on a processor of which the kernel
// (nohz_full) notes each time when it goes over to a program and back. Elsewhere it looks at every
// tick of a clock what the processor does just then, and what the kernel does without letting the
// clock interrupt it counts as the program's: much of it, where the kernel is the network card.
class ExactProcessor {
 public:
  ExactProcessor() {
    std::ifstream file("/sys/devices/system/cpu/nohz_full");
    int number = -1;
    if (!(file >> number) || sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    found_ = sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  ~ExactProcessor() {
    if (found_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  bool found() const { return found_; }

 private:
  cpu_set_t before_;
  bool found_ = false;
};

// One end of the bare loop.
class BareEnd {
 public:
  BareEnd(const RdmaDevice& device, uint8_t fill) : device_(device), verbs_(device.verbs()) {
    memory_.assign(2 * kDepth * kMessageBytes, fill);
    registration_ =
        verbs_.ibv_reg_mr(device.protection_domain(), memory_.data(), memory_.size(),
                          verbs::IBV_ACCESS_LOCAL_WRITE | verbs::IBV_ACCESS_REMOTE_WRITE);
    channel_ = verbs_.ibv_create_comp_channel(device.context());
    completions_ = verbs_.ibv_create_cq(device.context(), 2 * kDepth, nullptr, channel_, 0);
    verbs::ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_;
    attributes.cap = {kDepth, 1, 1, 1, 0};
    attributes.qp_type = verbs::IBV_QPT_RC;
    pair_ = verbs_.ibv_create_qp(device.protection_domain(), &attributes);
  }
  ~BareEnd() {
    verbs_.ibv_destroy_qp(pair_);
    verbs_.ibv_destroy_cq(completions_);
    verbs_.ibv_destroy_comp_channel(channel_);
    verbs_.ibv_dereg_mr(registration_);
  }

  bool Connect(const BareEnd& peer) {
    peer_ = &peer;
    verbs::ibv_qp_attr attributes{};
    attributes.qp_state = verbs::IBV_QPS_INIT;
    attributes.port_num = device_.port_number();
    attributes.qp_access_flags = verbs::IBV_ACCESS_REMOTE_WRITE;
    const int init = verbs_.ibv_modify_qp(pair_, &attributes,
                                          verbs::IBV_QP_STATE | verbs::IBV_QP_PKEY_INDEX |
                                              verbs::IBV_QP_PORT | verbs::IBV_QP_ACCESS_FLAGS);
    attributes = {};
    attributes.qp_state = verbs::IBV_QPS_RTR;
    attributes.path_mtu = device_.port().active_mtu;
    attributes.dest_qp_num = peer.pair_->qp_num;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = device_.port_number();
    attributes.ah_attr.dlid = device_.port().lid;
    attributes.ah_attr.grh.dgid = device_.gid();
    attributes.ah_attr.grh.sgid_index = device_.gid_index();
    attributes.ah_attr.grh.hop_limit = 64;
    const int receive = verbs_.ibv_modify_qp(
        pair_, &attributes,
        verbs::IBV_QP_STATE | verbs::IBV_QP_AV | verbs::IBV_QP_PATH_MTU | verbs::IBV_QP_DEST_QPN |
            verbs::IBV_QP_RQ_PSN | verbs::IBV_QP_MAX_DEST_RD_ATOMIC | verbs::IBV_QP_MIN_RNR_TIMER);
    attributes = {};
    attributes.qp_state = verbs::IBV_QPS_RTS;
    attributes.timeout = 16;
    attributes.retry_cnt = attributes.rnr_retry = 6;
    attributes.max_rd_atomic = 1;
    const int send = verbs_.ibv_modify_qp(
        pair_, &attributes,
        verbs::IBV_QP_STATE | verbs::IBV_QP_TIMEOUT | verbs::IBV_QP_RETRY_CNT |
            verbs::IBV_QP_RNR_RETRY | verbs::IBV_QP_SQ_PSN | verbs::IBV_QP_MAX_QP_RD_ATOMIC);
    return init == 0 && receive == 0 && send == 0;
  }

  // Writes `kMessages`, kDepth of them at a time, and sleeps until one has been completed.
  bool Run() {
    for (int posted = 0, done = 0; done < kMessages;) {
      for (; posted < kMessages && posted - done < static_cast<int>(kDepth); ++posted)
        if (!Post(posted % kDepth)) return false;
      verbs_.req_notify_cq(completions_, 0);
      verbs::ibv_wc found[kDepth];
      int count = verbs_.poll_cq(completions_, kDepth, found);
      if (count == 0) {
        verbs::ibv_cq* cq = nullptr;
        void* context = nullptr;
        if (verbs_.ibv_get_cq_event(channel_, &cq, &context) != 0) return false;
        verbs_.ibv_ack_cq_events(completions_, 1);
        count = verbs_.poll_cq(completions_, kDepth, found);
      }
      for (int i = 0; i < count; ++i)
        if (found[i].status != verbs::IBV_WC_SUCCESS) return false;
      done += count;
    }
    return true;
  }

 private:
  bool Post(uint32_t slot) {
    verbs::ibv_sge piece{reinterpret_cast<uint64_t>(memory_.data()) + slot * kMessageBytes,
                         static_cast<uint32_t>(kMessageBytes), registration_->lkey};
    verbs::ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = verbs::IBV_WR_RDMA_WRITE;
    request.send_flags = verbs::IBV_SEND_SIGNALED;
    request.remote_addr =
        reinterpret_cast<uint64_t>(peer_->memory_.data()) + (kDepth + slot) * kMessageBytes;
    request.rkey = peer_->registration_->rkey;
    verbs::ibv_send_wr* bad = nullptr;
    return verbs_.post_send(pair_, &request, &bad) == 0;
  }

  const RdmaDevice& device_;
  const verbs::Verbs& verbs_;
  std::vector<uint8_t> memory_;
  verbs::ibv_mr* registration_;
  verbs::ibv_comp_channel* channel_;
  verbs::ibv_cq* completions_;
  verbs::ibv_qp* pair_;
  const BareEnd* peer_ = nullptr;
};

Cost MeasureBareLoop(const RdmaDevice& device) {
  BareEnd here(device, 1);
  BareEnd there(device, 2);
  EXPECT_TRUE(here.Connect(there) && there.Connect(here));
  const Stopwatch watch;
  bool there_ok = false;
  std::thread other([&] { there_ok = there.Run(); });
  const bool here_ok = here.Run();
  other.join();
  EXPECT_TRUE(here_ok && there_ok);
  return watch.Stop(kMessages * kMessageBytes);
}

// Takes payloads where they are, as a sum does; so that what is measured is the Van.
class TakingSink : public PayloadSink {
 public:
  Span Prepare(uint64_t) override { return {place_.data(), place_.size()}; }
  void Commit(size_t) override {}
  size_t Take(const void*, size_t, uint64_t) override { return 0; }

 private:
  std::vector<uint8_t> place_ = std::vector<uint8_t>(kMessageBytes);
};

class Counter : public ConnectionHandler {
 public:
  void OnOpen(const std::shared_ptr<Connection>& connection) override { connection_ = connection; }
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>* sink) override {
    *sink = sink_;
    return OkStatus();
  }
  Status OnFrame(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>) override {
    if (++frames_ == kMessages) all_.set_value();
    return OkStatus();
  }
  bool WaitForAll() {
    return all_.get_future().wait_for(std::chrono::seconds(100)) == std::future_status::ready;
  }
  void OnClosed(Connection&, const Status&) override {}  // WaitForAll says what got through
  std::shared_ptr<Connection> connection_;

 private:
  int frames_ = 0;
  std::promise<void> all_;
  const std::shared_ptr<TakingSink> sink_ = std::make_shared<TakingSink>();
};

Cost MeasureVan(Transport transport, const verbs::Verbs* verbs = nullptr) {
  VanOptions options;
  options.io_threads = 1;
  options.transport = transport;
  options.verbs = verbs;
  const auto payload = std::make_shared<std::vector<uint8_t>>(kMessageBytes, 7);
  Counter server;
  Counter client;
  OpenAcceptor acceptor(&server);
  const std::unique_ptr<Van> vans[] = {NewVan(options), NewVan(options)};
  for (const auto& van : vans) {
    if (const auto registry = van->memory_registry())
      registry->Add(payload->data(), payload->size());
  }
  Endpoint endpoint;
  EXPECT_TRUE(vans[0]->Listen("127.0.0.1", 0, &acceptor, &endpoint).ok());
  std::shared_ptr<Connection> connection;
  Hello hello;
  hello.rank = 0;
  const Status status = vans[1]->Connect(endpoint, hello, hello, &client, 20, &connection);
  EXPECT_TRUE(status.ok()) << status.ToString();
  while (server.connection_ == nullptr) std::this_thread::yield();
  const Stopwatch watch;
  for (int i = 0; i < kMessages; ++i) {
    for (Connection* to : {connection.get(), server.connection_.get()}) {
      OutgoingFrame frame;
      frame.header.type = FrameType::kPush;
      frame.header.payload_bytes = payload->size();
      frame.payload = payload->data();
      frame.keep_alive = payload;
      to->Send(std::move(frame));
    }
  }
  EXPECT_TRUE(server.WaitForAll() && client.WaitForAll());
  const Cost cost = watch.Stop(kMessages * kMessageBytes);
  if (transport == Transport::kRdma) {
    EXPECT_EQ(vans[0]->counters().rdma_bytes_received, kMessages * kMessageBytes);
    EXPECT_EQ(vans[0]->counters().bytes_copied, 0u);
    EXPECT_EQ(vans[1]->counters().bytes_copied, 0u);
  }
  for (const auto& van : vans) {
    van->Stop();
    if (const auto registry = van->memory_registry()) registry->Remove(payload->data());
  }
  return cost;
}

bool HasDevice() {
  std::error_code error;
  return !std::filesystem::is_empty("/sys/class/infiniband", error) && !error;
}

void PrintSpeed(const char* what, const Cost& cost) {
  std::printf("%-26s %8.1f MB/s each way\n", what, cost.bytes_per_second / 1e6);
}

void PrintUserTime(const char* what, const Cost& cost) {
  std::printf("%-26s %8.3f s of user time per GB\n", what, cost.user_seconds_per_gigabyte());
}

TEST(RdmaGoodputTest, IsThatOfABareLoop) {
  if (!HasDevice()) GTEST_SKIP() << "no RDMA device";
  const verbs::Verbs* verbs = nullptr;
  ASSERT_TRUE(verbs::SystemVerbs(&verbs).ok());
  std::vector<std::shared_ptr<RdmaDevice>> devices;
  ASSERT_TRUE(OpenRdmaDevices(*verbs, RdmaOptions(), &devices).ok());
  // In turns, because a machine of many has moods.
  Cost bare, van, tcp;
  for (int turn = 0; turn < kTurns; ++turn) {
    bare.Add(MeasureBareLoop(*devices[0]));
    van.Add(MeasureVan(Transport::kRdma));
    tcp.Add(MeasureVan(Transport::kTcp));
  }
  PrintSpeed("bare RDMA WRITEs", bare);
  PrintSpeed("RDMA Van", van);
  PrintSpeed("TCP Van", tcp);
  EXPECT_GE(van.bytes_per_second, kLeastShare * bare.bytes_per_second);
}

TEST(RdmaGoodputTest, TakesNoMoreUserTimeThanTcp) {
  if (!HasDevice()) GTEST_SKIP() << "no RDMA device";
  const ExactProcessor processor;
  if (!processor.found()) GTEST_SKIP() << "no processor with exact clocks (nohz_full)";
  // The first turn does not count: an emulated processor translates code when it meets it.
  MeasureVan(Transport::kRdma);
  MeasureVan(Transport::kTcp);
  std::vector<double> ratios;
  Cost van, tcp;
  for (int turn = 0; turn < kTurnsOfUserTime; ++turn) {
    const Cost rdma_turn = MeasureVan(Transport::kRdma), tcp_turn = MeasureVan(Transport::kTcp);
    ratios.push_back(rdma_turn.user_seconds / tcp_turn.user_seconds);
    van.Add(rdma_turn);
    tcp.Add(tcp_turn);
  }
  std::sort(ratios.begin(), ratios.end());
  const double median = ratios[ratios.size() / 2];
  PrintUserTime("RDMA Van", van);
  PrintUserTime("TCP Van", tcp);
  std::printf("RDMA Van                   %8.2f times TCP's, the median of %d turns\n", median,
              kTurnsOfUserTime);
  EXPECT_LE(median, 1);
}

// With a device that moves nothing: what is left is the Van's own work. Takes some seconds, and
// wants a processor for itself.
TEST(RdmaGoodputTest, DISABLED_UserTimeIsNoMoreThanTcps) {
  LoopbackVerbs verbs;
  verbs.moves_payloads = false;
  Cost van, tcp;
  for (int turn = 0; turn < kTurnsOfOwnTime; ++turn) {
    van.Add(MeasureVan(Transport::kRdma, verbs.table()));
    tcp.Add(MeasureVan(Transport::kTcp));
  }
  PrintUserTime("RDMA Van, instant device", van);
  PrintUserTime("TCP Van", tcp);
  EXPECT_LE(van.user_seconds, tcp.user_seconds);
}

}  // namespace
}  // namespace byteps
