// RdmaConnection: a connection whose frames go by RDMA, once both ends have agreed on it over the
// TCP connection that it is built on.
//
// The TCP connection comes first and stays: it carries the handshake and what the queue pairs need
// to know of each other (offer.h), and its end is the end of this one, so that a killed process is
// known at once, however patient the network card is. Where the ends do not agree, frames go on
// over TCP.
//
//   connecting side                  accepting side
//   offer (or why there is none)  ->
//                                 <- offer (or why there is none)
//   ready (or why it is not)      ->
//
// Then each greets the other one by RDMA, the connecting side first; a side is open when it has
// been greeted. So a connection that is made again (van/reconnector.h) is one over which something
// goes, and not only one whose TCP connection can be made.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cc/van/buffer_sink.h"
#include "cc/van/counters.h"
#include "cc/van/incoming_frames.h"
#include "cc/van/rdma/queue_pair.h"
#include "cc/van/rdma/send_window.h"
#include "cc/van/tcp/event_loop.h"
#include "cc/van/van.h"

namespace byteps {

// What the connections of a Van share. Outlives their use.
struct RdmaVanParts {
  VanOptions options;
  std::vector<std::shared_ptr<RdmaDevice>> devices;  // not empty
  std::shared_ptr<RegisteredMemory> memory;
  AtomicVanCounters counters;
  std::atomic<size_t> expected_connections{1};  // what has been said of the job, see Van::Expect
  // What the two ends told each other before frames could go by RDMA; TCP's counters have it, too.
  std::atomic<uint64_t> setup_frames_sent{0};
  std::atomic<uint64_t> setup_frames_received{0};
  std::atomic<uint64_t> setup_bytes_sent{0};
  std::atomic<uint64_t> setup_bytes_received{0};
};

class RdmaConnection : public Connection,
                       public ConnectionHandler,
                       public Watcher,
                       public std::enable_shared_from_this<RdmaConnection> {
 public:
  enum class Side { kConnecting, kAccepting };

  // `device` and `loop`: whose turn it is. `forget` is called when the TCP connection has ended.
  RdmaConnection(RdmaVanParts* parts, std::shared_ptr<RdmaDevice> device, EventLoop* loop,
                 Side side, ConnectionHandler* handler,
                 std::function<void(RdmaConnection*)> forget);

  // Waits until frames may be sent, by RDMA or over TCP. DEADLINE_EXCEEDED, why neither is, or what
  // `in_vain` says, which is asked meanwhile: then the handler never hears of the connection.
  Status WaitUntilOpen(int64_t deadline_ns, const std::function<Status()>& in_vain);
  // After an error of WaitUntilOpen: the ends had agreed, but did not reach each other by RDMA.
  bool has_no_path() const { return has_no_path_; }

  // Connection. Both any thread.
  void Send(OutgoingFrame frame) override;
  uint64_t Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped) override;
  void Close(const Status& reason) override;
  const Hello& peer() const override { return tcp_->peer(); }
  const std::string& peer_name() const override { return tcp_->peer_name(); }
  uint64_t round_trip_ns() const override { return tcp_->round_trip_ns(); }
  int64_t last_heard_ns() const override { return tcp_->last_heard_ns(); }
  bool is_idle() const override;
  void LimitUnsent(uint64_t bytes) override { tcp_->LimitUnsent(bytes); }

  // ConnectionHandler of the TCP connection: its thread.
  void OnOpen(const std::shared_ptr<Connection>& tcp) override;
  Status OnHeader(Connection& tcp, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) override;
  Status OnFrame(Connection& tcp, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override;
  void OnDrained(Connection& tcp) override;
  void OnClosed(Connection& tcp, const Status& reason) override;

  // Watcher of the queue pair's completions: the loop's thread.
  void OnEvents(uint32_t events) override;
  void OnStop() override;

 private:
  enum class Stage { kAgreeing, kGreeting, kRdma, kTcp, kOver };

  // TCP connection's thread.
  Status OnSetup(const RdmaOffer& offer);
  Status Answer(RdmaOffer offer);
  Status FinishSetup(const RdmaOffer& answer);
  void SendSetup(const RdmaOffer& offer);
  Status FallBackToTcp(const Status& reason);
  Status BeginToGreet();
  void SetOpened(const Status& status);
  bool BeginToOpen();

  // The loop's thread. Each returns the reason to end the connection, or OK.
  Status TakeCompletions();
  Status OnCompletion(const QueuePair::Completion& completion);
  Status OnReceivedSend(const QueuePair::Completion& completion);
  Status OnRoomReturned(const FrameHeader& header);
  Status OnReceivedSlots(const QueuePair::Completion& completion);
  Status TakeSlot(uint32_t index, std::optional<uint32_t> written);
  Status UpgradeToRdma();
  Status BeginFrame(const FrameHeader& header);
  void TakePayload(const uint8_t* data, uint32_t bytes);
  Status EndPiece();
  void Turn();
  void PumpOnLoop();
  void OnTcpClosed(const Status& reason);
  Status Arm();
  bool HasBudget() const;
  bool SpinUntilPending();
  Status Malformed(const std::string& what) const;
  void Finish(const Status& reason);

  RdmaVanParts* const parts_;
  const std::shared_ptr<RdmaDevice> device_;
  EventLoop* const loop_;
  const Side side_;
  ConnectionHandler* const handler_;
  const std::function<void(RdmaConnection*)> forget_;
  std::shared_ptr<Connection> tcp_;  // set by OnOpen

  // TCP connection's thread only.
  std::unique_ptr<QueuePair> prepared_;

  // Set by the TCP connection's thread, but for the end of kGreeting.
  std::atomic<Stage> stage_{Stage::kAgreeing};
  std::atomic<bool> has_no_path_{false};
  std::mutex opened_mutex_;
  std::condition_variable opened_changed_;
  std::optional<Status> opened_;  // guarded; OK once frames may be sent, else why they never will
  bool opening_ = false;  // guarded; the handler is being told, so that giving up is too late

  // The loop's thread only.
  IncomingFrames incoming_;
  bool is_told_ = false;    // the handler knows the connection
  uint32_t next_slot_ = 0;  // that the peer fills
  uint64_t received_this_turn_ = 0;
  int64_t spin_ns_ = 0;

  mutable std::mutex send_mutex_;          // guards the next five
  std::unique_ptr<QueuePair> queue_pair_;  // polled without it, by the loop's thread
  std::unique_ptr<SendWindow> window_;
  bool pump_posted_ = false;
  bool finished_ = false;
  Status close_reason_;
  std::atomic<bool> closing_{false};
};

}  // namespace byteps
