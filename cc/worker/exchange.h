// Exchange: one tensor on its way to the servers and back, and the tasks that its parts are.
#ifndef TF_BYTEPS_CC_WORKER_EXCHANGE_H_
#define TF_BYTEPS_CC_WORKER_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cc/codec/part_forms.h"
#include "cc/van/van.h"
#include "cc/wire/control.h"
#include "cc/worker/exchange_request.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/tensor_feedback.h"
#include "cc/worker/timeline.h"

namespace byteps {

// Kept alive by the worker until it is done, by frames that are being sent from its input, and by
// sinks that receive into its output. The fields below the line are guarded by the worker's mutex.
struct Exchange {
  explicit Exchange(ExchangeRequest request);
  explicit Exchange(PartedExchangeRequest request);

  // Makes it the exchange of this round; once, before anybody else knows of it.
  void Begin(uint64_t of_round, int64_t now_ns);

  // "tensor "dense/kernel", round 7".
  std::string Name() const;

  // Fixes parts and owners; once.
  void Place(std::shared_ptr<const TableEntry> table_entry);

  // Bytes that this worker sends for a part, perhaps compressed; those that it wants as the result.
  uint64_t PushBytes(uint32_t part, int32_t rank) const;
  uint64_t ReplyBytes(uint32_t part, int32_t rank) const;
  // Of the part's elements, and of its contribution or its sum as codecs encode them.
  uint64_t PartBytes(uint32_t part) const;
  const BlockCodec* PushCodec(uint32_t part) const;  // null: raw; perhaps narrow
  const BlockCodec* SumCodec(uint32_t part) const;
  uint64_t PartOffset(uint32_t part) const { return offsets[part]; }

  // Where they are; null if there are none.
  const uint8_t* PartInput(uint32_t part) const;
  uint8_t* PartOutput(uint32_t part) const;

  // What a contribution's random numbers depend on.
  PartSeed PushSeed(uint32_t part, int32_t rank) const;

  // Whether the engine is to encode a part before it is sent: EncodePush.
  bool MustEncode(uint32_t part) const;

  // The frame that carries a part to its server, from byte `offset` on. If MustEncode, its payload
  // is still the whole part's elements.
  OutgoingFrame PushFrame(const std::shared_ptr<Exchange>& self, uint32_t part, int32_t rank,
                          uint32_t epoch, uint64_t offset = 0) const;

  // Compresses the payload of such a frame; from any thread, without the worker's mutex. A part
  // gives the same bytes each time, so that a push can go on in the middle.
  void EncodePush(OutgoingFrame* frame) const;

  // What `bytes` of a part's push are before compression.
  uint64_t UncompressedBytes(uint32_t part, uint64_t bytes) const;

  // Whether the result of a part is here and can be sent to others; after Place.
  bool HasResult(uint32_t part) const;

  // The frame that carries it to the server that the part has moved to (FrameHeader::IsResult).
  OutgoingFrame ResultFrame(const std::shared_ptr<Exchange>& self, uint32_t part, int32_t rank,
                            uint32_t epoch) const;

  // Whether a part is to be pushed by this worker.
  bool IsRequested(uint32_t part) const { return !by_parts || part_requests[part].done != nullptr; }

  // The frame that gives a part up, because the exchange has failed on this worker.
  OutgoingFrame WithdrawalFrame(const std::shared_ptr<Exchange>& self, uint32_t part, int32_t rank,
                                uint32_t epoch, const Status& reason) const;

  // Calls memory.allocate_output, unless CloseOutput has been called: then `done` may have been
  // called too, and the caller's function must not be. A reply that comes again goes where it went
  // before.
  void* AllocateOutput(const std::vector<int64_t>& rows);
  // Nobody writes to the output of the request any more, once it has returned.
  void CloseOutput();
  // Holds CloseOutput up for as long as it lives, which is while bytes are written to the output;
  // without its mutex if the output is closed.
  std::shared_lock<std::shared_mutex> OpenOutput();

  ExchangeTerms request;
  const bool by_parts;
  ExchangeMemory memory;                                         // in one piece
  std::function<void(const std::shared_ptr<Exchange>&)> placed;  // by_parts
  const bool is_awaited_elsewhere = false;                       // by_parts
  uint64_t round = 0;                                            // these two: since Begin
  int64_t enqueued_ns = 0;
  std::shared_ptr<const TableEntry> entry;
  const PartForms* forms = nullptr;  // the entry's
  // What the whole input fits in, or null (codec/narrow.h).
  const BlockCodec* narrow = nullptr;
  std::vector<uint64_t> offsets;             // of the parts, in bytes
  std::shared_ptr<TensorFeedback> feedback;  // set where it is placed; null: the codec wants none

  // ---- guarded by Worker::mutex_
  std::vector<PartRequest> part_requests;       // by_parts: what SendPart was given, by part
  std::vector<const BlockCodec*> narrow_parts;  // by part; null: as it is
  std::vector<PartPlacement> places;  // of the parts: `entry`'s, but for those that have moved
  std::vector<bool> part_done;
  std::vector<bool> sum_is_encoded;  // of a part that is done: in the output, see PartRequest
  std::vector<int32_t> sent_on;      // the path to its server, by part; -1: it has not been sent
  size_t parts_left = 0;
  bool finished = false;
  bool is_early = false;   // in kForwardOrder, and more exchanges of its step are to come
  uint64_t step = 0;       // see StepMeter::Begin
  bool has_moved = false;  // someone may still read the input: a server that lives, or EncodePush
  std::unique_ptr<ExchangeTrace> trace;  // null: nobody wants to know

 private:
  mutable std::shared_mutex output_mutex_;
  bool output_closed_ = false;
  void* allocated_ = nullptr;
  std::vector<int64_t> rows_;  // of what is allocated, by worker
};

// Receives a part of the result where the caller wants it; nothing after CloseOutput.
class RegionSink : public PayloadSink {
 public:
  RegionSink(std::shared_ptr<Exchange> exchange, uint32_t part);
  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;
  size_t Take(const void* data, size_t bytes, uint64_t remaining) override;

 private:
  const std::shared_ptr<Exchange> exchange_;
  uint8_t* next_;
  std::shared_lock<std::shared_mutex> open_;  // from Prepare to Commit
  std::vector<uint8_t> discard_;              // for what comes after the exchange has ended
};

// The same for one that is compressed: decodes what comes, block by block.
class DecodingSink : public PayloadSink {
 public:
  // Refuses what is not the form of the part's sum. Makes a RegionSink where the caller takes it
  // encoded.
  static Status New(const std::shared_ptr<Exchange>& exchange, const FrameHeader& header,
                    std::shared_ptr<PayloadSink>* sink);

  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;
  size_t Take(const void* data, size_t bytes, uint64_t remaining) override;

 private:
  explicit DecodingSink(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  void Decode(const uint8_t* data, size_t bytes);

  const std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<PartReceiver> receiver_;
  std::vector<uint8_t> received_;  // where bytes come from a socket
};

// Receives a gather's result: a row count per worker, then all rows.
class GatherSink : public PayloadSink {
 public:
  GatherSink(std::shared_ptr<Exchange> exchange, int32_t num_workers, uint64_t payload_bytes);
  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;

  // After the last byte.
  const Status& status() const { return status_; }

 private:
  void Allocate();

  const std::shared_ptr<Exchange> exchange_;
  const uint64_t payload_bytes_;
  std::vector<int64_t> rows_;
  uint64_t received_ = 0;
  uint8_t* output_ = nullptr;
  std::vector<uint8_t> discard_;
  Status status_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_EXCHANGE_H_
