// The Van by RDMA: a Van over TCP, whose connections are made into RdmaConnections where both ends
// have RDMA. The coordinator has none, and processes of one host read each other's memory, as over
// TCP.
#include <mutex>
#include <unordered_map>

#include "cc/base/clock.h"
#include "cc/base/fork.h"
#include "cc/base/logging.h"
#include "cc/van/rdma/rdma_connection.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

class RdmaVan : public Van {
 public:
  explicit RdmaVan(const VanOptions& options) {
    parts_.options = options;
    available_ = OpenDevices();
    VanOptions tcp_options = options;
    if (available_.ok()) {
      tcp_options.features |= kRdmaFeature;
      parts_.memory = std::make_shared<RegisteredMemory>(parts_.devices);
    } else if (options.transport == Transport::kRdmaOrTcp) {
      LogWarning("RDMA is off, going on over TCP: " + available_.message(),
                 {"rdma_unavailable", {}});
    }
    tcp_ = NewTcpVan(tcp_options);
  }
  ~RdmaVan() override { Stop(); }

  Status Listen(const std::string& address, uint16_t port, ConnectionAcceptor* acceptor,
                Endpoint* bound) override {
    BYTEPS_RETURN_IF_ERROR(CheckAvailable());
    BYTEPS_RETURN_IF_ERROR(StartLoops());
    std::lock_guard<std::mutex> lock(mutex_);
    acceptors_.push_back(std::make_unique<Acceptor>(this, acceptor));
    return tcp_->Listen(address, port, acceptors_.back().get(), bound);
  }

  Status Connect(const Endpoint& endpoint, const Hello& hello, const Hello& peer,
                 ConnectionHandler* handler, const ConnectTimeout& timeout,
                 std::shared_ptr<Connection>* connection) override {
    BYTEPS_RETURN_IF_ERROR(CheckNotForked());
    if (!Concerns(hello) || peer.role == Role::kCoordinator)
      return tcp_->Connect(endpoint, hello, peer, handler, timeout, connection);
    BYTEPS_RETURN_IF_ERROR(CheckAvailable());
    if (!available_.ok()) return tcp_->Connect(endpoint, hello, peer, handler, timeout, connection);
    BYTEPS_RETURN_IF_ERROR(StartLoops());
    const int64_t start_ns = MonotonicNanos();
    Hello offered = hello;
    offered.features |= kRdmaFeature;
    const auto made = NewConnection(RdmaConnection::Side::kConnecting, handler);
    std::shared_ptr<Connection> tcp;
    Status connected = tcp_->Connect(endpoint, offered, peer, made.get(), timeout, &tcp);
    if (!connected.ok()) {
      Forget(made.get());
      return connected;
    }
    // The other side is there: it gets the time of a handshake, however little of `timeout` is
    // left. One that is connected again has not so long.
    const int64_t deadline_ns =
        hello.again ? start_ns + SecondsToNanos(kReconnectSeconds)
                    : MonotonicNanos() + SecondsToNanos(parts_.options.handshake_timeout);
    Status status = made->WaitUntilOpen(deadline_ns, timeout.in_vain);
    if (!status.ok()) {
      made->Close(status);
      const bool may_be_without = parts_.options.transport == Transport::kRdmaOrTcp && !hello.again;
      if (!made->has_no_path() || !may_be_without) return status;
      LogWarning(
          "no RDMA connection with " + peer.PeerName() + ", going on over TCP: " + status.message(),
          {"rdma_unavailable", {{"peer", peer.PeerName()}}});
      return tcp_->Connect(endpoint, hello, peer, handler, timeout, connection);
    }
    *connection = made;
    return OkStatus();
  }

  Status Expect(size_t connections) override {
    parts_.expected_connections = connections;
    return tcp_->Expect(connections);
  }

  void Stop() override {
    for (const auto& loop : loops_) loop->Stop();
    tcp_->Stop();
    std::lock_guard<std::mutex> lock(mutex_);
    connections_.clear();
  }

  std::shared_ptr<MemoryRegistry> memory_registry() override { return parts_.memory; }

  VanCounters counters() const override {
    VanCounters counters = tcp_->counters();
    const VanCounters rdma = parts_.counters.Read();
    counters.frames_sent += rdma.frames_sent - parts_.setup_frames_sent;
    counters.frames_received += rdma.frames_received - parts_.setup_frames_received;
    counters.payload_bytes_sent += rdma.payload_bytes_sent - parts_.setup_bytes_sent;
    counters.payload_bytes_received += rdma.payload_bytes_received - parts_.setup_bytes_received;
    counters.rdma_bytes_sent = rdma.rdma_bytes_sent;
    counters.rdma_bytes_received = rdma.rdma_bytes_received;
    counters.bytes_copied = rdma.bytes_copied;
    counters.wire_bytes_sent += rdma.wire_bytes_sent;
    counters.wire_bytes_received += rdma.wire_bytes_received;
    return counters;
  }

 private:
  class Acceptor : public ConnectionAcceptor {
   public:
    Acceptor(RdmaVan* van, ConnectionAcceptor* acceptor) : van_(van), acceptor_(acceptor) {}
    Status OnHello(const Hello& hello, const std::string& peer_address,
                   ConnectionHandler** handler) override {
      BYTEPS_RETURN_IF_ERROR(acceptor_->OnHello(hello, peer_address, handler));
      if (!van_->Concerns(hello) || !van_->available_.ok()) return OkStatus();
      if ((hello.features & kRdmaFeature) == 0) {
        if (van_->parts_.options.transport != Transport::kRdma) return OkStatus();
        return FailedPrecondition("only RDMA connections are taken here (BYTEPS_VAN=rdma), and " +
                                  hello.PeerName() +
                                  " has no RDMA; BYTEPS_VAN=auto would go on "
                                  "over TCP");
      }
      *handler = van_->NewConnection(RdmaConnection::Side::kAccepting, *handler).get();
      return OkStatus();
    }

   private:
    RdmaVan* const van_;
    ConnectionAcceptor* const acceptor_;
  };

  Status OpenDevices() {
    if (parts_.options.tls)
      return FailedPrecondition("BYTEPS_TLS=1 demands encryption, which RDMA does not have");
    const verbs::Verbs* verbs = parts_.options.verbs;
    if (verbs == nullptr) BYTEPS_RETURN_IF_ERROR(verbs::SystemVerbs(&verbs));
    return OpenRdmaDevices(*verbs, parts_.options.rdma, &parts_.devices);
  }

  Status CheckAvailable() const {
    if (available_.ok() || parts_.options.transport != Transport::kRdma) return OkStatus();
    return Status(available_.code(), "BYTEPS_VAN=rdma demands RDMA, but " + available_.message() +
                                         ". BYTEPS_VAN=auto would go on over TCP");
  }

  // Within a host memory is nearer than the network card.
  bool Concerns(const Hello& hello) const {
    return !(hello.same_host && parts_.options.SharesMemory());
  }

  std::shared_ptr<RdmaConnection> NewConnection(RdmaConnection::Side side,
                                                ConnectionHandler* handler) {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t turn = next_turn_++;
    auto made = std::make_shared<RdmaConnection>(
        &parts_, parts_.devices[turn % parts_.devices.size()], loops_[turn % loops_.size()].get(),
        side, handler, [this](RdmaConnection* connection) { Forget(connection); });
    connections_[made.get()] = made;
    return made;
  }

  void Forget(RdmaConnection* connection) {
    std::shared_ptr<RdmaConnection> forgotten;  // its destructor runs without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = connections_.find(connection);
    if (it == connections_.end()) return;
    forgotten = std::move(it->second);
    connections_.erase(it);
  }

  Status StartLoops() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!loops_.empty() || !available_.ok()) return OkStatus();
    return StartEventLoops(parts_.options.io_threads, "byteps-rdma-", &loops_);
  }

  RdmaVanParts parts_;
  Status available_;  // why there is no RDMA here
  std::mutex mutex_;  // guards the next four
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  // The TCP connections' handlers, which must outlive them.
  std::unordered_map<RdmaConnection*, std::shared_ptr<RdmaConnection>> connections_;
  size_t next_turn_ = 0;
  std::unique_ptr<Van> tcp_;  // ends first
};

}  // namespace

std::unique_ptr<Van> NewRdmaVan(const VanOptions& options) {
  return std::make_unique<RdmaVan>(options);
}

}  // namespace byteps
