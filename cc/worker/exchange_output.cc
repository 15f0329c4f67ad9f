#include "cc/worker/exchange_output.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "cc/base/coded_rows.h"
#include "cc/base/copy.h"
#include "cc/van/scattered_payload.h"
#include "cc/worker/tensor_feedback.h"

namespace byteps {
namespace {

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

// The rows are sent from where they are, but for those that stay here.
void PutSplitsInFront(const Exchange& exchange, OutgoingFrame* frame) {
  const ExchangeTerms& request = exchange.request;
  const Exchange::OwnRows& own = exchange.own_rows;
  const auto* const rows = static_cast<const uint8_t*>(frame->payload);
  const uint64_t rows_bytes = request.gather_rows * request.tensor.ByteCount();
  const ScatteredPayload::Piece pieces[] = {
      {reinterpret_cast<const uint8_t*>(request.splits.data()),
       request.splits.size() * sizeof(int64_t)},
      {rows, own.begin},
      {rows + own.begin + own.bytes, rows_bytes - own.begin},
  };
  const auto payload = std::make_shared<ScatteredPayload>();
  uint64_t skipped = frame->header.payload_offset;
  for (const ScatteredPayload::Piece& piece : pieces) {
    const uint64_t here = std::min(skipped, piece.bytes);
    payload->Add(piece.data + here, piece.bytes - here, frame->keep_alive);
    skipped -= here;
  }
  frame->payload = nullptr;
  frame->scattered = payload.get();
  frame->keep_alive = payload;
}

}  // namespace

void PreparePush(const Exchange& exchange, OutgoingFrame* frame) {
  if (!exchange.request.splits.empty()) return PutSplitsInFront(exchange, frame);
  const FrameHeader& header = frame->header;
  const BlockCodec& codec = *exchange.PushCodec(header.part);
  const PartSeed seed = exchange.PushSeed(header.part, header.worker);
  const auto* const values = static_cast<const float*>(frame->payload);
  std::shared_ptr<const uint8_t[]> encoded =
      exchange.feedback != nullptr
          ? exchange.feedback->part(header.part).Encode(codec, values, header.element_count, seed)
          : EncodeAlone(codec, values, header.element_count, seed);
  frame->payload = encoded.get() + header.payload_offset;
  frame->keep_alive = std::move(encoded);
}

OutgoingFrame ExchangeWithOutput::ResultFrame(const std::shared_ptr<Exchange>& self, uint32_t part,
                                              int32_t rank, uint32_t epoch) const {
  OutgoingFrame frame = Exchange::ResultFrame(self, part, rank, epoch);
  const bool is_row_sum = request.tensor.kind == ExchangeKind::kRowSum;
  if (request.tensor.kind != ExchangeKind::kGather && !is_row_sum) return frame;
  // As the server would send it.
  FrameHeader& header = frame.header;
  std::lock_guard<std::shared_mutex> lock(output_mutex_);
  header.row_count = 0;
  if (is_row_sum) {
    header.element_count = rows_[0] * request.tensor.ElementCount();
    header.payload_bytes = rows_[1];
    frame.payload = allocated_;
    return frame;
  }
  const uint64_t rows = std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
  auto payload = std::make_shared<std::string>(reinterpret_cast<const char*>(rows_.data()),
                                               rows_.size() * sizeof(int64_t));
  payload->append(static_cast<const char*>(allocated_), rows * request.tensor.ByteCount());
  header.element_count = rows * request.tensor.ElementCount();
  header.payload_bytes = payload->size();
  frame.payload = payload->data();
  frame.keep_alive = std::move(payload);
  return frame;
}

void ExchangeWithOutput::KeepOwnRows(size_t place) {
  const uint64_t row_bytes = request.tensor.ByteCount();
  const auto own = request.splits.begin() + static_cast<int64_t>(place);
  const int64_t rows_before = std::accumulate(request.splits.begin(), own, int64_t{0});
  own_rows = {place, *own, rows_before * row_bytes, *own * row_bytes};
  request.gather_rows -= *own;
  *own = 0;
}

Status ExchangeWithOutput::AllocateOutput(const std::vector<int64_t>& rows, uint8_t** output,
                                          uint64_t own_begin) {
  *output = nullptr;
  std::lock_guard<std::shared_mutex> lock(output_mutex_);
  if (output_closed_) return OkStatus();
  if (allocated_ == nullptr) {
    allocated_ = memory.allocate_output(rows);
    rows_ = rows;
    // The input is the caller's until `done`, which is called after CloseOutput.
    if (allocated_ != nullptr && own_rows.bytes > 0) {
      std::memcpy(static_cast<uint8_t*>(allocated_) + own_begin,
                  static_cast<const uint8_t*>(memory.input) + own_rows.begin, own_rows.bytes);
    }
  }
  if (allocated_ == nullptr) return ResourceExhausted(Name() + ": no memory for its result");
  if (rows != rows_)
    return Internal(Name() + ": its result came again, with another number of rows");
  *output = static_cast<uint8_t*>(allocated_);
  return OkStatus();
}

void ExchangeWithOutput::CloseOutput() {
  std::lock_guard<std::shared_mutex> lock(output_mutex_);
  output_closed_ = true;
}

std::shared_lock<std::shared_mutex> ExchangeWithOutput::OpenOutput() {
  std::shared_lock<std::shared_mutex> lock(output_mutex_);
  if (output_closed_) lock = {};
  return lock;
}

RegionSink::RegionSink(std::shared_ptr<ExchangeWithOutput> exchange, uint32_t part)
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

Status DecodingSink::New(const std::shared_ptr<ExchangeWithOutput>& exchange,
                         const FrameHeader& header, std::shared_ptr<PayloadSink>* sink) {
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

Status RowSumSink::New(const std::shared_ptr<ExchangeWithOutput>& exchange,
                       const FrameHeader& header, std::shared_ptr<PayloadSink>* sink) {
  const TensorDescription& tensor = exchange->request.tensor;
  const uint64_t width = tensor.ElementCount();
  const uint64_t rows = width == 0 ? 0 : header.element_count / width;
  if (header.element_count != rows * width ||
      !CanBeCodedRows(header.payload_bytes, rows, tensor.ByteCount())) {
    return Internal("sent " + std::to_string(header.payload_bytes) + " bytes for " +
                    std::to_string(header.element_count) + " elements, which are no rows of " +
                    tensor.ToString());
  }
  const std::shared_ptr<RowSumSink> made(new RowSumSink(exchange));
  made->status_ = exchange->AllocateOutput(
      {static_cast<int64_t>(rows), static_cast<int64_t>(header.payload_bytes)}, &made->next_);
  *sink = made;
  return OkStatus();
}

PayloadSink::Span RowSumSink::Prepare(uint64_t remaining) {
  if (next_ != nullptr) return {next_, static_cast<size_t>(remaining)};
  discard_.resize(std::min<uint64_t>(remaining, kDiscardedAtOnce));
  return {discard_.data(), discard_.size()};
}

void RowSumSink::Commit(size_t bytes) {
  if (next_ != nullptr) next_ += bytes;
}

RowsSink::RowsSink(std::shared_ptr<ExchangeWithOutput> exchange, int32_t num_workers,
                   uint64_t payload_bytes)
    : exchange_(std::move(exchange)), payload_bytes_(payload_bytes), rows_(num_workers) {}

PayloadSink::Span RowsSink::Prepare(uint64_t remaining) {
  const uint64_t head_bytes = rows_.size() * sizeof(int64_t);
  if (received_ < head_bytes) {
    return {reinterpret_cast<uint8_t*>(rows_.data()) + received_,
            static_cast<size_t>(std::min(remaining, head_bytes - received_))};
  }
  if (output_ != nullptr) {
    const uint64_t place = received_ - head_bytes;
    const uint64_t own_bytes = exchange_->own_rows.bytes;
    if (own_bytes > 0 && place < own_begin_)
      return {output_ + place, static_cast<size_t>(std::min(remaining, own_begin_ - place))};
    return {output_ + place + own_bytes, static_cast<size_t>(remaining)};
  }
  discard_.resize(std::min<uint64_t>(remaining, kDiscardedAtOnce));
  return {discard_.data(), discard_.size()};
}

void RowsSink::Commit(size_t bytes) {
  const uint64_t head_bytes = rows_.size() * sizeof(int64_t);
  const bool head_was_missing = received_ < head_bytes;
  received_ += bytes;
  if (head_was_missing && received_ == head_bytes) Allocate();
}

void RowsSink::Allocate() {
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
  status_ = AddOwnRows();
  if (status_.ok()) status_ = exchange_->AllocateOutput(rows_, &output_, own_begin_);
}

Status RowsSink::AddOwnRows() {
  if (exchange_->request.tensor.kind != ExchangeKind::kAllToAll) return OkStatus();
  const Exchange::OwnRows& own = exchange_->own_rows;
  const auto count = rows_.begin() + static_cast<int64_t>(own.place);
  if (*count != 0) {
    return Internal(exchange_->Name() + ": the server sent " + std::to_string(*count) +
                    " rows of this worker's own, which have not been sent to it");
  }
  *count = own.rows;
  own_begin_ =
      std::accumulate(rows_.begin(), count, int64_t{0}) * exchange_->request.tensor.ByteCount();
  return OkStatus();
}

}  // namespace byteps
