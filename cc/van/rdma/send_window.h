// SendWindow: the frames that wait for the queue pair, by priority, and how much of the peer's room
// they have taken.
//
// A piece of a frame with a payload (kPieceBytes) is copied into the next slots of a ring and
// written to the same slots of the peer, its header in front of the first one's bytes (payloads in
// registered memory are written from where they are). Behind it comes what is then the most urgent,
// perhaps the next piece. A frame without payload, or with a control message, is sent to one of the
// peer's small buffers. The peer gives slots and sends back when it has taken them in, so that
// neither end ever waits for a receive to be posted (queue_pair.h).
//
// Slots that can be written at once are written together, up to four of them, whatever frames they
// belong to; the peer is told of the last one, with what it gets back of its own (SlotMessage). So
// it is woken once for them, and where payloads go both ways nothing is sent to give slots back.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "cc/van/counters.h"
#include "cc/van/rdma/queue_pair.h"
#include "cc/van/rdma/registered_memory.h"
#include "cc/van/van.h"
#include "cc/van/waiting_frame.h"

namespace byteps {

// What comes with the last of some writes.
struct SlotMessage {
  uint16_t slot = 0;      // that was written last
  uint16_t returned = 0;  // slots that the receiver of this gets back

  uint32_t Encode() const { return uint32_t{returned} << 16 | slot; }
  static SlotMessage Decode(uint32_t message) {
    return {static_cast<uint16_t>(message), static_cast<uint16_t>(message >> 16)};
  }
};

// Not thread-safe.
class SendWindow {
 public:
  // `memory`: payloads that lie in it are not copied.
  SendWindow(QueuePair* queue_pair, const RegisteredMemory* memory, AtomicVanCounters* counters);

  void Push(OutgoingFrame frame);
  // Of the frames whose next piece has not begun to leave, up to its end.
  uint64_t waiting_bytes() const { return waiting_bytes_; }

  // Posts what there is room for. Frames that the device has taken over, or that have been copied,
  // leave their keep_alives in `finished`, to be dropped by the caller outside its locks.
  Status Pump(std::vector<std::shared_ptr<const void>>* finished);

  // The device has finished with a slot or a buffer, and with all that was posted before it.
  void OnWritten(uint32_t index, std::vector<std::shared_ptr<const void>>* finished);
  void OnSent(uint32_t index, std::vector<std::shared_ptr<const void>>* finished);
  // The peer has taken in so much; INVALID_ARGUMENT if not so much was in flight.
  Status OnReturned(uint64_t slots, uint64_t sends);

  // This end has taken in so much. The peer is told with the next slots that are written, or by
  // FlushReturns when it adds up to half of the window.
  void Return(uint32_t slots, uint32_t sends);
  Status FlushReturns();

  // Something waits until the device has finished with what was posted: its thread has to be woken
  // for that. Else it is enough to look when it is awake.
  bool WaitsForDevice() const { return HoldsBack() || (owners_ > 0 && IsEmpty()); }
  // Nothing more is posted until then, though the peer has room.
  bool HoldsBack() const;

  // Says hello, in proof that the device reaches the peer.
  Status Greet();

  // See Connection::Revoke.
  uint64_t Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped);

  // Drops everything into `dropped`.
  void Clear(std::vector<std::shared_ptr<const void>>* dropped);

 private:
  struct Entry : WaitingFrame {
    using WaitingFrame::WaitingFrame;
    uint64_t copied = 0;  // of the piece, into slots
    bool by_send = false;

    bool has_left() const { return is_last_piece() && copied == piece_bytes; }
  };

  bool HasSlot() const;
  bool IsEmpty() const;
  bool ReturnIsDue() const;
  const Entry& Next() const;
  std::unique_ptr<Entry> TakeNext();
  void BeginNextPiece(std::unique_ptr<Entry> entry);
  Status Fill(std::vector<std::shared_ptr<const void>>* finished);
  Status Announce();
  Status SendFrame(const Entry& entry);
  Status WriteSlot(Entry* entry);
  Status PostReturn();
  Status PostBuffer(uint32_t buffer, uint32_t bytes);
  void FinishWrites(uint64_t count, std::vector<std::shared_ptr<const void>>* finished);

  QueuePair* const queue_pair_;
  const RegisteredMemory* const memory_;
  AtomicVanCounters* const counters_;
  std::set<std::unique_ptr<Entry>, LeavesEarlier> waiting_;
  size_t begun_ = 0;                // of those that wait
  std::unique_ptr<Entry> leaving_;  // its piece has begun to fill slots and is not overtaken
  uint64_t waiting_bytes_ = 0;
  uint64_t next_sequence_ = 0;

  uint64_t writes_ = 0;       // so far; the n-th went to slot n modulo their number
  uint32_t unannounced_ = 0;  // of them, not posted yet
  uint64_t writes_done_ = 0;  // the device has finished with so many of them
  uint32_t slots_out_ = 0;    // that the peer has not given back
  // By slot: the owner of the payload that the device reads where it is.
  std::vector<std::shared_ptr<const void>> read_by_device_;
  uint32_t owners_ = 0;               // in it
  uint32_t sends_out_ = 0;            // likewise
  std::vector<uint32_t> free_sends_;  // buffers
  std::vector<uint32_t> free_returns_;
  std::vector<uint64_t> writes_before_;  // by buffer: how many writes were posted before it
  uint32_t slots_to_return_ = 0;
  uint32_t sends_to_return_ = 0;
};

}  // namespace byteps
