#include "cc/wire/frame.h"

#include <cstring>

#include "cc/wire/bytes.h"

namespace byteps {
namespace {

// Walks a header's fields in wire order, once for both directions, so that they cannot differ.
class FieldWriter {
 public:
  explicit FieldWriter(uint8_t* out) : next_(out) {}
  template <typename T>
  void Field(const T& value) {
    std::memcpy(next_, &value, sizeof(T));
    next_ += sizeof(T);
  }
  size_t Distance(const uint8_t* start) const { return next_ - start; }

 private:
  uint8_t* next_;
};

class FieldReader {
 public:
  explicit FieldReader(const uint8_t* in) : next_(in) {}
  template <typename T>
  void Field(T& value) {
    std::memcpy(&value, next_, sizeof(T));
    next_ += sizeof(T);
  }
  size_t Distance(const uint8_t* start) const { return next_ - start; }

 private:
  const uint8_t* next_;
};

template <typename Walker, typename Header>
void WalkFields(Walker& walker, Header& header) {
  walker.Field(header.type);
  walker.Field(header.codec);
  walker.Field(header.status);
  walker.Field(header.place);
  walker.Field(header.epoch);
  walker.Field(header.key);
  walker.Field(header.part);
  walker.Field(header.variant);
  walker.Field(header.round);
  walker.Field(header.placement_version);
  walker.Field(header.worker);
  walker.Field(header.priority);
  walker.Field(header.element_count);
  walker.Field(header.row_count);
  walker.Field(header.payload_bytes);
  walker.Field(header.payload_offset);
  walker.Field(header.payload_address);
  walker.Field(header.credit_bytes);
  walker.Field(header.watermark);
  walker.Field(header.begin_time_ns);
  walker.Field(header.receive_time_ns);
  walker.Field(header.send_time_ns);
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, uint8_t out[kFrameHeaderBytes]) {
  std::memset(out, 0, kFrameHeaderBytes);
  FieldWriter writer(out);
  writer.Field(kFrameMagic);
  WalkFields(writer, header);
}

Status DecodeFrameHeader(const uint8_t in[kFrameHeaderBytes], FrameHeader* header) {
  FieldReader reader(in);
  uint32_t magic = 0;
  reader.Field(magic);
  if (magic != kFrameMagic) return InvalidArgument("received bytes that are no tf_byteps frame");
  WalkFields(reader, *header);
  const auto number = [](auto value) { return std::to_string(static_cast<uint64_t>(value)); };
  if (header->type < FrameType::kPush || header->type > FrameType::kMore) {
    return InvalidArgument("received a frame of unknown type " + number(header->type));
  }
  if (header->codec > kLastCodecId) {
    return InvalidArgument("received a frame with unknown codec " + number(header->codec));
  }
  if (header->status > StatusCode::kInternal) {
    return InvalidArgument("received a frame with unknown status " + number(header->status));
  }
  if (header->place > PayloadLocation::kSenderMemory) {
    return InvalidArgument("received a frame with its payload at unknown place " +
                           number(header->place));
  }
  const bool has_data = header->type == FrameType::kPush || header->type == FrameType::kReply;
  if (header->place == PayloadLocation::kSenderMemory && !has_data &&
      header->type != FrameType::kMore) {
    return InvalidArgument("received a frame of type " + number(header->type) +
                           " with its payload in the sender's memory");
  }
  const bool is_error_text = has_data && header->status != StatusCode::kOk;
  if (header->codec != CodecId::kRaw && (!has_data || is_error_text)) {
    return InvalidArgument("received a frame of type " + number(header->type) +
                           " that has no elements, with codec " + number(header->codec));
  }
  const uint64_t limit = header->type == FrameType::kControl ? kMaxControlBytes
                         : header->type == FrameType::kMore  ? MostPieceBytes(header->place)
                         : !has_data                         ? 0
                         : is_error_text                     ? kMaxErrorTextBytes
                                                             : kMaxPayloadBytes;
  if (header->payload_bytes > limit) {
    return InvalidArgument("received a frame of type " + number(header->type) + " that announces " +
                           number(header->payload_bytes) + " bytes; at most " + number(limit) +
                           " are allowed");
  }
  return OkStatus();
}

}  // namespace byteps
