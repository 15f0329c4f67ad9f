#include "cc/wire/control.h"

#include "cc/wire/fields.h"

namespace byteps {

// A refused one has no entry.
template <>
size_t LeastBytes<DeclareResult>() {
  return sizeof(StatusCode) + sizeof(uint32_t);
}

// What most messages are: these fields, in the order in which they travel.
#define BYTEPS_FIELDS(Message, ...)                                                \
  template <typename Archive>                                                      \
  void Fields(Archive& archive, typename Archive::template Of<Message>& message) { \
    archive(__VA_ARGS__);                                                          \
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

BYTEPS_FIELDS(PartPlacement, message.element_count, message.server, message.version)
BYTEPS_FIELDS(TableEntry, message.tensor, message.key, message.variant, message.parts)
BYTEPS_FIELDS(DeclareRequest, message.request_id, message.tensors)

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<DeclareResult>& message) {
  archive(message.status);
  if (message.status.ok()) archive(message.entry);
}

BYTEPS_FIELDS(DeclareReply, message.request_id, message.results)
BYTEPS_FIELDS(TableUpdate, message.update_id, message.entries)
BYTEPS_FIELDS(TableAck, message.update_id)
BYTEPS_FIELDS(Heartbeat, message.silent_servers)
BYTEPS_FIELDS(Goodbye, message.ranks)

template <typename Archive>
void Fields(Archive& archive, typename Archive::template Of<PeerLost>& message) {
  archive(message.role, message.rank, message.description);
  archive.Check(message.role <= Role::kCoordinator);
}

template <typename Archive>
void Fields(Archive&, typename Archive::template Of<JobEnded>&) {}

BYTEPS_FIELDS(Relay, message.from, message.to, message.bytes)

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

BYTEPS_FIELDS(StallNotice, message.reporter, message.text)
BYTEPS_FIELDS(LinkReport, message.bytes_per_second, message.round_trip_ns,
              message.codec_bytes_per_second)

template <typename Archive>
void Fields(Archive&, typename Archive::template Of<PauseRounds>&) {}

BYTEPS_FIELDS(RoundProgress::Tensor, message.key, message.next_round)
BYTEPS_FIELDS(RoundProgress, message.tensors)
BYTEPS_FIELDS(NewCut, message.entry, message.first_round)
BYTEPS_FIELDS(Retune, message.credit_bytes, message.unsent_bytes, message.cuts)
BYTEPS_FIELDS(WorkerLag, message.contributions, message.dropped, message.total_ns,
              message.recent_ns, message.max_ns)
BYTEPS_FIELDS(ArrivalReport::Row, message.rank, message.lag)
BYTEPS_FIELDS(ArrivalReport, message.rows)
BYTEPS_FIELDS(Reachable, message.host, message.port)
BYTEPS_FIELDS(ResumeQuery::Push, message.key, message.part, message.round)
BYTEPS_FIELDS(ResumeQuery, message.pushes)
BYTEPS_FIELDS(ResumeAnswer::Push, message.key, message.part, message.round, message.received_bytes)
BYTEPS_FIELDS(ResumeAnswer, message.incomplete)
BYTEPS_FIELDS(ServerLost, message.version, message.server)
BYTEPS_FIELDS(PartProgress::Part, message.key, message.part, message.next_round, message.has_result,
              message.has_earlier)
BYTEPS_FIELDS(PartProgress, message.version, message.parts)
BYTEPS_FIELDS(PartsMoved::Part, message.key, message.part, message.next_round, message.result_from,
              message.earlier_from)
BYTEPS_FIELDS(PartsMoved, message.update_id, message.version, message.entries, message.parts)
BYTEPS_FIELDS(ResultProgress, message.tensors)
BYTEPS_FIELDS(ServerRejoined::Part, message.key, message.variant, message.part)
BYTEPS_FIELDS(ServerRejoined, message.version, message.server, message.host_id, message.host,
              message.port, message.parts)
BYTEPS_FIELDS(Joined::Failed, message.worker, message.key, message.next_round)
BYTEPS_FIELDS(Joined::Clock, message.worker, message.key, message.next_round, message.lead)
BYTEPS_FIELDS(Joined, message.ranks, message.last, message.problem, message.failed, message.clocks)

#undef BYTEPS_FIELDS

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
