#include "cc/wire/control.h"

#include "cc/wire/bytes.h"

namespace byteps {
namespace {

// One byte in front of every message; the index in ControlMessage, which is append only.
constexpr size_t kMaxTextBytes = 16384;

constexpr size_t kPartBytes = 8 + 4 + 4;

void Put(ByteWriter& writer, const TensorDescription& tensor) {
  writer.PutString(tensor.name);
  writer.Put(tensor.dtype);
  writer.Put(tensor.kind);
  writer.Put(static_cast<uint8_t>(tensor.average));
  writer.Put(tensor.root_rank);
  writer.Put(static_cast<uint8_t>(tensor.per_host));
  writer.Put(tensor.backup_workers);
  writer.Put(tensor.staleness);
  writer.PutString(tensor.codec);
  writer.Put(static_cast<uint32_t>(tensor.shape.size()));
  for (const int64_t dimension : tensor.shape) writer.Put(dimension);
}

TensorDescription GetTensor(ByteReader& reader) {
  TensorDescription tensor;
  tensor.name = reader.GetString(kMaxNameBytes);
  tensor.dtype = reader.Get<DType>();
  tensor.kind = reader.Get<ExchangeKind>();
  tensor.average = reader.Get<uint8_t>() != 0;
  tensor.root_rank = reader.Get<int32_t>();
  tensor.per_host = reader.Get<uint8_t>() != 0;
  tensor.backup_workers = reader.Get<int32_t>();
  tensor.staleness = reader.Get<int32_t>();
  tensor.codec = reader.GetString(kMaxCodecBytes);
  tensor.shape.resize(reader.GetCount(sizeof(int64_t)));
  for (int64_t& dimension : tensor.shape) dimension = reader.Get<int64_t>();
  if (tensor.dtype > DType::kInt64 || tensor.kind > ExchangeKind::kStore) reader.Fail();
  return tensor;
}

void Put(ByteWriter& writer, const TableEntry& entry) {
  Put(writer, entry.tensor);
  writer.Put(entry.key);
  writer.Put(entry.variant);
  writer.Put(static_cast<uint32_t>(entry.parts.size()));
  for (const PartPlacement& part : entry.parts) {
    writer.Put(part.element_count);
    writer.Put(part.server);
    writer.Put(part.version);
  }
}

TableEntry GetEntry(ByteReader& reader) {
  TableEntry entry;
  entry.tensor = GetTensor(reader);
  entry.key = reader.Get<uint64_t>();
  entry.variant = reader.Get<uint32_t>();
  entry.parts.resize(reader.GetCount(kPartBytes));
  for (PartPlacement& part : entry.parts) {
    part.element_count = reader.Get<uint64_t>();
    part.server = reader.Get<int32_t>();
    part.version = reader.Get<uint32_t>();
  }
  return entry;
}

void Put(ByteWriter& writer, const Status& status) {
  writer.Put(status.code());
  writer.PutString(status.message().substr(0, kMaxTextBytes));
}

Status GetStatus(ByteReader& reader) {
  const StatusCode code = reader.Get<StatusCode>();
  std::string message = reader.GetString(kMaxTextBytes);
  if (code > StatusCode::kInternal) reader.Fail();
  return code == StatusCode::kOk ? OkStatus() : Status(code, std::move(message));
}

// The smallest encodings, for checking counts.
constexpr size_t kMinTensorBytes = 4 + 1 + 1 + 1 + 4 + 1 + 4 + 4 + 4;
constexpr size_t kMinEntryBytes = kMinTensorBytes + 8 + 4 + 4;
constexpr size_t kMinResultBytes = 1 + 4;
constexpr size_t kHeldTensorBytes = 8 + 8;
constexpr size_t kResumedPushBytes = 8 + 4 + 8;
constexpr size_t kHeldPartBytes = 8 + 4 + 8 + 1;
constexpr size_t kMovedPartBytes = 8 + 4 + 8 + 4;
constexpr size_t kReturnedPartBytes = 8 + 4 + 4;
constexpr size_t kMinCutBytes = kMinEntryBytes + 8;
constexpr size_t kLagBytes = 4 + 5 * 8;
constexpr size_t kMinStalledBytes = 4 + 8 + 4 + 4;

void Put(ByteWriter& writer, const std::vector<RoundsHeld::Tensor>& tensors) {
  writer.Put(static_cast<uint32_t>(tensors.size()));
  for (const RoundsHeld::Tensor& tensor : tensors) {
    writer.Put(tensor.key);
    writer.Put(tensor.next_round);
  }
}

std::vector<RoundsHeld::Tensor> GetRounds(ByteReader& reader) {
  std::vector<RoundsHeld::Tensor> tensors(reader.GetCount(kHeldTensorBytes));
  for (RoundsHeld::Tensor& tensor : tensors) {
    tensor.key = reader.Get<uint64_t>();
    tensor.next_round = reader.Get<uint64_t>();
  }
  return tensors;
}

struct Encoder {
  ByteWriter& writer;

  void operator()(const DeclareRequest& message) {
    writer.Put(message.request_id);
    writer.Put(static_cast<uint32_t>(message.tensors.size()));
    for (const TensorDescription& tensor : message.tensors) Put(writer, tensor);
  }
  void operator()(const DeclareReply& message) {
    writer.Put(message.request_id);
    writer.Put(static_cast<uint32_t>(message.results.size()));
    for (const DeclareResult& result : message.results) {
      Put(writer, result.status);
      if (result.status.ok()) Put(writer, result.entry);
    }
  }
  void operator()(const TableUpdate& message) {
    writer.Put(message.update_id);
    writer.Put(static_cast<uint32_t>(message.entries.size()));
    for (const TableEntry& entry : message.entries) Put(writer, entry);
  }
  void operator()(const TableAck& message) { writer.Put(message.update_id); }
  void operator()(const Heartbeat& message) {
    writer.Put(static_cast<uint32_t>(message.silent_servers.size()));
    for (const int32_t server : message.silent_servers) writer.Put(server);
  }
  void operator()(const Goodbye& message) {
    writer.Put(static_cast<uint32_t>(message.ranks.size()));
    for (const int32_t rank : message.ranks) writer.Put(rank);
  }
  void operator()(const PeerLost& message) {
    writer.Put(message.role);
    writer.Put(message.rank);
    writer.PutString(message.description.substr(0, kMaxTextBytes));
  }
  void operator()(const JobEnded&) {}
  void operator()(const Relay& message) {
    writer.Put(message.from);
    writer.Put(message.to);
    writer.PutString(message.bytes.substr(0, kMaxTextBytes));
  }
  void operator()(const StallQuery& message) {
    writer.Put(message.id);
    writer.Put(message.from);
    writer.Put(message.more);
    writer.Put(static_cast<uint8_t>(message.wants_text));
    writer.Put(static_cast<uint32_t>(message.tensors.size()));
    for (const StalledTensor& tensor : message.tensors) {
      writer.PutString(tensor.name);
      writer.Put(tensor.round);
      writer.PutString(tensor.description.substr(0, kMaxTextBytes));
      writer.Put(tensor.seconds);
    }
  }
  void operator()(const StallAnswer& message) {
    writer.Put(message.id);
    writer.Put(message.from);
    writer.Put(static_cast<uint32_t>(message.sent.size()));
    for (const uint8_t sent : message.sent) writer.Put(sent);
    writer.PutString(message.doing.substr(0, kMaxTextBytes));
  }
  void operator()(const LinkReport& message) {
    writer.Put(message.bytes_per_second);
    writer.Put(message.round_trip_ns);
    writer.Put(message.codec_bytes_per_second);
  }
  void operator()(const HoldRounds&) {}
  void operator()(const RoundsHeld& message) { Put(writer, message.tensors); }
  void operator()(const Retune& message) {
    writer.Put(message.credit_bytes);
    writer.Put(message.unsent_bytes);
    writer.Put(static_cast<uint32_t>(message.cuts.size()));
    for (const NewCut& cut : message.cuts) {
      Put(writer, cut.entry);
      writer.Put(cut.first_round);
    }
  }
  void operator()(const ArrivalReport& message) {
    writer.Put(static_cast<uint32_t>(message.rows.size()));
    for (const auto& [rank, lag] : message.rows) {
      writer.Put(rank);
      for (const uint64_t value :
           {lag.contributions, lag.dropped, lag.total_ns, lag.recent_ns, lag.max_ns})
        writer.Put(value);
    }
  }
  void operator()(const Reachable& message) {
    writer.PutString(message.host.substr(0, kMaxTextBytes));
    writer.Put(message.port);
  }
  void operator()(const ResumeQuery& message) {
    writer.Put(static_cast<uint32_t>(message.pushes.size()));
    for (const ResumeQuery::Push& push : message.pushes) {
      writer.Put(push.key);
      writer.Put(push.part);
      writer.Put(push.round);
    }
  }
  void operator()(const ResumeAnswer& message) {
    writer.Put(static_cast<uint32_t>(message.incomplete.size()));
    for (const ResumeAnswer::Push& push : message.incomplete) {
      writer.Put(push.key);
      writer.Put(push.part);
      writer.Put(push.round);
      writer.Put(push.received_bytes);
    }
  }
  void operator()(const ServerLost& message) {
    writer.Put(message.version);
    writer.Put(message.server);
  }
  void operator()(const PartsHeld& message) {
    writer.Put(message.version);
    writer.Put(static_cast<uint32_t>(message.parts.size()));
    for (const PartsHeld::Part& part : message.parts) {
      writer.Put(part.key);
      writer.Put(part.part);
      writer.Put(part.next_round);
      writer.Put(static_cast<uint8_t>(part.has_result));
    }
  }
  void operator()(const PartsMoved& message) {
    writer.Put(message.update_id);
    writer.Put(message.version);
    writer.Put(static_cast<uint32_t>(message.entries.size()));
    for (const TableEntry& entry : message.entries) Put(writer, entry);
    writer.Put(static_cast<uint32_t>(message.parts.size()));
    for (const PartsMoved::Part& part : message.parts) {
      writer.Put(part.key);
      writer.Put(part.part);
      writer.Put(part.next_round);
      writer.Put(part.result_from);
    }
  }
  void operator()(const ResultsHeld& message) { Put(writer, message.tensors); }
  void operator()(const StallNotice& message) {
    writer.Put(message.reporter);
    writer.PutString(message.text.substr(0, kMaxTextBytes));
  }
  void operator()(const ServerBack& message) {
    writer.Put(message.version);
    writer.Put(message.server);
    writer.PutString(message.host_id.substr(0, kMaxTextBytes));
    writer.PutString(message.host.substr(0, kMaxTextBytes));
    writer.Put(message.port);
    writer.Put(static_cast<uint32_t>(message.parts.size()));
    for (const ServerBack::Part& part : message.parts) {
      writer.Put(part.key);
      writer.Put(part.variant);
      writer.Put(part.part);
    }
  }
};

// Things that are larger here than on the wire are made one by one: a malformed message ends before
// there are many.
template <typename T, typename Read>
void GetAll(ByteReader& reader, size_t min_bytes, std::vector<T>* all, Read read) {
  for (uint32_t left = reader.GetCount(min_bytes); left > 0 && reader.ok(); --left)
    all->push_back(read(reader));
}

DeclareResult GetResult(ByteReader& reader) {
  DeclareResult result;
  result.status = GetStatus(reader);
  if (result.status.ok()) result.entry = GetEntry(reader);
  return result;
}

struct Decoder {
  ByteReader& reader;

  void operator()(DeclareRequest& message) {
    message.request_id = reader.Get<uint64_t>();
    GetAll(reader, kMinTensorBytes, &message.tensors, GetTensor);
  }
  void operator()(DeclareReply& message) {
    message.request_id = reader.Get<uint64_t>();
    GetAll(reader, kMinResultBytes, &message.results, GetResult);
  }
  void operator()(TableUpdate& message) {
    message.update_id = reader.Get<uint64_t>();
    GetAll(reader, kMinEntryBytes, &message.entries, GetEntry);
  }
  void operator()(TableAck& message) { message.update_id = reader.Get<uint64_t>(); }
  void operator()(Heartbeat& message) {
    message.silent_servers.resize(reader.GetCount(sizeof(int32_t)));
    for (int32_t& server : message.silent_servers) server = reader.Get<int32_t>();
  }
  void operator()(Goodbye& message) {
    message.ranks.resize(reader.GetCount(sizeof(int32_t)));
    for (int32_t& rank : message.ranks) rank = reader.Get<int32_t>();
  }
  void operator()(PeerLost& message) {
    message.role = reader.Get<Role>();
    message.rank = reader.Get<int32_t>();
    message.description = reader.GetString(kMaxTextBytes);
    if (message.role > Role::kCoordinator) reader.Fail();
  }
  void operator()(JobEnded&) {}
  void operator()(Relay& message) {
    message.from = reader.Get<int32_t>();
    message.to = reader.Get<int32_t>();
    message.bytes = reader.GetString(kMaxTextBytes);
  }
  void operator()(StallQuery& message) {
    message.id = reader.Get<uint64_t>();
    message.from = reader.Get<int32_t>();
    message.more = reader.Get<uint32_t>();
    message.wants_text = reader.Get<uint8_t>() != 0;
    message.tensors.resize(reader.GetCount(kMinStalledBytes));
    for (StalledTensor& tensor : message.tensors) {
      tensor.name = reader.GetString(kMaxNameBytes);
      tensor.round = reader.Get<uint64_t>();
      tensor.description = reader.GetString(kMaxTextBytes);
      tensor.seconds = reader.Get<uint32_t>();
    }
    if (message.tensors.size() > kMostStalled) reader.Fail();
  }
  void operator()(StallAnswer& message) {
    message.id = reader.Get<uint64_t>();
    message.from = reader.Get<int32_t>();
    message.sent.resize(reader.GetCount(sizeof(uint8_t)));
    for (uint8_t& sent : message.sent) sent = reader.Get<uint8_t>();
    message.doing = reader.GetString(kMaxTextBytes);
    if (message.sent.size() > kMostStalled) reader.Fail();
  }
  void operator()(LinkReport& message) {
    message.bytes_per_second = reader.Get<uint64_t>();
    message.round_trip_ns = reader.Get<uint64_t>();
    message.codec_bytes_per_second = reader.Get<uint64_t>();
  }
  void operator()(HoldRounds&) {}
  void operator()(RoundsHeld& message) { message.tensors = GetRounds(reader); }
  void operator()(Retune& message) {
    message.credit_bytes = reader.Get<uint64_t>();
    message.unsent_bytes = reader.Get<uint64_t>();
    message.cuts.resize(reader.GetCount(kMinCutBytes));
    for (NewCut& cut : message.cuts) {
      cut.entry = GetEntry(reader);
      cut.first_round = reader.Get<uint64_t>();
    }
  }
  void operator()(ArrivalReport& message) {
    message.rows.resize(reader.GetCount(kLagBytes));
    for (auto& [rank, lag] : message.rows) {
      rank = reader.Get<int32_t>();
      for (uint64_t* value :
           {&lag.contributions, &lag.dropped, &lag.total_ns, &lag.recent_ns, &lag.max_ns})
        *value = reader.Get<uint64_t>();
    }
  }
  void operator()(Reachable& message) {
    message.host = reader.GetString(kMaxTextBytes);
    message.port = reader.Get<uint16_t>();
  }
  void operator()(ResumeQuery& message) {
    message.pushes.resize(reader.GetCount(kResumedPushBytes));
    for (ResumeQuery::Push& push : message.pushes) {
      push.key = reader.Get<uint64_t>();
      push.part = reader.Get<uint32_t>();
      push.round = reader.Get<uint64_t>();
    }
  }
  void operator()(ResumeAnswer& message) {
    message.incomplete.resize(reader.GetCount(kResumedPushBytes + sizeof(uint64_t)));
    for (ResumeAnswer::Push& push : message.incomplete) {
      push.key = reader.Get<uint64_t>();
      push.part = reader.Get<uint32_t>();
      push.round = reader.Get<uint64_t>();
      push.received_bytes = reader.Get<uint64_t>();
    }
  }
  void operator()(ServerLost& message) {
    message.version = reader.Get<uint32_t>();
    message.server = reader.Get<int32_t>();
  }
  void operator()(PartsHeld& message) {
    message.version = reader.Get<uint32_t>();
    message.parts.resize(reader.GetCount(kHeldPartBytes));
    for (PartsHeld::Part& part : message.parts) {
      part.key = reader.Get<uint64_t>();
      part.part = reader.Get<uint32_t>();
      part.next_round = reader.Get<uint64_t>();
      part.has_result = reader.Get<uint8_t>() != 0;
    }
  }
  void operator()(PartsMoved& message) {
    message.update_id = reader.Get<uint64_t>();
    message.version = reader.Get<uint32_t>();
    GetAll(reader, kMinEntryBytes, &message.entries, GetEntry);
    message.parts.resize(reader.GetCount(kMovedPartBytes));
    for (PartsMoved::Part& part : message.parts) {
      part.key = reader.Get<uint64_t>();
      part.part = reader.Get<uint32_t>();
      part.next_round = reader.Get<uint64_t>();
      part.result_from = reader.Get<int32_t>();
    }
  }
  void operator()(ResultsHeld& message) { message.tensors = GetRounds(reader); }
  void operator()(StallNotice& message) {
    message.reporter = reader.Get<int32_t>();
    message.text = reader.GetString(kMaxTextBytes);
  }
  void operator()(ServerBack& message) {
    message.version = reader.Get<uint32_t>();
    message.server = reader.Get<int32_t>();
    message.host_id = reader.GetString(kMaxTextBytes);
    message.host = reader.GetString(kMaxTextBytes);
    message.port = reader.Get<uint16_t>();
    message.parts.resize(reader.GetCount(kReturnedPartBytes));
    for (ServerBack::Part& part : message.parts) {
      part.key = reader.Get<uint64_t>();
      part.variant = reader.Get<uint32_t>();
      part.part = reader.Get<uint32_t>();
    }
  }
};

// Makes `message` hold the alternative with this index.
template <size_t... I>
bool Select(size_t index, ControlMessage* message, std::index_sequence<I...>) {
  return ((index == I && (message->emplace<I>(), true)) || ...);
}

}  // namespace

Status CheckEntry(const TableEntry& entry, int32_t num_workers, int32_t num_servers) {
  BYTEPS_RETURN_IF_ERROR(entry.tensor.Validate(num_workers));
  const std::string what = "tensor \"" + entry.tensor.name + "\": ";
  if (entry.key != KeyOfName(entry.tensor.name))
    return InvalidArgument(what + "the key is not that of its name");
  if (entry.parts.empty()) return InvalidArgument(what + "an entry without parts");
  for (const PartPlacement& part : entry.parts) {
    if (part.server < 0 || part.server >= num_servers)
      return InvalidArgument(what + "a part on server " + std::to_string(part.server));
  }
  if (entry.tensor.kind == ExchangeKind::kGather) {
    return entry.parts.size() == 1 ? OkStatus() : InvalidArgument(what + "a gather has one part");
  }
  const uint64_t elements = entry.tensor.ElementCount();
  uint64_t in_parts = 0;
  for (const PartPlacement& part : entry.parts) {
    // Neither can the sum overflow.
    if (part.element_count > elements - in_parts)
      return InvalidArgument(what + "its parts are longer than the tensor");
    in_parts += part.element_count;
  }
  if (in_parts != elements) {
    return InvalidArgument(what + "its parts have " + std::to_string(in_parts) +
                           " elements, it has " + std::to_string(elements));
  }
  return OkStatus();
}

std::string EncodeControl(const ControlMessage& message) {
  ByteWriter writer;
  writer.Put(static_cast<uint8_t>(message.index()));
  std::visit(Encoder{writer}, message);
  return writer.Take();
}

Status DecodeControl(const std::string& bytes, ControlMessage* message) {
  ByteReader reader(bytes.data(), bytes.size());
  const uint8_t index = reader.Get<uint8_t>();
  if (!reader.ok() ||
      !Select(index, message, std::make_index_sequence<std::variant_size_v<ControlMessage>>())) {
    return InvalidArgument("received a control message of unknown type " + std::to_string(index));
  }
  std::visit(Decoder{reader}, *message);
  if (!reader.ok() || reader.left() != 0) {
    return InvalidArgument("received a malformed control message (type " + std::to_string(index) +
                           ", " + std::to_string(bytes.size()) + " bytes)");
  }
  return OkStatus();
}

}  // namespace byteps
