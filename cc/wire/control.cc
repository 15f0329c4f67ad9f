#include "cc/wire/control.h"

#include "cc/wire/fields.h"

namespace byteps {

// A refused one has no entry.
template <>
size_t LeastBytes<DeclareResult>() {
  return sizeof(StatusCode) + sizeof(uint32_t);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<TensorDescription>& message) {
  archive.Name(message.name, kMaxNameBytes);
  archive(message.dtype, message.kind, message.average, message.root_rank, message.per_host,
          message.backup_workers, message.grace_ms, message.staleness, message.home);
  archive.Name(message.codec, kMaxCodecBytes);
  archive(message.shape);
  archive.Check(message.dtype <= DType::kInt64 && message.kind <= ExchangeKind::kTable);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<PartPlacement>& message) {
  archive(message.element_count, message.server, message.version);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<TableEntry>& message) {
  archive(message.tensor, message.key, message.variant, message.parts);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<DeclareRequest>& message) {
  archive(message.request_id, message.tensors);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<DeclareResult>& message) {
  archive(message.status);
  if (message.status.ok()) archive(message.entry);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<DeclareReply>& message) {
  archive(message.request_id, message.results);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<TableUpdate>& message) {
  archive(message.update_id, message.entries);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<TableAck>& message) {
  archive(message.update_id);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Heartbeat>& message) {
  archive(message.silent_servers);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Goodbye>& message) {
  archive(message.ranks);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<PeerLost>& message) {
  archive(message.role, message.rank, message.description);
  archive.Check(message.role <= Role::kCoordinator);
}

template <typename Archive>
void Fields(Archive&, typename Archive::template Of<JobEnded>&) {}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Relay>& message) {
  archive(message.from, message.to, message.bytes);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<StalledTensor>& message) {
  archive.Name(message.name, kMaxNameBytes);
  archive(message.round, message.description, message.seconds);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<StallQuery>& message) {
  archive(message.id, message.from, message.more, message.wants_text, message.tensors);
  archive.Check(message.tensors.size() <= kMostStalled);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<StallAnswer>& message) {
  archive(message.id, message.from, message.sent, message.doing);
  archive.Check(message.sent.size() <= kMostStalled);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<StallNotice>& message) {
  archive(message.reporter, message.text);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<LinkReport>& message) {
  archive(message.bytes_per_second, message.round_trip_ns, message.codec_bytes_per_second);
}

template <typename Archive>
void Fields(Archive&, typename Archive::template Of<PauseRounds>&) {}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<RoundProgress::Tensor>& message) {
  archive(message.key, message.next_round);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<RoundProgress>& message) {
  archive(message.tensors);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<NewCut>& message) {
  archive(message.entry, message.first_round);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Retune>& message) {
  archive(message.credit_bytes, message.unsent_bytes, message.cuts);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<WorkerLag>& message) {
  archive(message.contributions, message.dropped, message.total_ns, message.recent_ns,
          message.max_ns);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ArrivalReport::Row>& message) {
  archive(message.rank, message.lag);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ArrivalReport>& message) {
  archive(message.rows);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Reachable>& message) {
  archive(message.host, message.port);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ResumeQuery::Push>& message) {
  archive(message.key, message.part, message.round);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ResumeQuery>& message) {
  archive(message.pushes);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ResumeAnswer::Push>& message) {
  archive(message.key, message.part, message.round, message.received_bytes);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ResumeAnswer>& message) {
  archive(message.incomplete);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ServerLost>& message) {
  archive(message.version, message.server);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<PartProgress::Part>& message) {
  archive(message.key, message.part, message.next_round, message.has_result, message.has_earlier);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<PartProgress>& message) {
  archive(message.version, message.parts);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<PartsMoved::Part>& message) {
  archive(message.key, message.part, message.next_round, message.result_from, message.earlier_from);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<PartsMoved>& message) {
  archive(message.update_id, message.version, message.entries, message.parts);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ResultProgress>& message) {
  archive(message.tensors);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ServerRejoined::Part>& message) {
  archive(message.key, message.variant, message.part);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<ServerRejoined>& message) {
  archive(message.version, message.server, message.host_id, message.host, message.port,
          message.parts);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Joined::Failed>& message) {
  archive(message.worker, message.key, message.next_round);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Joined::Clock>& message) {
  archive(message.worker, message.key, message.next_round, message.lead);
}

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<Joined>& message) {
  archive(message.ranks, message.last, message.problem, message.failed, message.clocks);
}

namespace {

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
  if (entry.tensor.HasOwnRows()) {
    if (entry.parts.size() == 1) return OkStatus();
    return InvalidArgument(what + entry.tensor.ToString() + " has one part, got " +
                           std::to_string(entry.parts.size()));
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
  FieldWriter archive(&writer);
  // In front of every message: the index in ControlMessage, which is append only.
  archive(static_cast<uint8_t>(message.index()));
  std::visit(archive, message);
  return writer.Take();
}

Status DecodeControl(const std::string& bytes, ControlMessage* message) {
  ByteReader reader(bytes.data(), bytes.size());
  const uint8_t index = reader.Get<uint8_t>();
  if (!reader.ok() ||
      !Select(index, message, std::make_index_sequence<std::variant_size_v<ControlMessage>>())) {
    return InvalidArgument("received a control message of unknown type " + std::to_string(index));
  }
  std::visit(FieldReader(&reader), *message);
  if (!reader.ok() || reader.left() != 0) {
    return InvalidArgument("received a malformed control message (type " + std::to_string(index) +
                           ", " + std::to_string(bytes.size()) + " bytes)");
  }
  return OkStatus();
}

}  // namespace byteps
