// Van: the transport contract. A Van moves frames (wire/frame.h) between endpoints; worker, server
// and coordinator know only this header, never a concrete Van. Every Van passes
// van/conformance_test.cc.
//
// The receiver names the destination: as soon as a header has arrived its ConnectionHandler says,
// through a PayloadSink, where the payload's bytes belong, so that no Van needs a buffer of its
// own.
//
// Threads: a Van owns its I/O threads. All calls to the handler about one connection come from one
// of them, one after another; calls about different connections may overlap. Send, Close and Stop
// may be called from any thread, also from inside a handler call (Stop excepted: it joins the
// threads).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/base/job.h"
#include "cc/base/status.h"
#include "cc/van/scattered_payload.h"
#include "cc/wire/frame.h"
#include "cc/wire/handshake.h"
#include "cc/wire/outgoing_frame.h"

namespace byteps {

namespace verbs {
struct Verbs;
}

// TLS changes its keys after so many records; RFC 8446 (5.5) allows 2^24.5 with AES-GCM.
inline constexpr uint64_t kTlsRecordsPerKey = uint64_t{1} << 22;

// Where the bytes of one payload go, piece by piece.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;

  struct Span {
    void* data = nullptr;
    size_t bytes = 0;
  };

  // Memory for the next bytes, 1 to `remaining` of them; stays valid until Commit, which follows in
  // any case, on the same thread, with no other call of a handler in between.
  virtual Span Prepare(uint64_t remaining) = 0;

  // The first `bytes` of the span that Prepare returned last have been filled. May be less than the
  // span.
  virtual void Commit(size_t bytes) = 0;

  // For a Van that has the next bytes, of `remaining`, in memory already: takes all of them. A sink
  // that can use them where they are needs no copy. Returns how many were copied.
  virtual size_t Take(const void* data, size_t bytes, uint64_t remaining);
};

// The payload of a frame in one place.
inline const void* WholePayload(const OutgoingFrame& frame) {
  return frame.scattered != nullptr ? frame.scattered->Whole() : frame.payload;
}

// One reliable, ordered, two-way stream of frames to a peer that has passed the handshake.
class Connection {
 public:
  virtual ~Connection() = default;

  // Queues a frame and returns; on a closed connection the frame is dropped, because OnClosed says
  // all there is to say. Frames of higher header.priority overtake waiting ones; control frames
  // overtake those, and signs of life control frames; equals keep their order.
  virtual void Send(OutgoingFrame frame) = 0;

  // Drops those of the owner's frames that have not begun to leave, their keep_alives into
  // `dropped`, for the caller to drop outside its locks. Returns how many bytes of payload they
  // have.
  virtual uint64_t Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped) {
    (void)owner, (void)dropped;
    return 0;
  }

  // Ends the connection. Frames that Send has queued may be lost. OnClosed follows on the I/O
  // thread, once.
  virtual void Close(const Status& reason) = 0;

  // Nothing that Send was given waits: what comes now leaves at once.
  virtual bool is_idle() const { return true; }

  // What the peer said in its Hello; on the connecting side, what the peer was addressed as, with
  // the features that it offers.
  virtual const Hello& peer() const = 0;

  // "worker 3 at 10.0.0.7:40312".
  virtual const std::string& peer_name() const = 0;

  // Lets no more than so many bytes wait in the kernel for the network, where nothing overtakes
  // them (protocol rule 14).
  virtual void LimitUnsent(uint64_t bytes) { (void)bytes; }

  // The shortest time that anything has needed there and back, in nanoseconds; 0: unknown.
  virtual uint64_t round_trip_ns() const { return 0; }

  // When something of the peer was there last, by MonotonicNanos; 0: unknown. What has arrived and
  // waits to be read counts as there now: this process may be busy, or its I/O thread in a long
  // call. That is no silence of the peer (protocol rule 20). Any thread.
  virtual int64_t last_heard_ns() const { return 0; }

  // This end's address in digits; "": unknown.
  virtual std::string local_host() const { return ""; }

  // For the handler: set before the first frame (in OnOpen), then read-only.
  void set_context(std::shared_ptr<void> context) { context_ = std::move(context); }
  void* context() const { return context_.get(); }

 private:
  std::shared_ptr<void> context_;
};

class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;

  // The handshake is done; the first call about a connection.
  virtual void OnOpen(const std::shared_ptr<Connection>& connection) { (void)connection; }

  // A header whose form is right has arrived and payload bytes follow (header.payload_bytes > 0).
  // Frames of higher priority may come before the last of those: of several that have begun, the
  // one that began last ends first.
  // Sets `sink` to where they go; leaving it null has them read and dropped. An error closes the
  // connection with that reason.
  virtual Status OnHeader(Connection& connection, const FrameHeader& header,
                          std::shared_ptr<PayloadSink>* sink) = 0;

  // The whole frame is in; `sink` is what OnHeader set, or null. An error closes the connection
  // with that reason.
  virtual Status OnFrame(Connection& connection, const FrameHeader& header,
                         std::shared_ptr<PayloadSink> sink) = 0;

  // All that had arrived has been delivered, and reading pauses: the time for batched
  // acknowledgements.
  virtual void OnDrained(Connection& connection) { (void)connection; }

  // The last call about a connection. `reason` is what Close was given, or UNAVAILABLE with what
  // the network said.
  virtual void OnClosed(Connection& connection, const Status& reason) = 0;
};

// Decides about those who knock.
class ConnectionAcceptor {
 public:
  virtual ~ConnectionAcceptor() = default;

  // OK with `handler` set accepts; an error is sent to the peer as the refusal. Called on an I/O
  // thread.
  virtual Status OnHello(const Hello& hello, const std::string& peer_address,
                         ConnectionHandler** handler) = 0;
};

struct VanOptions {
  int32_t io_threads = 2;
  double handshake_timeout = 10;  // seconds a stranger may take
  // A connection to a server that has been silent for so many seconds is asked for a sign of life,
  // and breaks when there is none for as long again (protocol rule 32). 0: never.
  double ping_interval = 5;
  double silence_timeout = 30;  // seconds in which the other host must acknowledge what it is sent
  // Payloads between two processes of one host may be read from the sender's memory by the
  // receiver, where both ends want it, the kernel allows it, and there is a secret.
  bool read_peer_memory = true;
  bool lend_to_own_process = true;   // false: also what is in this process is read by the kernel
  std::string secret = {};           // that peers must know (wire/authentication.h); empty: none
  uint64_t features = 0;             // of wire/handshake.h: what is offered besides a secret
  std::vector<uint16_t> ports = {};  // of NetworkOptions
  bool tls = false;                  // everything in TLS 1.3, with keys from the secret (tls/tls.h)
  uint64_t tls_records_per_key = kTlsRecordsPerKey;
  Transport transport = Transport::kTcp;  // for NewVan
  RdmaOptions rdma;
  const verbs::Verbs* verbs = nullptr;  // null: the system's

  // Anybody could say of any process that it is his, where nobody has to prove anything.
  bool SharesMemory() const { return read_peer_memory && !secret.empty(); }
};

// How long Van::Connect goes on.
struct ConnectTimeout {
  // Implicit: most have nothing but a time.
  ConnectTimeout(double seconds, std::function<Status()> in_vain = nullptr)
      : seconds(seconds), in_vain(std::move(in_vain)) {}

  double seconds;
  // Asked twice a second, on the waiting thread: an error ends the wait, with it. May be null.
  std::function<Status()> in_vain;
};

// Counters since the start, for tests and telemetry.
struct VanCounters {
  uint64_t frames_sent = 0;
  uint64_t frames_received = 0;
  uint64_t payload_bytes_sent = 0;  // without headers
  uint64_t payload_bytes_received = 0;
  uint64_t memory_bytes_read = 0;  // payload received from the sender's memory, not the socket
  uint64_t rdma_bytes_sent = 0;    // payload that went by RDMA, not through the socket
  uint64_t rdma_bytes_received = 0;
  uint64_t bytes_copied = 0;     // payload copied in user space, sent or received
  uint64_t wire_bytes_sent = 0;  // with headers and handshakes
  uint64_t wire_bytes_received = 0;
};

// Makes memory known from which a Van may send without a copy. Its owner removes it before it ends,
// and keeps the registry until then.
class MemoryRegistry {
 public:
  virtual ~MemoryRegistry() = default;
  virtual void Add(void* begin, size_t bytes) = 0;
  virtual void Remove(void* begin) = 0;
};

class Van {
 public:
  // Stops first.
  virtual ~Van() = default;

  // Accepts connections on `address` (port 0: any free one) and tells where. `acceptor` must
  // outlive Stop.
  virtual Status Listen(const std::string& address, uint16_t port, ConnectionAcceptor* acceptor,
                        Endpoint* bound) = 0;

  // Connects and shakes hands as `hello` (nonce and memory offer are the Van's); tries again while
  // nobody listens, for as long as `timeout` lasts. `peer` is whom we expect there, for messages.
  // With `hello.again` nobody listening there is the end of it: FAILED_PRECONDITION.
  // `handler` must outlive the connection. Blocks.
  virtual Status Connect(const Endpoint& endpoint, const Hello& hello, const Hello& peer,
                         ConnectionHandler* handler, const ConnectTimeout& timeout,
                         std::shared_ptr<Connection>* connection) = 0;

  // The job is known: so many connections will be made, in either direction, perhaps all at once.
  // RESOURCE_EXHAUSTED, saying what to do, if this process may not have so many.
  virtual Status Expect(size_t connections) = 0;

  // Closes everything with CANCELLED and joins the I/O threads; no handler call runs after it
  // returns. Idempotent.
  virtual void Stop() = 0;

  virtual VanCounters counters() const = 0;

  // Whether a process that has listened there does so no more: its host refuses the connection.
  // False also if that cannot be found out within `timeout` seconds. Blocks.
  virtual bool IsRefusedAt(const Endpoint& endpoint, double timeout) const;

  // Null if it makes no difference to this Van. May outlive it.
  virtual std::shared_ptr<MemoryRegistry> memory_registry() { return nullptr; }
};

std::unique_ptr<Van> NewTcpVan(const VanOptions& options);
// Moves frames by RDMA where the peer's Van does, too; else over TCP, unless `options.transport`
// demands RDMA.
std::unique_ptr<Van> NewRdmaVan(const VanOptions& options);

// Whether a process that has listened there does so no more: its host refuses the connection. False
// also if that cannot be found out within `timeout` seconds. Blocks.
bool IsRefusedAt(const Endpoint& endpoint, double timeout);

// What a process of a job uses for its data.
VanOptions VanOptionsOf(const EngineOptions& options);
std::unique_ptr<Van> NewVan(const VanOptions& options);

}  // namespace byteps
