#include "cc/worker/exchange.h"

#include <algorithm>
#include <numeric>

#include "cc/base/copy.h"

namespace byteps {
namespace {

// Of the text that says why an exchange was given up.
constexpr size_t kMostReasonBytes = 4096;

// Compressed bytes that are received before they are decoded: they stay in a core's cache.
constexpr size_t kDecodedAtOnce = 64 * 1024;
constexpr size_t kDiscardedAtOnce = 64 * 1024;

std::shared_ptr<const uint8_t[]> EncodeAlone(const BlockCodec& codec, const float* values,
                                             uint64_t elements, const PartSeed& seed) {
  // Uninitialized.
  std::shared_ptr<uint8_t[]> encoded(new uint8_t[codec.EncodedBytes(elements)]);
  codec.Encode(values, elements, seed, encoded.get());
  return encoded;
}

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

void Exchange::Place(std::shared_ptr<const TableEntry> table_entry) {
  entry = std::move(table_entry);
  forms = &FormsOf(entry->tensor);
  uint64_t offset = 0;
  for (uint32_t part = 0; part < entry->parts.size(); ++part) {
    offsets.push_back(offset);
    offset += PartBytes(part);
  }
  places = entry->parts;
  narrow_parts.assign(entry->parts.size(), nullptr);
  part_done.assign(entry->parts.size(), false);
  sum_is_encoded.assign(entry->parts.size(), false);
  sent_on.assign(entry->parts.size(), -1);
  if (by_parts) part_requests.resize(entry->parts.size());
  parts_left = entry->parts.size();
  if (trace != nullptr) trace->OnPlaced(*entry);
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
  if (const BlockCodec* const codec = PushCodec(part))
    return codec->EncodedBytes(entry->parts[part].element_count);
  if (by_parts) return part_requests[part].input != nullptr ? PartBytes(part) : 0;
  switch (request.tensor.kind) {
    case ExchangeKind::kBroadcast:
      return rank == request.tensor.root_rank ? PartBytes(part) : 0;
    case ExchangeKind::kGather:
      return request.gather_rows * request.tensor.ByteCount();
    default:
      return PartBytes(part);
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

bool Exchange::MustEncode(uint32_t part) const {
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
  frame.header.element_count = request.tensor.kind == ExchangeKind::kGather
                                   ? request.gather_rows * request.tensor.ElementCount()
                                   : entry->parts[part].element_count;
  frame.header.row_count = request.gather_rows;
  frame.payload = PartInput(part);
  frame.keep_alive = self;
  frame.owner = this;
  if (const BlockCodec* const codec = PushCodec(part)) frame.header.codec = codec->id();
  if (!MustEncode(part)) frame.payload = PartInput(part) + offset;
  return frame;
}

void Exchange::EncodePush(OutgoingFrame* frame) const {
  const FrameHeader& header = frame->header;
  const BlockCodec& codec = *PushCodec(header.part);
  const PartSeed seed = PushSeed(header.part, header.worker);
  const auto* const values = static_cast<const float*>(frame->payload);
  std::shared_ptr<const uint8_t[]> encoded =
      feedback != nullptr
          ? feedback->part(header.part).Encode(codec, values, header.element_count, seed)
          : EncodeAlone(codec, values, header.element_count, seed);
  frame->payload = encoded.get() + header.payload_offset;
  frame->keep_alive = std::move(encoded);
}

bool Exchange::HasResult(uint32_t part) const {
  return part < part_done.size() && part_done[part] && !memory.output_changes;
}

OutgoingFrame Exchange::ResultFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                    int32_t rank, uint32_t epoch) const {
  OutgoingFrame frame = PushFrame(self, part, rank, epoch);
  FrameHeader& header = frame.header;
  frame.owner = nullptr;         // the others wait for it, however this exchange ended
  header.codec = CodecId::kRaw;  // what was decoded here
  header.watermark = round + 1;
  if (request.tensor.kind != ExchangeKind::kGather) {
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
  // As the server would send it.
  std::lock_guard<std::shared_mutex> lock(output_mutex_);
  const uint64_t rows = std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
  auto payload = std::make_shared<std::string>(reinterpret_cast<const char*>(rows_.data()),
                                               rows_.size() * sizeof(int64_t));
  payload->append(static_cast<const char*>(allocated_), rows * request.tensor.ByteCount());
  header.row_count = 0;
  header.element_count = rows * request.tensor.ElementCount();
  header.payload_bytes = payload->size();
  frame.payload = payload->data();
  frame.keep_alive = std::move(payload);
  return frame;
}

OutgoingFrame Exchange::WithdrawalFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                        int32_t rank, uint32_t epoch, const Status& reason) const {
  OutgoingFrame frame = PushFrame(self, part, rank, epoch);
  auto text = std::make_shared<const std::string>(reason.message().substr(0, kMostReasonBytes));
  frame.header.codec = CodecId::kRaw;
  frame.header.status = reason.code();
  frame.header.payload_bytes = text->size();
  frame.payload = text->data();
  frame.keep_alive = std::move(text);
  frame.owner = nullptr;
  return frame;
}

void* Exchange::AllocateOutput(const std::vector<int64_t>& rows) {
  std::lock_guard<std::shared_mutex> lock(output_mutex_);
  if (output_closed_) return nullptr;
  if (allocated_ == nullptr) {
    allocated_ = memory.allocate_output(rows);
    rows_ = rows;
  }
  return allocated_;
}

void Exchange::CloseOutput() {
  std::lock_guard<std::shared_mutex> lock(output_mutex_);
  output_closed_ = true;
}

std::shared_lock<std::shared_mutex> Exchange::OpenOutput() {
  std::shared_lock<std::shared_mutex> lock(output_mutex_);
  if (output_closed_) lock = {};
  return lock;
}

RegionSink::RegionSink(std::shared_ptr<Exchange> exchange, uint32_t part)
    : exchange_(std::move(exchange)), next_(exchange_->PartOutput(part)) {}

PayloadSink::Span RegionSink::Prepare(uint64_t remaining) {
  open_ = exchange_->OpenOutput();
  if (open_.owns_lock()) return {next_, static_cast<size_t>(remaining)};
  discard_.resize(std::min<uint64_t>(remaining, kDiscardedAtOnce));
  return {discard_.data(), discard_.size()};
}

void RegionSink::Commit(size_t bytes) {
  open_ = {};
  next_ += bytes;
}

size_t RegionSink::Take(const void* data, size_t bytes, uint64_t) {
  const std::shared_lock<std::shared_mutex> open = exchange_->OpenOutput();
  if (open.owns_lock()) CopyPastCache(next_, data, bytes);
  next_ += bytes;
  return bytes;
}

Status DecodingSink::New(const std::shared_ptr<Exchange>& exchange, const FrameHeader& header,
                         std::shared_ptr<PayloadSink>* sink) {
  const uint32_t part = header.part;
  const uint64_t elements = exchange->entry->parts[part].element_count;
  const BlockCodec* const codec = exchange->SumCodec(part);
  if (codec == nullptr || header.element_count != elements) {
    return InvalidArgument(
        "received " + std::to_string(header.element_count) + " elements in codec number " +
        std::to_string(static_cast<int>(header.codec)) + " of " + std::to_string(elements) +
        " elements of " + exchange->request.tensor.ToString());
  }
  std::shared_ptr<DecodingSink> made(new DecodingSink(exchange));
  BYTEPS_RETURN_IF_ERROR(
      codec->Receive({header.codec, elements, header.payload_bytes}, DecodeMode::kStore,
                     reinterpret_cast<float*>(exchange->PartOutput(part)), &made->receiver_));
  *sink = std::move(made);
  if (exchange->by_parts && exchange->part_requests[part].takes_encoded)
    *sink = std::make_shared<RegionSink>(exchange, part);
  return OkStatus();
}

PayloadSink::Span DecodingSink::Prepare(uint64_t remaining) {
  if (received_.empty()) received_.resize(std::min<uint64_t>(remaining, kDecodedAtOnce));
  return {received_.data(), static_cast<size_t>(std::min<uint64_t>(remaining, received_.size()))};
}

void DecodingSink::Commit(size_t bytes) { Decode(received_.data(), bytes); }

size_t DecodingSink::Take(const void* data, size_t bytes, uint64_t) {
  Decode(static_cast<const uint8_t*>(data), bytes);
  return 0;
}

// The receiver refuses only more bytes than the header has announced, which do not come: sums have
// codecs that decode any bytes.
void DecodingSink::Decode(const uint8_t* data, size_t bytes) {
  const std::shared_lock<std::shared_mutex> open = exchange_->OpenOutput();
  if (open.owns_lock()) (void)receiver_->Take(data, bytes);
}

GatherSink::GatherSink(std::shared_ptr<Exchange> exchange, int32_t num_workers,
                       uint64_t payload_bytes)
    : exchange_(std::move(exchange)), payload_bytes_(payload_bytes), rows_(num_workers) {}

PayloadSink::Span GatherSink::Prepare(uint64_t remaining) {
  const uint64_t head_bytes = rows_.size() * sizeof(int64_t);
  if (received_ < head_bytes) {
    return {reinterpret_cast<uint8_t*>(rows_.data()) + received_,
            static_cast<size_t>(std::min(remaining, head_bytes - received_))};
  }
  if (output_ != nullptr)
    return {output_ + (received_ - head_bytes), static_cast<size_t>(remaining)};
  discard_.resize(std::min<uint64_t>(remaining, kDiscardedAtOnce));
  return {discard_.data(), discard_.size()};
}

void GatherSink::Commit(size_t bytes) {
  const uint64_t head_bytes = rows_.size() * sizeof(int64_t);
  const bool head_was_missing = received_ < head_bytes;
  received_ += bytes;
  if (head_was_missing && received_ == head_bytes) Allocate();
}

void GatherSink::Allocate() {
  const uint64_t head_bytes = rows_.size() * sizeof(int64_t);
  const uint64_t row_bytes = exchange_->request.tensor.ByteCount();
  const uint64_t left = payload_bytes_ - head_bytes;
  uint64_t total_rows = 0;
  for (const int64_t rows : rows_) {
    // Also keeps the sum from overflowing: no single count may exceed what the payload can hold.
    if (rows < 0 || (row_bytes > 0 && static_cast<uint64_t>(rows) > left / row_bytes)) {
      status_ = Internal(exchange_->Name() + ": the server's row counts do not fit its reply");
      return;
    }
    total_rows += rows;
  }
  if (total_rows * row_bytes != left) {
    status_ = Internal(exchange_->Name() + ": the server sent " + std::to_string(left) +
                       " bytes for " + std::to_string(total_rows) + " rows");
    return;
  }
  output_ = static_cast<uint8_t*>(exchange_->AllocateOutput(rows_));
  if (output_ == nullptr) {
    status_ = ResourceExhausted(exchange_->Name() + ": no memory for a gathered result of " +
                                std::to_string(total_rows) + " rows");
  }
}

}  // namespace byteps
