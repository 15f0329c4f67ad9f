#include "cc/wire/frame.h"

#include <gtest/gtest.h>

#include <array>

namespace byteps {
namespace {

using Bytes = std::array<uint8_t, kFrameHeaderBytes>;

FrameHeader EveryFieldDifferent() {
  FrameHeader header;
  header.type = FrameType::kReply;
  header.status = StatusCode::kUnavailable;
  header.epoch = 0x01020304;
  header.key = 0x1122334455667788;
  header.part = 5;
  header.variant = 6;
  header.round = uint64_t{7} << 33;
  header.placement_version = 8;
  header.worker = 9;
  header.priority = -10;
  header.element_count = 11;
  header.row_count = 18;
  header.place = PayloadLocation::kSenderMemory;
  header.payload_address = 19;
  header.payload_bytes = 12;
  header.payload_offset = 13;
  header.credit_bytes = 14;
  header.watermark = 15;
  header.begin_time_ns = 20;
  header.receive_time_ns = 16;
  header.send_time_ns = 17;
  return header;
}

Bytes Encode(const FrameHeader& header) {
  Bytes bytes;
  EncodeFrameHeader(header, bytes.data());
  return bytes;
}

// A frame carries all that protocol rule 2 asks for.
TEST(FrameTest, SurvivesARoundTrip) {
  const FrameHeader sent = EveryFieldDifferent();
  FrameHeader received;
  ASSERT_TRUE(DecodeFrameHeader(Encode(sent).data(), &received).ok());
  EXPECT_EQ(received.type, sent.type);
  EXPECT_EQ(received.codec, sent.codec);
  EXPECT_EQ(received.status, sent.status);
  EXPECT_EQ(received.epoch, sent.epoch);
  EXPECT_EQ(received.key, sent.key);
  EXPECT_EQ(received.part, sent.part);
  EXPECT_EQ(received.variant, sent.variant);
  EXPECT_EQ(received.round, sent.round);
  EXPECT_EQ(received.placement_version, sent.placement_version);
  EXPECT_EQ(received.worker, sent.worker);
  EXPECT_EQ(received.priority, sent.priority);
  EXPECT_EQ(received.element_count, sent.element_count);
  EXPECT_EQ(received.row_count, sent.row_count);
  EXPECT_EQ(received.place, sent.place);
  EXPECT_EQ(received.payload_address, sent.payload_address);
  EXPECT_EQ(received.payload_bytes, sent.payload_bytes);
  EXPECT_EQ(received.payload_offset, sent.payload_offset);
  EXPECT_EQ(received.credit_bytes, sent.credit_bytes);
  EXPECT_EQ(received.watermark, sent.watermark);
  EXPECT_EQ(received.begin_time_ns, sent.begin_time_ns);
  EXPECT_EQ(received.receive_time_ns, sent.receive_time_ns);
  EXPECT_EQ(received.send_time_ns, sent.send_time_ns);
}

TEST(FrameTest, RefusesForeignBytes) {
  const Bytes http = {'G', 'E', 'T', ' ', '/', ' '};
  FrameHeader header;
  EXPECT_EQ(DecodeFrameHeader(http.data(), &header).code(), StatusCode::kInvalidArgument);
}

TEST(FrameTest, RefusesUnknownTypeCodecStatusAndPlace) {
  for (const size_t offset : {4, 5, 6, 7}) {
    for (const uint8_t value : {0x7f, 0xff}) {
      Bytes bytes = Encode(EveryFieldDifferent());
      bytes[offset] = value;
      FrameHeader header;
      EXPECT_FALSE(DecodeFrameHeader(bytes.data(), &header).ok())
          << "offset " << offset << " value " << int{value};
    }
  }
  Bytes bytes = Encode(EveryFieldDifferent());
  bytes[4] = 0;
  FrameHeader header;
  EXPECT_FALSE(DecodeFrameHeader(bytes.data(), &header).ok());
}

TEST(FrameTest, OnlyDataLiesInTheSendersMemory) {
  for (const FrameType type :
       {FrameType::kCredit, FrameType::kControl, FrameType::kRequested, FrameType::kMemoryRead}) {
    FrameHeader header;
    header.type = type;
    FrameHeader decoded;
    EXPECT_TRUE(DecodeFrameHeader(Encode(header).data(), &decoded).ok());
    header.place = PayloadLocation::kSenderMemory;
    EXPECT_FALSE(DecodeFrameHeader(Encode(header).data(), &decoded).ok());
  }
  for (const FrameType type : {FrameType::kPush, FrameType::kReply, FrameType::kMore}) {
    FrameHeader header;
    header.type = type;
    header.place = PayloadLocation::kSenderMemory;
    FrameHeader decoded;
    EXPECT_TRUE(DecodeFrameHeader(Encode(header).data(), &decoded).ok());
  }
}

struct Limit {
  FrameType type;
  StatusCode status;
  uint64_t bytes;
  PayloadLocation place = PayloadLocation::kFollows;
};

TEST(FrameTest, RefusesPayloadsBeyondTheLimitOfTheirType) {
  for (const Limit& limit :
       {Limit{FrameType::kPush, StatusCode::kOk, kMaxPayloadBytes},
        Limit{FrameType::kReply, StatusCode::kOk, kMaxPayloadBytes},
        Limit{FrameType::kReply, StatusCode::kInternal, kMaxErrorTextBytes},
        Limit{FrameType::kControl, StatusCode::kOk, kMaxControlBytes},
        Limit{FrameType::kMore, StatusCode::kOk, kPieceBytes},
        Limit{FrameType::kMore, StatusCode::kOk, kMemoryPieceBytes, PayloadLocation::kSenderMemory},
        Limit{FrameType::kCredit, StatusCode::kOk, 0},
        Limit{FrameType::kRequested, StatusCode::kOk, 0}}) {
    FrameHeader header;
    header.type = limit.type;
    header.status = limit.status;
    header.place = limit.place;
    header.payload_bytes = limit.bytes;
    FrameHeader decoded;
    EXPECT_TRUE(DecodeFrameHeader(Encode(header).data(), &decoded).ok())
        << static_cast<int>(limit.type);
    header.payload_bytes = limit.bytes + 1;
    EXPECT_FALSE(DecodeFrameHeader(Encode(header).data(), &decoded).ok())
        << static_cast<int>(limit.type);
  }
}

}  // namespace
}  // namespace byteps
