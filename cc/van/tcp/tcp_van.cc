// The Van over TCP: a listener, a few event loops, and connections spread over them.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "cc/base/backoff.h"
#include "cc/base/clock.h"
#include "cc/base/descriptors.h"
#include "cc/base/fork.h"
#include "cc/base/logging.h"
#include "cc/base/thread_cpu.h"
#include "cc/van/tcp/event_loop.h"
#include "cc/van/tcp/socket.h"
#include "cc/van/tcp/stream.h"
#include "cc/van/tcp/tcp_connection.h"
#include "cc/van/tcp/waiting_room.h"
#include "cc/van/tls/tls.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

// The error of one whose peer has ended the connection before it has said anything.
Status Unheard(const Status& status) {
  if (status.code() != StatusCode::kUnavailable) return status;
  return Unavailable(status.message() +
                     ", before it had said a word: too many others may connect to it, or another "
                     "program listens there");
}

// "2 s", "0.1 s".
std::string InSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), seconds < 1 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

// Accepts and hands each new socket to a waiting room, which runs on the same loop.
class Listener : public Watcher {
 public:
  Listener(Socket socket, EventLoop* loop, UnauthenticatedConnections* strangers,
           std::shared_ptr<WaitingRoom> room)
      : socket_(std::move(socket)), loop_(loop), strangers_(strangers), room_(std::move(room)) {}

  int descriptor() const { return socket_.get(); }

  void OnEvents(uint32_t) override {
    const double before = ThreadCpuSeconds();
    const int descriptor = accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0) {
      room_->Enter(Socket(descriptor));
      strangers_->Spend(ThreadCpuSeconds() - before, MonotonicNanos());
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      OnShortage(ErrnoMessage("cannot accept a connection"));
    }
  }

  // Listens again after a shortage.
  void OnTick(int64_t) override {
    if (!disarmed_) return;
    disarmed_ = false;
    loop_->Modify(socket_.get(), EPOLLIN);
  }

  void OnStop() override { socket_.Reset(); }

 private:
  static constexpr int64_t kLogNanos = 30LL * 1000000000;

  // The event would repeat at once, on a thread that moves data, too. Those who wait stay in the
  // kernel's queue.
  void OnShortage(const std::string& what) {
    const int64_t now = MonotonicNanos();
    if (logged_at_ns_ == 0 || now - logged_at_ns_ >= kLogNanos) {
      logged_at_ns_ = now;
      LogError(what + ": " + DescriptorsInWords() +
                   "; raise the hard limit (ulimit -Hn) if the job needs more",
               {"descriptors_short", {}});
    }
    room_->MakeRoom();
    strangers_->MakeRoom();
    disarmed_ = true;
    loop_->Modify(socket_.get(), 0);
  }

  Socket socket_;
  EventLoop* const loop_;
  UnauthenticatedConnections* const strangers_;
  const std::shared_ptr<WaitingRoom> room_;
  bool disarmed_ = false;
  int64_t logged_at_ns_ = 0;
};

class TcpVan : public Van {
 public:
  explicit TcpVan(const VanOptions& options) : options_(options) {
    RaiseDescriptorLimit();
    if (options.tls)
      has_tls_ = TlsContext::Create(options.secret, options.tls_records_per_key, &tls_);
  }
  ~TcpVan() override { Stop(); }

  Status Listen(const std::string& address, uint16_t port, ConnectionAcceptor* acceptor,
                Endpoint* bound) override {
    BYTEPS_RETURN_IF_ERROR(has_tls_);
    BYTEPS_RETURN_IF_ERROR(StartLoops());
    Socket socket;
    BYTEPS_RETURN_IF_ERROR(port == 0 && !options_.ports.empty()
                               ? ListenOnOneOf(address, options_.ports, &socket, bound)
                               : ListenOn(address, port, &socket, bound));
    auto room = std::make_shared<WaitingRoom>(&strangers_, [this, acceptor](Socket accepted) {
      if (!PrepareDataSocket(accepted, options_.silence_timeout).ok()) return;
      Stream stream(std::move(accepted), tls_.get(), TlsSide::kListening, &counters_);
      TcpConnection::Accept(NextLoop(), std::move(stream), acceptor, options_, &counters_,
                            &strangers_);
    });
    BYTEPS_RETURN_IF_ERROR(room->Open());
    auto listener =
        std::make_shared<Listener>(std::move(socket), loops_[0].get(), &strangers_, room);
    loops_[0]->Add(room->descriptor(), EPOLLIN, room);
    const int descriptor = listener->descriptor();
    loops_[0]->Add(descriptor, EPOLLIN, std::move(listener));
    return OkStatus();
  }

  Status Connect(const Endpoint& endpoint, const Hello& hello, const Hello& peer,
                 ConnectionHandler* handler, const ConnectTimeout& timeout,
                 std::shared_ptr<Connection>* connection) override {
    BYTEPS_RETURN_IF_ERROR(CheckNotForked());
    BYTEPS_RETURN_IF_ERROR(has_tls_);
    BYTEPS_RETURN_IF_ERROR(StartLoops());
    const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(timeout.seconds);
    std::optional<Stream> stream;
    std::optional<PeerMemory> memory;
    Challenge challenge;
    Welcome welcome;
    int attempts = 0;
    Backoff backoff(kFirstPauseNanos, kMostPauseNanos);
    Status status;
    while (true) {
      // As much time for one as the other side would give it; less would only make it begin again.
      const int64_t attempt_ns = MonotonicNanos() + SecondsToNanos(options_.handshake_timeout);
      const SocketWait wait{std::min(deadline_ns, attempt_ns), timeout.in_vain};
      bool refused = false;
      const Status tried =
          Handshake(endpoint, hello, peer, &memory, wait, &stream, &challenge, &welcome, &refused);
      // The last one may have had no time to find anything out.
      if (tried.code() != StatusCode::kDeadlineExceeded || status.ok()) status = tried;
      ++attempts;
      if (status.ok()) break;
      if (timeout.in_vain != nullptr) BYTEPS_RETURN_IF_ERROR(timeout.in_vain());
      if (refused && hello.again) return FailedPrecondition(status.message());
      const bool may_come_up = status.code() == StatusCode::kUnavailable ||
                               status.code() == StatusCode::kDeadlineExceeded;
      const int64_t pause_ns = backoff.NextNanos();
      // Not one for which there is no time: this one's error says more.
      if (!may_come_up || MonotonicNanos() + pause_ns + kFirstPauseNanos >= deadline_ns) {
        return Status(status.code(), "cannot reach " + peer.PeerName() + " at " +
                                         endpoint.ToString() + " (" + std::to_string(attempts) +
                                         (attempts == 1 ? " attempt" : " attempts") + " in " +
                                         InSeconds(timeout.seconds) + "): " + status.message());
      }
      std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
    }
    *connection =
        TcpConnection::Open(NextLoop(), std::move(*stream), std::move(*memory), challenge.features,
                            welcome, peer, handler, options_, &counters_);
    return OkStatus();
  }

  Status Expect(size_t connections) override {
    strangers_.Expect(connections);
    return CheckDescriptors(connections);
  }

  void Stop() override {
    for (const auto& loop : loops_) loop->Stop();
  }

  VanCounters counters() const override { return counters_.Read(); }

 private:
  static constexpr int64_t kFirstPauseNanos = 50 * 1000000;
  static constexpr int64_t kMostPauseNanos = 500 * 1000000;

  Status StartLoops() {
    std::lock_guard<std::mutex> lock(start_mutex_);
    if (!loops_.empty()) return OkStatus();
    return StartEventLoops(options_.io_threads, "byteps-io-", &loops_);
  }

  EventLoop* NextLoop() { return loops_[next_loop_++ % loops_.size()].get(); }

  // One attempt to connect, and the handshake.
  Status Handshake(const Endpoint& endpoint, Hello hello, const Hello& peer,
                   std::optional<PeerMemory>* memory, const SocketWait& wait,
                   std::optional<Stream>* made, Challenge* challenge, Welcome* welcome,
                   bool* refused) {
    Socket socket;
    BYTEPS_RETURN_IF_ERROR(ConnectTo(endpoint, wait, &socket, refused));
    BYTEPS_RETURN_IF_ERROR(PrepareDataSocket(socket, options_.silence_timeout));
    Stream& stream = made->emplace(std::move(socket), tls_.get(), TlsSide::kConnecting, &counters_);
    const std::string name = "the peer";
    BYTEPS_RETURN_IF_ERROR(Unheard(stream.Handshake(name, wait)));
    memory->emplace(hello.same_host && options_.SharesMemory(), options_.lend_to_own_process);
    hello.nonce = (*memory)->nonce();
    hello.to_role = peer.role;
    hello.to_rank = peer.rank;
    ConnectingHandshake handshake(options_.secret, hello);
    uint8_t out[kHelloBytes];
    handshake.WriteHello(out);
    BYTEPS_RETURN_IF_ERROR(stream.SendExactly(name, out, sizeof(out), wait));
    uint8_t challenge_bytes[kChallengeBytes];
    BYTEPS_RETURN_IF_ERROR(
        Unheard(stream.ReceiveExactly(name, challenge_bytes, sizeof(challenge_bytes), wait)));
    BYTEPS_RETURN_IF_ERROR(handshake.ReadChallenge(challenge_bytes, challenge));
    uint8_t response[kResponseBytes];
    const MemoryOffer offer = (*memory)->Offer(stream.socket(), challenge->nonce);
    handshake.WriteResponse({hello.same_host, offer}, response);
    BYTEPS_RETURN_IF_ERROR(stream.SendExactly(name, response, sizeof(response), wait));
    uint8_t in[kWelcomeBytes];
    BYTEPS_RETURN_IF_ERROR(stream.ReceiveExactly(name, in, sizeof(in), wait));
    return handshake.ReadWelcome(in, welcome);
  }

  const VanOptions options_;
  std::unique_ptr<TlsContext> tls_;
  Status has_tls_;  // why there is none
  AtomicVanCounters counters_;
  UnauthenticatedConnections strangers_;
  std::mutex start_mutex_;
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::atomic<size_t> next_loop_{0};
};

}  // namespace

bool IsRefusedAt(const Endpoint& endpoint, double timeout) {
  Socket socket;
  bool refused = false;
  const SocketWait wait{MonotonicNanos() + SecondsToNanos(timeout)};
  return !ConnectTo(endpoint, wait, &socket, &refused).ok() && refused;
}

std::unique_ptr<Van> NewTcpVan(const VanOptions& options) {
  return std::make_unique<TcpVan>(options);
}

}  // namespace byteps
