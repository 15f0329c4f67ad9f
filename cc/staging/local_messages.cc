#include "cc/staging/local_messages.h"

#include "cc/wire/bytes.h"

namespace byteps {
namespace {

constexpr size_t kMaxTextBytes = 16384;
constexpr size_t kMinEntryBytes = 1 + 8 + 8 + 4 + 1 + 4 + 4;
constexpr size_t kMinReportBytes = 1 + 4 + 8 + 8 + 4 + 4 + 8 + 8 + 1 + 1 + 4;

void PutStatus(ByteWriter& writer, const Status& status) {
  writer.Put(status.code());
  writer.PutString(status.message().substr(0, kMaxTextBytes));
}

Status GetStatus(ByteReader& reader) {
  const StatusCode code = reader.Get<StatusCode>();
  std::string text = reader.GetString(kMaxTextBytes);
  if (code > StatusCode::kInternal) reader.Fail();
  return code == StatusCode::kOk ? OkStatus() : Status(code, std::move(text));
}

struct Encoder {
  ByteWriter& writer;

  void operator()(const GroupInvitation& invitation) {
    for (const char byte : invitation.id.bytes) writer.Put(byte);
    writer.Put(invitation.results.process);
    writer.Put(invitation.results.descriptor);
  }
  void operator()(const std::vector<LaunchReport>& reports) {
    writer.Put(static_cast<uint32_t>(reports.size()));
    for (const LaunchReport& report : reports) Put(report);
  }
  void Put(const LaunchReport& report) {
    writer.Put(report.kind);
    writer.Put(report.local_rank);
    writer.Put(report.key);
    writer.Put(report.round);
    writer.Put(report.part);
    writer.Put(report.part_count);
    writer.Put(report.rows);
    writer.Put(report.agreement);
    writer.Put(static_cast<uint8_t>(report.takes_shared));
    PutStatus(writer, report.reason);
  }
  void operator()(const LogSlice& slice) {
    writer.Put(slice.first);
    writer.Put(static_cast<uint32_t>(slice.entries.size()));
    for (const LaunchEntry& entry : slice.entries) {
      writer.Put(entry.kind);
      writer.Put(entry.key);
      writer.Put(entry.round);
      writer.Put(entry.part);
      PutStatus(writer, entry.reason);
      writer.Put(static_cast<uint32_t>(entry.rows.size()));
      for (const int64_t rows : entry.rows) writer.Put(rows);
    }
  }
};

struct Decoder {
  ByteReader& reader;

  void operator()(GroupInvitation& invitation) {
    for (char& byte : invitation.id.bytes) byte = reader.Get<char>();
    invitation.results.process = reader.Get<int32_t>();
    invitation.results.descriptor = reader.Get<int32_t>();
  }
  void operator()(std::vector<LaunchReport>& reports) {
    reports.resize(reader.GetCount(kMinReportBytes));
    for (LaunchReport& report : reports) Get(report);
  }
  void Get(LaunchReport& report) {
    report.kind = reader.Get<LaunchReport::Kind>();
    report.local_rank = reader.Get<int32_t>();
    report.key = reader.Get<uint64_t>();
    report.round = reader.Get<uint64_t>();
    report.part = reader.Get<uint32_t>();
    report.part_count = reader.Get<uint32_t>();
    report.rows = reader.Get<int64_t>();
    report.agreement = reader.Get<uint64_t>();
    report.takes_shared = reader.Get<uint8_t>() != 0;
    report.reason = GetStatus(reader);
    if (report.kind > LaunchReport::Kind::kLeaving) reader.Fail();
  }
  void operator()(LogSlice& slice) {
    slice.first = reader.Get<uint64_t>();
    slice.entries.resize(reader.GetCount(kMinEntryBytes));
    for (LaunchEntry& entry : slice.entries) {
      entry.kind = reader.Get<LaunchEntry::Kind>();
      entry.key = reader.Get<uint64_t>();
      entry.round = reader.Get<uint64_t>();
      entry.part = reader.Get<uint32_t>();
      entry.reason = GetStatus(reader);
      entry.rows.resize(reader.GetCount(sizeof(int64_t)));
      for (int64_t& rows : entry.rows) rows = reader.Get<int64_t>();
      if (entry.kind > LaunchEntry::Kind::kReduceForAll) reader.Fail();
    }
  }
};

}  // namespace

std::string EncodeLocal(const LocalMessage& message) {
  ByteWriter writer;
  writer.Put(static_cast<uint8_t>(message.index()));
  std::visit(Encoder{writer}, message);
  return writer.Take();
}

Status DecodeLocal(const std::string& bytes, LocalMessage* message) {
  ByteReader reader(bytes.data(), bytes.size());
  const uint8_t index = reader.Get<uint8_t>();
  if (index == 0) message->emplace<GroupInvitation>();
  if (index == 1) message->emplace<std::vector<LaunchReport>>();
  if (index == 2) message->emplace<LogSlice>();
  if (index > 2) reader.Fail();
  std::visit(Decoder{reader}, *message);
  if (reader.ok() && reader.left() == 0) return OkStatus();
  return InvalidArgument("a malformed message between the workers of a host (type " +
                         std::to_string(index) + ", " + std::to_string(bytes.size()) + " bytes)");
}

}  // namespace byteps
