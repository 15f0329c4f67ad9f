#include "cc/worker/state/exchange.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace byteps {
namespace {

// Of the text that says why an exchange was given up.
constexpr size_t kMostReasonBytes = 4096;

}  // namespace

Exchange::Exchange(ExchangeRequest whole)
    : request(std::move(static_cast<ExchangeTerms&>(whole))),
      by_parts(false),
      memory(std::move(static_cast<ExchangeMemory&>(whole))) {}

Exchange::Exchange(PartedExchangeRequest parted)
    : request(std::move(static_cast<ExchangeTerms&>(parted))),
      by_parts(true),
      placed(std::move(parted.placed)),
      is_awaited_elsewhere(parted.is_awaited_elsewhere) {}

void Exchange::Begin(uint64_t of_round, int64_t now_ns) {
  round = of_round;
  enqueued_ns = now_ns;
}

std::string Exchange::Name() const {
  return "tensor \"" + request.tensor.name + "\", round " + std::to_string(round);
}

void Exchange::Place(std::shared_ptr<const TableEntry> table_entry, const Moment& now) {
  entry = std::move(table_entry);
  forms = &FormsOf(entry->tensor);
  uint64_t offset = 0;
  for (uint32_t part = 0; part < entry->parts.size(); ++part) {
    offsets.push_back(offset);
    offset += PartBytes(part);
  }
  places = entry->parts;
  narrow_parts.assign(entry->parts.size(), nullptr);
  if (IsStore()) store_answers.resize(entry->parts.size());
  part_done.assign(entry->parts.size(), false);
  sum_is_encoded.assign(entry->parts.size(), false);
  sent_on.assign(entry->parts.size(), -1);
  if (by_parts) part_requests.resize(entry->parts.size());
  parts_left = entry->parts.size();
  if (trace != nullptr) trace->OnPlaced(*entry, now.wall_ns);
}

uint64_t Exchange::PartBytes(uint32_t part) const {
  return entry->parts[part].element_count * DTypeSize(request.tensor.dtype);
}

const BlockCodec* Exchange::PushCodec(uint32_t part) const {
  const BlockCodec* const codec = forms->push(entry->parts[part].element_count);
  return codec != nullptr ? codec : narrow_parts[part];
}

const BlockCodec* Exchange::SumCodec(uint32_t part) const {
  return forms->sum(entry->parts[part].element_count);
}

uint64_t Exchange::PushBytes(uint32_t part, int32_t rank) const {
  if (!request.contributes) return 0;
  if (const BlockCodec* const codec = PushCodec(part))
    return codec->EncodedBytes(entry->parts[part].element_count);
  if (by_parts) return part_requests[part].input != nullptr ? PartBytes(part) : 0;
  switch (request.tensor.kind) {
    case ExchangeKind::kBroadcast: return rank == request.tensor.root_rank ? PartBytes(part) : 0;
    case ExchangeKind::kGather:
    case ExchangeKind::kAllToAll:
    case ExchangeKind::kTable:
      return request.splits.size() * sizeof(int64_t) +
             request.gather_rows * request.tensor.ByteCount();
    case ExchangeKind::kRowSum: return request.coded_bytes;
    default: return PartBytes(part);
  }
}

uint64_t Exchange::UncompressedBytes(uint32_t part, uint64_t bytes) const {
  const BlockCodec* const codec = PushCodec(part);
  if (codec == nullptr || bytes == 0) return bytes;
  return PartBytes(part) * bytes / codec->EncodedBytes(entry->parts[part].element_count);
}

uint64_t Exchange::ReplyBytes(uint32_t part, int32_t rank) const {
  if (by_parts) return part_requests[part].output != nullptr ? PartBytes(part) : 0;
  const bool has_it =
      request.tensor.kind == ExchangeKind::kBroadcast && rank == request.tensor.root_rank;
  return has_it ? 0 : PartBytes(part);
}

const uint8_t* Exchange::PartInput(uint32_t part) const {
  if (by_parts) return static_cast<const uint8_t*>(part_requests[part].input);
  return static_cast<const uint8_t*>(memory.input) + offsets[part];
}

uint8_t* Exchange::PartOutput(uint32_t part) const {
  if (by_parts) return static_cast<uint8_t*>(part_requests[part].output);
  return static_cast<uint8_t*>(memory.output) + offsets[part];
}

PartSeed Exchange::PushSeed(uint32_t part, int32_t rank) const {
  PartSeed seed;
  seed.key = entry->key;
  seed.part = part;
  seed.round = round;
  seed.sender = static_cast<uint64_t>(rank);
  return seed;
}

bool Exchange::MustPrepare(uint32_t part) const {
  if (!request.contributes) return false;
  if (!request.splits.empty()) return true;
  return PushCodec(part) != nullptr && !(by_parts && part_requests[part].input_is_encoded);
}

OutgoingFrame Exchange::PushFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                  int32_t rank, uint32_t epoch, uint64_t offset) const {
  OutgoingFrame frame;
  frame.header.type = FrameType::kPush;
  frame.header.epoch = epoch;
  frame.header.key = entry->key;
  frame.header.part = part;
  frame.header.variant = entry->variant;
  frame.header.round = round;
  frame.header.placement_version = places[part].version;
  frame.header.worker = rank;
  frame.header.priority = request.priority;
  frame.header.payload_bytes = PushBytes(part, rank) - offset;
  frame.header.payload_offset = offset;
  frame.header.element_count = request.tensor.HasOwnRows()
                                   ? request.gather_rows * request.tensor.ElementCount()
                                   : entry->parts[part].element_count;
  frame.header.row_count = request.gather_rows;
  frame.payload = PartInput(part);
  frame.keep_alive = self;
  frame.owner = this;
  const BlockCodec* const codec = PushCodec(part);
  if (codec != nullptr && request.contributes) frame.header.codec = codec->id();
  if (!MustPrepare(part)) frame.payload = PartInput(part) + offset;
  return frame;
}

bool Exchange::HasResult(uint32_t part) const {
  // Of an alltoall nobody has what another worker gets, and a table's answers are each worker's
  // own.
  return part < part_done.size() && part_done[part] && !memory.output_changes &&
         request.tensor.kind != ExchangeKind::kAllToAll &&
         request.tensor.kind != ExchangeKind::kTable;
}

OutgoingFrame Exchange::ResultFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                    int32_t rank, uint32_t epoch) const {
  OutgoingFrame frame = PushFrame(self, part, rank, epoch);
  FrameHeader& header = frame.header;
  frame.owner = nullptr;         // the others wait for it, however this exchange ended
  header.codec = CodecId::kRaw;  // what was decoded here
  header.round = NextRound(part) - 1;
  header.watermark = NextRound(part);
  if (IsStore()) header.row_count = store_answers[part].bits;
  header.payload_bytes = PartBytes(part);
  const bool is_input = by_parts && part_requests[part].output == nullptr;  // of a root's host
  frame.payload = is_input ? PartInput(part) : PartOutput(part);
  if (sum_is_encoded[part]) {
    const uint64_t elements = entry->parts[part].element_count;
    std::shared_ptr<float[]> decoded(new float[elements]);
    SumCodec(part)->DecodeBlocks(PartOutput(part), elements, DecodeMode::kStore, decoded.get());
    frame.payload = decoded.get();
    frame.keep_alive = std::move(decoded);
  }
  return frame;
}

OutgoingFrame Exchange::ClockFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                   int32_t rank, uint32_t epoch, uint64_t answered_round) const {
  OutgoingFrame frame = PushFrame(self, part, rank, epoch);
  frame.header.round = answered_round;
  frame.header.watermark = answered_round + 1;
  frame.header.element_count = frame.header.payload_bytes = 0;
  frame.payload = nullptr;
  frame.owner = nullptr;
  return frame;
}

OutgoingFrame Exchange::WithdrawalFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                        int32_t rank, uint32_t epoch, const Status& reason) const {
  OutgoingFrame frame = PushFrame(self, part, rank, epoch);
  auto text = std::make_shared<const std::string>(reason.message().substr(0, kMostReasonBytes));
  frame.header.codec = CodecId::kRaw;
  frame.header.status = reason.code();
  // The push of the next round would end this one, too, but without the reason.
  frame.header.priority = std::numeric_limits<int32_t>::max();
  frame.header.payload_bytes = text->size();
  frame.payload = text->data();
  frame.keep_alive = std::move(text);
  frame.owner = nullptr;
  return frame;
}

}  // namespace byteps
