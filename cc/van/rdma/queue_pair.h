// QueuePair: a reliable-connected queue pair with its memory: slots that the peer writes to, slots
// to write from, and small buffers for sends. Says what has completed; what that means is
// rdma_connection.h's.
//
// What is received and what the device has sent complete in queues of their own: for the first the
// thread has to be woken, the second can mostly wait until it is awake.
//
// The peer can never run out of receives, so that no write waits for one: it posts one for each
// slot and each send of the window, and as many again for the messages that give those back, of
// which each gives back at least one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "cc/van/rdma/device.h"
#include "cc/van/rdma/offer.h"
#include "cc/wire/frame.h"

namespace byteps {

// A frame, or a message of the Van, that is sent instead of written.
inline constexpr uint32_t kRdmaSendBytes = 4096;
// Sends that give back slots and sends; more of them wait for one to complete.
inline constexpr uint32_t kRdmaReturnBuffers = 2;

// What a connection with this window has of locked memory.
uint64_t LockedBytes(const RdmaWindow& window);

// The window of each of so many connections: as large as it may be, so that the locked memory of
// all stays below 1 GiB; never smaller than keeps a link busy.
RdmaWindow WindowFor(size_t connections);
// Writes that are posted together, of which only the last one wakes the peer.
inline constexpr uint32_t kRdmaWritesAtOnce = 4;

// Posting is not thread-safe, nor is polling; one thread may post sends while another polls.
class QueuePair {
 public:
  enum class Kind : uint8_t { kReceivedSlot, kReceivedSend, kWritten, kSent };
  struct Completion {
    Kind kind = Kind::kSent;
    uint32_t index = 0;  // of the buffer; kWritten: of the last slot; kReceivedSlot: see Announce
    uint32_t bytes = 0;  // received
  };

  // With a window of at most `wanted`, less where the device's limits ask for it.
  static Status New(std::shared_ptr<RdmaDevice> device, const RdmaWindow& wanted,
                    const RdmaOptions& options, std::unique_ptr<QueuePair>* queue_pair);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // What the peer must know of this end.
  RdmaOffer offer() const;
  const RdmaDevice& device() const { return *device_; }

  // `peer`'s window must not be larger than this end's, and becomes the window of both.
  Status Connect(const RdmaOffer& peer);
  const RdmaWindow& window() const { return window_; }

  // Readable when something has completed of what was armed for.
  int descriptor() const;
  // Takes what made it readable.
  void TakeEvent();
  // Ask to be told, once, of what is received, or has been sent, from now on; not of what has
  // completed already. Each costs a system call, and so does being told: for when there is nothing
  // more for Poll. ArmSent: any thread.
  Status ArmReceived();
  Status ArmSent();
  // Whether there is something for Poll.
  bool Pending();
  // At most one completion; none: *found is false. UNAVAILABLE when the connection is broken.
  Status Poll(Completion* completion, bool* found);

  // A slot of `kFrameHeaderBytes` and window().slot_payload_bytes.
  const uint8_t* received_slot(uint32_t index) const { return Slot(receive_slots_, index); }
  uint8_t* slot_to_write(uint32_t index) const { return Slot(write_slots_, index); }
  // kRdmaSendBytes each; `index` below window().sends + kRdmaReturnBuffers.
  const uint8_t* received_send(uint32_t index) const {
    return receive_buffers_ + uint64_t{index} * kRdmaSendBytes;
  }
  uint8_t* buffer_to_send(uint32_t index) const {
    return send_buffers_ + uint64_t{index} * kRdmaSendBytes;
  }

  // The bytes from `begin` to `end` of a slot go to the same place in the peer's. The payload among
  // them is taken from `payload`, if that is not null, by its registration's key.
  struct Bytes {
    uint32_t begin = 0;
    uint32_t end = 0;
    const void* payload = nullptr;
    uint32_t payload_key = 0;
  };
  // Adds a write to those that the next Announce posts; at most kRdmaWritesAtOnce.
  void Write(uint32_t index, const Bytes& bytes);
  // Posts them. When all have arrived the peer is told, with the message, and with the length of
  // the last one; when all are done, so is this end.
  Status Announce(uint32_t message);
  Status Send(uint32_t index, uint32_t bytes);
  // Gives the receive that a completion has used back to the device. `receive`: of a send its
  // index; else last_receive().
  Status Repost(uint32_t receive);
  uint32_t last_receive() const { return last_receive_; }

 private:
  struct Queue {
    verbs::ibv_cq* queue = nullptr;
    std::atomic<bool> armed{false};
    unsigned events = 0;  // taken, and not told to the library yet
  };
  struct WriteRequest {
    verbs::ibv_send_wr request;
    verbs::ibv_sge pieces[2];  // a header, and a payload from elsewhere
  };
  static constexpr int kPollAtOnce = 16;

  QueuePair(std::shared_ptr<RdmaDevice> device, const RdmaOptions& options);
  Status Shrink(const RdmaWindow& wanted);
  Status AllocateMemory();
  Status CreateQueues();
  Status ToInit();
  uint32_t receives() const;
  uint32_t requests() const { return window_.slots + window_.sends + kRdmaReturnBuffers; }
  uint8_t* Slot(uint8_t* base, uint32_t index) const {
    return base + uint64_t{index} * (kFrameHeaderBytes + window_.slot_payload_bytes);
  }
  Status PostSend(verbs::ibv_send_wr* request);
  Status Arm(Queue* queue);
  bool PollQueue(const Queue& queue);
  Status WhatBroke(verbs::ibv_wc first);

  const std::shared_ptr<RdmaDevice> device_;
  const verbs::Verbs& verbs_;
  const RdmaOptions options_;
  RdmaWindow window_;
  uint32_t packet_sequence_ = 0;
  RdmaOffer peer_;

  uint8_t* memory_ = nullptr;
  uint64_t memory_bytes_ = 0;
  uint8_t* receive_slots_ = nullptr;
  uint8_t* write_slots_ = nullptr;
  uint8_t* receive_buffers_ = nullptr;
  uint8_t* send_buffers_ = nullptr;
  verbs::ibv_mr* registration_ = nullptr;
  verbs::ibv_mr* slots_registration_ = nullptr;  // all that the peer may write to
  verbs::ibv_comp_channel* channel_ = nullptr;
  Queue received_;
  Queue sent_;
  verbs::ibv_qp* pair_ = nullptr;

  std::array<WriteRequest, kRdmaWritesAtOnce> writes_;
  uint32_t num_writes_ = 0;  // not posted yet

  std::array<verbs::ibv_wc, 2 * kPollAtOnce> polled_;
  int num_polled_ = 0;
  int next_polled_ = 0;
  bool poll_failed_ = false;
  uint32_t last_receive_ = 0;
};

}  // namespace byteps
