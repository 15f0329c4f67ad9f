// The fixture of the tests that every Van must pass (cc/van/conformance*_test.cc), and the Vans
// that they run with. A new transport adds itself to the list at the end.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cc/van/rdma/testing/loopback_verbs.h"
#include "cc/van/van.h"

namespace byteps {

constexpr auto kTestTimeout = std::chrono::seconds(20);

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
    return changed_.wait_for(lock, kTestTimeout, condition);
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

inline Hello WorkerHello(int32_t rank = 0) {
  Hello hello;
  hello.job_id = "job";
  hello.epoch = 1;
  hello.role = Role::kWorker;
  hello.rank = rank;
  return hello;
}

inline Hello ServerPeer() {
  Hello hello;
  hello.role = Role::kServer;
  hello.rank = 0;
  return hello;
}

inline std::vector<uint8_t> Pattern(size_t bytes, uint8_t seed) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(seed + i * 31 + (i >> 8));
  return data;
}

inline OutgoingFrame PushFrame(uint32_t part, std::vector<uint8_t> payload, int32_t priority = 0) {
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

inline std::unique_ptr<Van> NewRdmaVanForSure(const VanOptions& given) {
  VanOptions options = given;
  options.transport = Transport::kRdma;
  return NewRdmaVan(options);
}

inline std::unique_ptr<Van> NewLoopbackRdmaVan(const VanOptions& given) {
  static LoopbackVerbs* const verbs = new LoopbackVerbs;
  VanOptions options = given;
  options.verbs = verbs->table();
  return NewRdmaVanForSure(options);
}

// As between two processes.
inline std::unique_ptr<Van> NewReadingTcpVan(const VanOptions& given) {
  VanOptions options = given;
  options.lend_to_own_process = false;
  return NewTcpVan(options);
}

// Changes its keys all the time.
inline std::unique_ptr<Van> NewTlsVan(const VanOptions& given) {
  VanOptions options = given;
  options.tls = true;
  options.tls_records_per_key = 3;
  if (options.secret.empty()) options.secret = "secret";
  return NewTcpVan(options);
}

// Without opening one: the test is about to fork.
inline bool HasRdmaDevice() {
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
  // While somebody holds the gate, the server's I/O thread waits there with the frame that has
  // come. It may still do so when a test is over.
  std::shared_ptr<std::mutex> PutGateBeforeServer() {
    auto gate = std::make_shared<std::mutex>();
    server_.answer_ = [gate](Connection&, const FrameHeader&) {
      std::lock_guard<std::mutex> lock(*gate);
    };
    return gate;
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

inline const auto kVans =
    ::testing::Values(VanKind{"Tcp", NewTcpVan}, VanKind{"TcpSameHost", NewReadingTcpVan, true},
                      VanKind{"TcpWithSecret", NewTcpVan, false, "secret"},
                      VanKind{"TcpSameHostWithSecret", NewReadingTcpVan, true, "secret"},
                      VanKind{"TcpSameProcessWithSecret", NewTcpVan, true, "secret"},
                      VanKind{"TcpWithTls", NewTlsVan, false, "secret"},
                      VanKind{"TcpSameHostWithTls", NewTlsVan, true, "secret"},
                      VanKind{"Rdma", NewRdmaVanForSure, false, "", true, true},
                      VanKind{"RdmaWithSecret", NewRdmaVanForSure, false, "secret", true, true});
inline const auto kVansOfOneProcess =
    ::testing::Values(VanKind{"RdmaLoopback", NewLoopbackRdmaVan, false, "", true},
                      VanKind{"RdmaLoopbackWithSecret", NewLoopbackRdmaVan, false, "secret", true});
inline const auto kVanName = [](const auto& info) { return info.param.name; };

}  // namespace byteps
