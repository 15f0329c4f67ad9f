// The header in front of every frame that follows the handshake: 128 bytes, little-endian, the same
// for data and control.
//
// Data frames (protocol rule 2) say by themselves what they belong to; nothing is implied by the
// connection's history.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cc/base/codec_id.h"
#include "cc/base/status.h"
#include "cc/base/tensor_description.h"

namespace byteps {

// Append only: the values travel.
enum class FrameType : uint8_t {
  // worker -> server: a contribution, or (broadcast, non-root) the wish for the result. Not OK:
  // this
  // worker has given the round up; the payload says why.
  kPush = 1,
  kReply = 2,    // server -> worker: the result of a round, or an error whose text is the payload
  kCredit = 3,   // server -> worker: `credit_bytes` of pushes have been taken in
  kControl = 4,  // to or from the coordinator: one message of wire/control.h as the payload
  // server -> worker: others have pushed the part, and there is nothing to reply to this worker. To
  // push it next lets sums flow.
  kRequested = 5,

  // Between the two Vans of a connection, never given to a handler (van/tcp/peer_memory.h,
  // van/rdma/queue_pair.h).
  kMemoryReadable = 6,  // this side can read the other's memory
  kMemoryRead = 7,      // `element_count` payloads that lay in the other's memory have been read
  kRoomReturned = 8,    // `element_count` slots and `row_count` sends have been taken in
  kPing = 9,            // to be answered with kPong: does the path still pass frames on?
  kPong = 10,
  // The next bytes of the payload of a long frame, see kPieceBytes.
  kMore = 11,
};

// Where a payload is.
enum class PayloadLocation : uint8_t {
  kFollows = 0,       // behind the header
  kSenderMemory = 1,  // at `payload_address` in the sender's memory, until kMemoryRead
};

struct FrameHeader {
  FrameType type = FrameType::kControl;
  CodecId codec = CodecId::kRaw;  // of a contribution or a result; all else is raw
  StatusCode status = StatusCode::kOk;
  PayloadLocation place = PayloadLocation::kFollows;
  uint32_t epoch = 0;  // membership epoch (rule 16)

  // What it belongs to.
  uint64_t key = 0;  // KeyOfName(tensor name)
  uint32_t part = 0;
  uint32_t variant = 0;  // which of the key's declared descriptions (wire/control.h)
  uint64_t round = 0;
  uint32_t placement_version = 0;
  int32_t worker = -1;  // rank of the worker that pushes or is answered
  int32_t priority = 0;

  // The payload. Its bytes do not follow from the elements (codecs), nor the rows from the bytes
  // (rows without elements).
  uint64_t element_count = 0;
  uint64_t row_count = 0;  // kPush of rows
  uint64_t payload_bytes = 0;
  uint64_t payload_offset = 0;   // in the part: a resend goes on from there (rule 13)
  uint64_t payload_address = 0;  // kSenderMemory

  // kCredit and kReply: bytes of pushes that the server has taken in since it last said so.
  uint64_t credit_bytes = 0;

  // kReply. Every worker holds the results of all rounds below the watermark (rule 15). The times
  // are the server's wall clock: the header and the last byte of this worker's push, and when the
  // reply was queued.
  // kPush. Beyond the round: see IsResult.
  uint64_t watermark = 0;
  int64_t begin_time_ns = 0;
  int64_t receive_time_ns = 0;
  int64_t send_time_ns = 0;

  // A push that is not a contribution: the round's result, which a server that is lost has sent to
  // this worker, for others that it has not reached (rule 15).
  bool IsResult() const { return type == FrameType::kPush && watermark > round; }
};

inline constexpr size_t kFrameHeaderBytes = 128;
inline constexpr uint32_t kFrameMagic = 0x31535042;  // "BPS1"

// No frame may announce more; a larger number is garbage or an attack.
inline constexpr uint64_t kMaxPayloadBytes = kMaxTensorBytes;
inline constexpr uint64_t kMaxControlBytes = uint64_t{16} << 20;
inline constexpr uint64_t kMaxErrorTextBytes = uint64_t{64} << 10;

// A payload comes in pieces of at most so many bytes, the first with its header, each other one
// with a header of type kMore that names its `payload_bytes` and, in the sender's memory, its
// address. Between them other frames may come, whole or in pieces of their own, so that what is
// urgent need not wait for the end of what is long (protocol rule 14): always the one that began
// last goes on.
inline constexpr uint64_t kPieceBytes = 512 * 1024;
// In the sender's memory a piece may be longer: it is read at several GB/s, and each costs both
// processes a wake-up.
inline constexpr uint64_t kMemoryPieceBytes = 4096 * 1024;
constexpr uint64_t MostPieceBytes(PayloadLocation place) {
  return place == PayloadLocation::kSenderMemory ? kMemoryPieceBytes : kPieceBytes;
}
// So many frames may have begun and not ended.
inline constexpr size_t kMaxBegunFrames = 32;

void EncodeFrameHeader(const FrameHeader& header, uint8_t out[kFrameHeaderBytes]);

// Refuses a wrong magic, an unknown type, codec or status, a codec where nothing can be encoded,
// and sizes beyond the limits above.
Status DecodeFrameHeader(const uint8_t in[kFrameHeaderBytes], FrameHeader* header);

}  // namespace byteps
