// Exchange: one tensor in flight: what is exchanged, its parts, and how far each of them is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/transition.h"
#include "cc/codec/part_forms.h"
#include "cc/wire/control.h"
#include "cc/wire/outgoing_frame.h"
#include "cc/worker/state/exchange_request.h"
#include "cc/worker/state/exchange_trace.h"
#include "cc/worker/state/moment.h"
#include "cc/worker/state/part_id.h"

namespace byteps {

class TensorFeedback;  // worker/tensor_feedback.h: of no use here but to be passed on

// Kept alive by the worker until it is done, by frames that are being sent from its input, and by
// sinks that receive into its output. The fields below the line are the worker's state: guarded by
// its mutex.
struct Exchange {
  enum class State {
    kBegun,  // the coordinator has not said who sums its parts, or not yet how it is cut again
    kPlaced,
    kEnded,  // well or not
  };
  // Of a part, once it is placed.
  enum class PartState {
    kWaiting,  // to be computed, for credit, for a path, or for a new owner
    kInFlight,
    kAnswered,
  };
  // docs/states.md draws these.
  static constexpr Transition<State> kTransitions[] = {
      {State::kBegun, "placement", State::kPlaced}, {State::kBegun, "refusal", State::kEnded},
      {State::kBegun, "error", State::kEnded},      {State::kPlaced, "last reply", State::kEnded},
      {State::kPlaced, "error", State::kEnded},
  };
  static constexpr Transition<PartState> kPartTransitions[] = {
      {PartState::kWaiting, "credit", PartState::kInFlight},
      {PartState::kInFlight, "reply", PartState::kAnswered},
      {PartState::kInFlight, "ResumeAnswer", PartState::kWaiting},
      {PartState::kInFlight, "PartsMoved", PartState::kWaiting},
      {PartState::kInFlight, "ServerRejoined", PartState::kWaiting},
  };

  explicit Exchange(ExchangeRequest request);
  explicit Exchange(PartedExchangeRequest request);
  virtual ~Exchange() = default;

  // Makes it the exchange of this round; once, before anybody else knows of it.
  void Begin(uint64_t of_round, int64_t now_ns);

  State state() const {
    if (finished) return State::kEnded;
    return entry == nullptr ? State::kBegun : State::kPlaced;
  }
  PartState part_state(uint32_t part) const {
    if (part_done[part]) return PartState::kAnswered;
    return sent_on[part] < 0 ? PartState::kWaiting : PartState::kInFlight;
  }

  // "tensor "dense/kernel", round 7".
  std::string Name() const;

  // Fixes parts and owners; once.
  void Place(std::shared_ptr<const TableEntry> table_entry, const Moment& now);

  // Bytes that this worker sends for a part, perhaps compressed; those that it wants as the result.
  uint64_t PushBytes(uint32_t part, int32_t rank) const;
  uint64_t ReplyBytes(uint32_t part, int32_t rank) const;
  // Of the part's elements, and of its contribution or its sum as codecs encode them.
  uint64_t PartBytes(uint32_t part) const;
  const BlockCodec* PushCodec(uint32_t part) const;  // null: raw; perhaps narrow
  const BlockCodec* SumCodec(uint32_t part) const;
  uint64_t PartOffset(uint32_t part) const { return offsets[part]; }

  PartId IdOf(uint32_t part) const { return {entry->key, entry->variant, part}; }

  // Where they are; null if there are none.
  const uint8_t* PartInput(uint32_t part) const;
  uint8_t* PartOutput(uint32_t part) const;

  // What a contribution's random numbers depend on.
  PartSeed PushSeed(uint32_t part, int32_t rank) const;

  // Whether the engine is to make the payload of a part before it is sent: PreparePush of
  // worker/exchange_output.h.
  bool MustPrepare(uint32_t part) const;

  // The frame that carries a part to its server, from byte `offset` on. If MustPrepare, its
  // payload is still the whole part's elements.
  OutgoingFrame PushFrame(const std::shared_ptr<Exchange>& self, uint32_t part, int32_t rank,
                          uint32_t epoch, uint64_t offset = 0) const;

  // What `bytes` of a part's push are before compression.
  uint64_t UncompressedBytes(uint32_t part, uint64_t bytes) const;

  bool IsStore() const { return request.tensor.kind == ExchangeKind::kStore; }
  // The first round without a result, once that of this part is here; of a store the version of
  // that result.
  uint64_t NextRound(uint32_t part) const {
    return IsStore() ? store_answers[part].version : round + 1;
  }

  // Whether the result of a part is here and can be sent to others; after Place.
  bool HasResult(uint32_t part) const;

  // The frame that carries it to the server that the part has moved to (FrameHeader::IsResult). Of
  // a gather, whose output only ExchangeWithOutput knows, nothing but the header.
  virtual OutgoingFrame ResultFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                    int32_t rank, uint32_t epoch) const;

  // kStore: the frame that tells the part's new owner how far this worker is: it has the answer of
  // this round. It has no elements, and is otherwise a ResultFrame.
  OutgoingFrame ClockFrame(const std::shared_ptr<Exchange>& self, uint32_t part, int32_t rank,
                           uint32_t epoch, uint64_t answered_round) const;

  // Nobody writes to the output of the request any more, once it has returned.
  virtual void CloseOutput() {}

  // Whether a part is to be pushed by this worker.
  bool IsRequested(uint32_t part) const { return !by_parts || part_requests[part].done != nullptr; }

  // The frame that gives a part up, because the exchange has failed on this worker.
  OutgoingFrame WithdrawalFrame(const std::shared_ptr<Exchange>& self, uint32_t part, int32_t rank,
                                uint32_t epoch, const Status& reason) const;

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
  // Of an alltoall: the rows that this worker has for itself, which stay here. The request's splits
  // and `gather_rows` are without them.
  struct OwnRows {
    size_t place = 0;    // this worker's among those that take part
    int64_t rows = 0;    // their number
    uint64_t begin = 0;  // in the input, in bytes
    uint64_t bytes = 0;
  };
  OwnRows own_rows;                          // set before it begins
  std::vector<uint64_t> offsets;             // of the parts, in bytes
  std::shared_ptr<TensorFeedback> feedback;  // set where it is placed; null: the codec wants none

  // ---- state
  std::vector<PartRequest> part_requests;       // by_parts: what SendPart was given, by part
  std::vector<const BlockCodec*> narrow_parts;  // by part; null: as it is
  std::vector<PartPlacement> places;  // of the parts: `entry`'s, but for those that have moved
  std::vector<bool> part_done;
  // kStore: what the answer that is in the output says of the store, by part (base/
  // store_rounds.h).
  struct StoreAnswer {
    uint64_t version = 0, bits = 0;
  };
  std::vector<StoreAnswer> store_answers;
  std::vector<bool> sum_is_encoded;  // of a part that is done: in the output, see PartRequest
  std::vector<int32_t> sent_on;      // the path to its server, by part; -1: it has not been sent
  size_t parts_left = 0;
  bool finished = false;
  bool is_early = false;   // in kForwardOrder, and more exchanges of its step are to come
  uint64_t step = 0;       // see StepMeter::Begin
  bool has_moved = false;  // someone may still read the input: a server that lives, or PreparePush
  std::unique_ptr<ExchangeTrace> trace;  // null: nobody wants to know
};

}  // namespace byteps
