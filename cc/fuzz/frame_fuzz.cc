// The header of a frame.
#include <cstring>

#include "cc/fuzz/fuzz.h"
#include "cc/wire/frame.h"

namespace byteps {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const FrameType type : {FrameType::kPush, FrameType::kReply, FrameType::kCredit,
                               FrameType::kControl, FrameType::kRequested, FrameType::kMemoryRead,
                               FrameType::kPing, FrameType::kPong, FrameType::kMore}) {
    FrameHeader header;
    header.type = type;
    header.key = 0x1234567890abcdef;
    const bool is_data = type == FrameType::kPush || type == FrameType::kReply;
    if (is_data) header.codec = CodecId::kInt8;
    header.payload_bytes =
        is_data || type == FrameType::kControl || type == FrameType::kMore ? 64 : 0;
    uint8_t bytes[kFrameHeaderBytes];
    EncodeFrameHeader(header, bytes);
    seeds.push_back(FuzzText(bytes));
  }
  return seeds;
}

}  // namespace byteps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  if (size < kFrameHeaderBytes) return 0;
  FrameHeader header;
  if (!DecodeFrameHeader(data, &header).ok()) return 0;
  FuzzCheck(header.payload_bytes <= kMaxPayloadBytes, "a payload is bounded");
  FuzzCheck(header.type != FrameType::kControl || header.payload_bytes <= kMaxControlBytes,
            "a control message is bounded");
  FuzzCheck(header.codec == CodecId::kRaw ||
                ((header.type == FrameType::kPush || header.type == FrameType::kReply) &&
                 header.status == StatusCode::kOk),
            "only elements are compressed");
  FuzzCheck(header.type != FrameType::kMore || header.payload_bytes <= MostPieceBytes(header.place),
            "a piece is bounded");
  uint8_t again[kFrameHeaderBytes];
  EncodeFrameHeader(header, again);
  FrameHeader decoded;
  FuzzCheck(DecodeFrameHeader(again, &decoded).ok(), "what was decoded can be encoded");
  uint8_t twice[kFrameHeaderBytes];
  EncodeFrameHeader(decoded, twice);
  FuzzCheck(std::memcmp(again, twice, sizeof(twice)) == 0, "no field is lost");
  return 0;
}
