// TcpConnection: one socket, from the handshake on. See van/van.h for what a Connection promises.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cc/van/counters.h"
#include "cc/van/incoming_frames.h"
#include "cc/van/tcp/event_loop.h"
#include "cc/van/tcp/peer_memory.h"
#include "cc/van/tcp/stream.h"
#include "cc/van/tcp/unauthenticated.h"
#include "cc/van/van.h"
#include "cc/van/waiting_frame.h"
#include "cc/wire/authentication.h"

namespace byteps {

// The frames that wait for the socket: by priority, and in the order of Send among equals. Not
// thread-safe.
class SendQueue {
 public:
  void Push(OutgoingFrame frame);

  // From now on larger payloads stay where they are, and the peer reads them from there.
  void LeavePayloadsInMemory() { in_memory_ = true; }
  // The peer has read the first `count` of those; their keep_alives go to `finished`. False if
  // there are not so many.
  bool Release(uint64_t count, std::vector<std::shared_ptr<const void>>* finished);

  // Frames have begun to leave, and the socket takes no more at present; or others have their turn.
  bool blocked_by_socket() const { return !leaving_.empty() || has_had_its_turn_; }

  // Whether the socket has taken any bytes since the last call.
  bool HasMoved() { return std::exchange(has_moved_, false); }

  bool is_empty() const { return waiting_.empty() && leaving_.empty(); }

  // What the socket has to take for the frames that have not begun to leave.
  uint64_t waiting_bytes() const { return waiting_bytes_; }

  // Writes to `stream` until it is full, the queue is empty, or much has been written: then others
  // have their turn, who wait for the thread or for a lock that is held. Sent frames' keep_alives
  // are moved to `finished`, to be dropped by the caller outside its locks. UNAVAILABLE when the
  // connection is broken.
  Status Write(Stream* stream, const std::string& peer, AtomicVanCounters* counters,
               std::vector<std::shared_ptr<const void>>* finished);

  // See Connection::Revoke. What has begun to leave in pieces is none of it.
  uint64_t Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped);

  // Drops everything into `dropped`.
  void Clear(std::vector<std::shared_ptr<const void>>* dropped);

 private:
  struct Entry : WaitingFrame {
    using WaitingFrame::WaitingFrame;
    bool in_memory = false;  // the payload stays there
    bool is_vans_own = false;
    uint64_t sent = 0;     // of what the socket has to take for the piece
    ScatteredPlace place;  // of a scattered payload

    uint64_t stream_bytes() const { return kFrameHeaderBytes + (in_memory ? 0 : piece_bytes); }
    void EncodeHeader(FrameHeader header);
    size_t Describe(iovec* pieces, size_t most);
  };
  using Waiting = std::set<std::unique_ptr<Entry>, LeavesEarlier>;

  bool MayLeave(const Entry& entry) const;
  void Gather();
  void BeginNextPiece(std::unique_ptr<Entry> entry);
  void Finish(std::unique_ptr<Entry> entry, AtomicVanCounters* counters,
              std::vector<std::shared_ptr<const void>>* finished);

  Waiting waiting_;
  size_t begun_ = 0;  // of those that wait
  std::deque<std::unique_ptr<Entry>>
      leaving_;  // handed to the socket together; no longer overtaken
  uint64_t waiting_bytes_ = 0;
  // Payloads that the peer reads from memory: their bytes and owners, until Release.
  std::deque<std::pair<uint64_t, std::shared_ptr<const void>>> in_peers_hands_;
  uint64_t bytes_in_peers_hands_ = 0;  // and of those in leaving_
  bool in_memory_ = false;
  bool has_moved_ = false;
  bool has_had_its_turn_ = false;
  uint64_t next_sequence_ = 0;
};

class TcpConnection : public Connection,
                      public Watcher,
                      public Stranger,
                      public std::enable_shared_from_this<TcpConnection> {
 public:
  // A stranger that has connected; its Hello is read on the loop. `strangers` outlives the loop.
  static void Accept(EventLoop* loop, Stream stream, ConnectionAcceptor* acceptor,
                     const VanOptions& options, AtomicVanCounters* counters,
                     UnauthenticatedConnections* strangers);

  // A connection whose handshake the connecting side has finished: `features` and `welcome` are
  // what the other side has said, `memory` is what was offered to it.
  static std::shared_ptr<TcpConnection> Open(EventLoop* loop, Stream stream, PeerMemory memory,
                                             uint64_t features, const Welcome& welcome,
                                             const Hello& peer, ConnectionHandler* handler,
                                             const VanOptions& options,
                                             AtomicVanCounters* counters);

  void Send(OutgoingFrame frame) override;
  uint64_t Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped) override;
  void Close(const Status& reason) override;
  const Hello& peer() const override { return peer_; }
  const std::string& peer_name() const override { return peer_name_; }
  uint64_t round_trip_ns() const override;
  int64_t last_heard_ns() const override;
  std::string local_host() const override;
  bool is_idle() const override;
  void LimitUnsent(uint64_t bytes) override;

  void OnEvents(uint32_t events) override;
  void OnTick(int64_t now_ns) override;
  void OnStop() override;

  void EndHandshake(const Status& reason) override;

 private:
  enum class Stage { kHello, kResponse, kHeader, kPayload };

  TcpConnection(EventLoop* loop, Stream stream, PeerMemory memory, AtomicVanCounters* counters);

  // Loop thread. Each returns the reason to end the connection, or OK.
  Status HandleEvents(uint32_t events);
  Status OnReadable();
  Status ReceiveSome(bool* drained);
  Status ParseInput();
  Status ReceiveHello();
  Status ReceiveResponse();
  Status SendInHandshake(const uint8_t* message, size_t bytes);
  Status RefuseHello(const Status& status);
  Status BeginFrame();
  Status EndPiece();
  Status ReadPieceFromMemory(const FrameHeader& header);
  Status CopyPieceFromMemory(uint64_t address);
  Status TakePieceFromOwnMemory(uint64_t address);
  Status EndFrame();
  Status OnVanFrame(const FrameHeader& header);
  void SendVanFrame(FrameType type);
  void CheckSilence(int64_t now_ns);
  void AcknowledgeMemoryReads();
  bool HasBudget() const;

  void Arm();  // with send_mutex_ held
  void EndSoon(const Status& reason);
  Status Flush();
  void Finish(const Status& reason);

  EventLoop* const loop_;
  Stream stream_;
  AtomicVanCounters* const counters_;
  Hello peer_;
  std::string peer_name_;
  ConnectionHandler* handler_ = nullptr;

  // Loop thread only.
  ConnectionAcceptor* acceptor_ = nullptr;
  std::unique_ptr<ListeningHandshake> handshake_;  // until it is done
  UnauthenticatedConnections* strangers_ = nullptr;
  bool is_stranger_ = false;    // in its handshake, on the side that listens
  bool may_try_again_ = false;  // it was told so: nothing that a person must know of
  int64_t handshake_deadline_ns_ = 0;
  Stage stage_ = Stage::kHeader;
  std::vector<uint8_t> input_;  // bytes that arrived together with a header
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  IncomingFrames incoming_;
  std::vector<uint8_t> discard_;
  uint64_t received_this_turn_ = 0;
  bool has_posted_turn_ = false;
  PeerMemory memory_;
  uint64_t unacknowledged_reads_ = 0;
  int64_t ping_interval_ns_ = 0;  // 0: silence says nothing
  bool has_heard_ = true;         // the peer, since the last tick
  bool has_pinged_ = false;       // and not heard it since
  int64_t last_tick_ns_ = 0;
  int64_t silent_since_ns_ = 0;
  int64_t stuck_since_ns_ = 0;  // nothing has left, either

  std::atomic<int64_t> heard_ns_{0};  // when bytes were last received

  mutable std::mutex send_mutex_;  // guards all below
  SendQueue queue_;
  bool armed_ = false;  // the loop is asked to tell when the socket takes more
  bool finished_ = false;
  Status close_reason_;  // what Close was given first
  std::atomic<bool> closing_{false};
};

}  // namespace byteps
