#include "cc/server/served_tensor.h"

#include <utility>

namespace byteps {
namespace {

bool SameParts(const TableEntry& a, const TableEntry& b) {
  if (a.parts.size() != b.parts.size()) return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    if (a.parts[i].element_count != b.parts[i].element_count ||
        a.parts[i].server != b.parts[i].server)
      return false;
  }
  return true;
}

bool SameEntry(const TableEntry& a, const TableEntry& b) {
  return a.placement_version == b.placement_version && a.tensor.SameExchangeAs(b.tensor) &&
         SameParts(a, b);
}

}  // namespace

Status ServedTensor::AddVariant(const TableEntry& entry, PartRounds::Options part_options) {
  const std::string what = "tensor \"" + entry.tensor.name + "\": ";
  if (entry.tensor.name != name_) {
    return FailedPrecondition("the names \"" + name_ + "\" and \"" + entry.tensor.name +
                              "\" have the same 64-bit key; rename one of them");
  }
  if (const TableEntry* known = FindVariant(entry.variant)) {
    if (SameEntry(*known, entry)) return OkStatus();
    return Internal(what + "variant " + std::to_string(entry.variant) + " is known as " +
                    known->tensor.ToString() + " and was given again as " +
                    entry.tensor.ToString() + " or with other parts");
  }
  // Workers that use different variants meet at part 0.
  if (!variants_.empty() && variants_.begin()->second->parts[0].server != entry.parts[0].server) {
    return Internal(what + "part 0 of variant " + std::to_string(entry.variant) +
                    " lives on another server than that of the variants before");
  }
  for (uint32_t part = 0; part < entry.parts.size(); ++part) {
    if (entry.parts[part].server != server_rank_ || parts_.count(part) > 0) continue;
    PartRounds::Options options = part_options;
    options.tensor_name = name_;
    options.part = part;
    parts_[part] = std::make_unique<PartRounds>(std::move(options));
  }
  auto& added = variants_[entry.variant] = std::make_unique<const TableEntry>(entry);
  if (last_used_ == nullptr) last_used_ = added.get();
  return OkStatus();
}

const TableEntry* ServedTensor::FindVariant(uint32_t variant) const {
  const auto it = variants_.find(variant);
  return it == variants_.end() ? nullptr : it->second.get();
}

PartRounds* ServedTensor::FindPart(uint32_t part) const {
  const auto it = parts_.find(part);
  return it == parts_.end() ? nullptr : it->second.get();
}

bool ServedTensor::IsFirstPart(const TableEntry& entry, uint32_t part) const {
  for (uint32_t before = 0; before < part; ++before) {
    if (entry.parts[before].server == server_rank_) return false;
  }
  return true;
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
  const auto count = [&] { return std::to_string(header.element_count); };
  if (header.codec != Codec::kRaw) return InvalidArgument(" with an unknown codec");
  const uint64_t elements = entry.parts[header.part].element_count;
  uint64_t expected_bytes = header.element_count * DTypeSize(tensor.dtype);
  if (tensor.kind == ExchangeKind::kGather) {
    const uint64_t row = tensor.ElementCount();
    const bool fits = header.row_count <= kMaxPayloadBytes &&
                      (row == 0 || header.row_count <= kMaxPayloadBytes / row);
    if (!fits || header.element_count != header.row_count * row) {
      return InvalidArgument(" with " + count() + " elements, which are not " +
                             std::to_string(header.row_count) + " rows of " + std::to_string(row));
    }
  } else if (header.element_count != elements) {
    return InvalidArgument(" with " + count() + " elements; the part has " +
                           std::to_string(elements));
  } else if (tensor.kind == ExchangeKind::kBroadcast &&
             header.worker != ParticipantsOf(entry, header.part, hosts).root) {
    expected_bytes = 0;
  }
  // What goes on has something left to go on with.
  const bool is_rest = header.payload_offset > 0 && header.payload_offset < expected_bytes;
  if (is_rest) expected_bytes -= header.payload_offset;
  if (header.payload_bytes != expected_bytes || (header.payload_offset > 0 && !is_rest)) {
    return InvalidArgument(" with " + std::to_string(header.payload_bytes) + " bytes" +
                           (header.payload_offset > 0
                                ? " from byte " + std::to_string(header.payload_offset) + " on; "
                                : "; ") +
                           std::to_string(expected_bytes) + " belong to " + count() +
                           " elements of " + tensor.ToString());
  }
  return OkStatus();
}

}  // namespace byteps
