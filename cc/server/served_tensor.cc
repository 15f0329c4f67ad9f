#include "cc/server/served_tensor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cc/base/coded_rows.h"
#include "cc/base/members.h"
#include "cc/codec/part_forms.h"
#include "cc/server/part_rounds.h"
#include "cc/server/part_store.h"
#include "cc/server/part_table.h"

namespace byteps {
namespace {

// Of one number of rows for each worker that takes part.
uint64_t RowCountsBytes(const TensorDescription& tensor, const HostMap& hosts) {
  return Members::Of(tensor.name).Count(hosts.num_workers()) * sizeof(int64_t);
}

// Whether a frame can be a contribution to a sum of rows, or its result. How long the indices are,
// only they say.
bool CanBeOfRowSum(const TensorDescription& tensor, const FrameHeader& header, uint64_t rows) {
  const bool is_rest_of_none = header.payload_offset > 0 && header.payload_bytes == 0;
  return !is_rest_of_none && header.payload_offset <= kMaxPayloadBytes &&
         header.payload_bytes <= kMaxPayloadBytes &&
         CanBeCodedRows(header.payload_offset + header.payload_bytes, rows, tensor.ByteCount());
}

// Of a tensor with as many rows as each worker has: whether the elements are whole rows.
Status CheckPushedRows(const TensorDescription& tensor, const FrameHeader& header) {
  const uint64_t row = tensor.ElementCount();
  const bool fits = header.row_count <= kMaxPayloadBytes &&
                    (row == 0 || header.row_count <= kMaxPayloadBytes / row);
  if (!fits || header.element_count != header.row_count * row) {
    return InvalidArgument(" with " + std::to_string(header.element_count) +
                           " elements, which are not " + std::to_string(header.row_count) +
                           " rows of " + std::to_string(row));
  }
  if (tensor.kind == ExchangeKind::kRowSum && !CanBeOfRowSum(tensor, header, header.row_count)) {
    return InvalidArgument(" with " + std::to_string(header.payload_bytes) + " bytes from byte " +
                           std::to_string(header.payload_offset) + " on, which cannot be " +
                           std::to_string(header.row_count) + " rows of " + tensor.ToString() +
                           " with their indices");
  }
  return OkStatus();
}

// How many bytes a whole push of these elements has; of a sum of rows, only its indices say it.
uint64_t PushedBytes(const TableEntry& entry, const FrameHeader& header, const BlockCodec* codec,
                     const HostMap& hosts) {
  const TensorDescription& tensor = entry.tensor;
  const uint64_t bytes = header.element_count * DTypeSize(tensor.dtype);
  // The splits come first.
  if (tensor.kind == ExchangeKind::kAllToAll) return bytes + RowCountsBytes(tensor, hosts);
  if (tensor.HasOwnRows()) return bytes;
  if (codec != nullptr) return codec->EncodedBytes(header.element_count);
  const bool is_receiver = tensor.kind == ExchangeKind::kBroadcast &&
                           header.worker != ParticipantsOf(entry, header.part, hosts).root;
  return is_receiver ? 0 : bytes;
}

// Whether a push that is `expected_bytes` long as a whole has all of them, or the rest of them.
Status CheckPushedBytes(const TensorDescription& tensor, const FrameHeader& header,
                        uint64_t expected_bytes) {
  // What goes on has something left to go on with.
  const bool is_rest = header.payload_offset > 0 && header.payload_offset < expected_bytes;
  if (is_rest) expected_bytes -= header.payload_offset;
  if (header.payload_bytes == expected_bytes && (header.payload_offset == 0 || is_rest))
    return OkStatus();
  return InvalidArgument(
      " with " + std::to_string(header.payload_bytes) + " bytes" +
      (header.payload_offset > 0 ? " from byte " + std::to_string(header.payload_offset) + " on; "
                                 : "; ") +
      std::to_string(expected_bytes) + " belong to " + std::to_string(header.element_count) +
      " elements of " + tensor.ToString());
}

}  // namespace

// Parts may have moved since, together with their numbers and lengths.
Status ServedTensor::CheckKnown(const Variant& known, const TableEntry& entry) const {
  bool is_same =
      known.entry->tensor.SameExchangeAs(entry.tensor) && known.places.size() == entry.parts.size();
  for (size_t part = 0; is_same && part < entry.parts.size(); ++part) {
    const PartPlacement& before = known.places[part];
    const PartPlacement& now = entry.parts[part];
    is_same = now.element_count == before.element_count && now.version >= before.version &&
              (now.server == before.server || now.version > before.version);
  }
  if (is_same) return OkStatus();
  return Internal("tensor \"" + entry.tensor.name + "\": variant " + std::to_string(entry.variant) +
                  " is known as " + known.entry->tensor.ToString() + " and was given again as " +
                  entry.tensor.ToString() + " or with other parts");
}

Status ServedTensor::AddVariant(const TableEntry& entry, const ServedPart::Options& part_options) {
  if (entry.tensor.name != name_) {
    return FailedPrecondition("the names \"" + name_ + "\" and \"" + entry.tensor.name +
                              "\" have the same 64-bit key; rename one of them");
  }
  const auto known = variants_.find(entry.variant);
  if (known != variants_.end()) BYTEPS_RETURN_IF_ERROR(CheckKnown(known->second, entry));
  // Workers that use different variants meet at part 0. If that has moved, it has in all of them.
  const auto other = variants_.begin();
  if (other != variants_.end() && other->second.places[0].server != entry.parts[0].server &&
      other->second.places[0].version >= entry.parts[0].version) {
    return Internal("tensor \"" + entry.tensor.name + "\": part 0 of variant " +
                    std::to_string(entry.variant) +
                    " lives on another server than that of the variants before");
  }
  Variant& variant = variants_[entry.variant];
  if (variant.entry == nullptr) variant.entry = std::make_unique<const TableEntry>(entry);
  for (uint32_t part = 0; part < entry.parts.size(); ++part) {
    if (entry.parts[part].server == server_rank_) AddPart(variant.entry.get(), part, part_options);
  }
  variant.places = entry.parts;
  if (last_used_ == nullptr) last_used_ = variant.entry.get();
  return OkStatus();
}

void ServedTensor::AddPart(const TableEntry* entry, uint32_t part,
                           const ServedPart::Options& part_options) {
  const bool holds_values = entry->tensor.IsHeldByServers();
  std::shared_ptr<ServedPart>& known = parts_[part];
  // Rounds of a name that becomes a store or a table have been given up, or the coordinator would
  // have refused it.
  if (known != nullptr && (!holds_values || known->HoldsValues())) return;
  ServedPart::Options options = part_options;
  options.tensor_name = name_;
  options.part = part;
  if (entry->tensor.kind == ExchangeKind::kStore)
    known = std::make_shared<PartStore>(std::move(options), entry);
  else if (entry->tensor.kind == ExchangeKind::kTable)
    known = std::make_shared<PartTable>(std::move(options), entry);
  else
    known = std::make_shared<PartRounds>(std::move(options));
}

// Rounds are shared by the variants: those that are here move together, or none does.
void ServedTensor::DropMoved(const std::vector<TableEntry>& entries, uint64_t key,
                             uint32_t version) {
  std::map<uint32_t, const TableEntry*> moved;  // by variant
  for (const TableEntry& entry : entries) {
    if (entry.key == key) moved[entry.variant] = &entry;
  }
  const auto stays = [&](uint32_t part) {
    return std::any_of(variants_.begin(), variants_.end(), [&](const auto& known) {
      const std::vector<PartPlacement>& places = known.second.places;
      if (part >= places.size() || places[part].server != server_rank_) return false;
      const auto entry = moved.find(known.first);
      return entry == moved.end() || part >= entry->second->parts.size() ||
             entry->second->parts[part].version != version;
    });
  };
  for (auto it = parts_.begin(); it != parts_.end();)
    it = stays(it->first) ? std::next(it) : parts_.erase(it);
}

const TableEntry* ServedTensor::FindVariant(uint32_t variant) const {
  const auto it = variants_.find(variant);
  return it == variants_.end() ? nullptr : it->second.entry.get();
}

const PartPlacement* ServedTensor::FindPlace(uint32_t variant, uint32_t part) const {
  const auto it = variants_.find(variant);
  if (it == variants_.end() || part >= it->second.places.size()) return nullptr;
  return &it->second.places[part];
}

std::shared_ptr<ServedPart> ServedTensor::FindPart(uint32_t part) const {
  const auto it = parts_.find(part);
  return it == parts_.end() ? nullptr : it->second;
}

bool ServedTensor::HasMoved(uint32_t part) const {
  return std::any_of(variants_.begin(), variants_.end(), [part](const auto& known) {
    const std::vector<PartPlacement>& places = known.second.places;
    return part < places.size() && places[part].version > 0;
  });
}

bool ServedTensor::IsFirstPart(uint32_t part) const {
  return !parts_.empty() && parts_.begin()->first == part;
}

Status CheckPush(const TableEntry& entry, const FrameHeader& header, const HostMap& hosts) {
  const TensorDescription& tensor = entry.tensor;
  if (tensor.per_host) {
    const int32_t owner = hosts.OwnerOn(hosts.HostOf(header.worker), entry.key, header.part);
    if (owner != header.worker) {
      return InvalidArgument(", whose part " + std::to_string(header.part) + " worker " +
                             std::to_string(owner) + " pushes for their host");
    }
  }
  const uint64_t elements = entry.parts[header.part].element_count;
  const bool is_wish = tensor.IsQuorumSum() && header.payload_bytes == 0 &&
                       header.payload_offset == 0 && header.codec == CodecId::kRaw &&
                       header.element_count == elements;
  if (is_wish) return OkStatus();
  const BlockCodec* codec = nullptr;
  if (!FindPushForm(tensor, elements, header.codec, &codec)) {
    const CodecId id = codec == nullptr ? CodecId::kRaw : codec->id();
    return InvalidArgument(" in codec number " + std::to_string(static_cast<int>(header.codec)) +
                           "; number " + std::to_string(static_cast<int>(id)) + " belongs to " +
                           std::to_string(header.element_count) + " elements of " +
                           tensor.ToString());
  }
  if (tensor.HasOwnRows()) {
    const Status status = CheckPushedRows(tensor, header);
    if (!status.ok() || tensor.kind == ExchangeKind::kRowSum) return status;
  } else if (header.element_count != elements) {
    return InvalidArgument(" with " + std::to_string(header.element_count) +
                           " elements; the part has " + std::to_string(elements));
  }
  return CheckPushedBytes(tensor, header, PushedBytes(entry, header, codec, hosts));
}

Status CheckResult(const TableEntry& entry, const FrameHeader& header, const HostMap& hosts) {
  const uint64_t size = DTypeSize(entry.tensor.dtype);
  const bool has_own_rows = entry.tensor.HasOwnRows();
  const bool is_clock = entry.tensor.kind == ExchangeKind::kStore && header.element_count == 0;
  if (is_clock && header.payload_bytes == 0) return OkStatus();
  if (entry.tensor.kind == ExchangeKind::kRowSum) {
    const uint64_t row = entry.tensor.ElementCount();
    const uint64_t rows = row == 0 ? 0 : header.element_count / row;
    if (header.codec == CodecId::kRaw && header.payload_offset == 0 &&
        header.element_count == rows * row && CanBeOfRowSum(entry.tensor, header, rows))
      return OkStatus();
  }
  const uint64_t head_bytes = has_own_rows ? RowCountsBytes(entry.tensor, hosts) : 0;
  // Also of a compressed tensor: the worker has the elements only.
  const bool fits =
      entry.tensor.kind != ExchangeKind::kRowSum && header.codec == CodecId::kRaw &&
      header.payload_offset == 0 && header.element_count <= kMaxPayloadBytes / size &&
      header.payload_bytes == head_bytes + header.element_count * size &&
      (has_own_rows || header.element_count == entry.parts[header.part].element_count);
  if (fits) return OkStatus();
  return InvalidArgument(" with " + std::to_string(header.payload_bytes) + " bytes and " +
                         std::to_string(header.element_count) +
                         " elements, which are no result of " + entry.tensor.ToString());
}

}  // namespace byteps
