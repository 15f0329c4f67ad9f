#include "cc/server/served_tensors.h"

#include <algorithm>
#include <set>
#include <string>

#include "cc/base/members.h"
#include "cc/codec/part_forms.h"

namespace byteps {

Status ServedTensors::AddEntries(const std::vector<TableEntry>& entries) {
  WriterLock lock(mutex_);
  return AddAll(entries);
}

// All at once: nobody meets a part that has left and is still said to live here.
Status ServedTensors::MoveParts(const PartsMoved& moved) {
  WriterLock lock(mutex_);
  DropMoved(moved);
  const Status status = AddAll(moved.entries);
  GoOnWith(moved);
  return status;
}

// The good ones of a list are usable, whatever is wrong with the others.
Status ServedTensors::AddAll(const std::vector<TableEntry>& entries) {
  Status first_error;
  for (const TableEntry& entry : entries) {
    const Status status = AddEntry(entry);
    if (first_error.ok()) first_error = status;
  }
  return first_error;
}

Status ServedTensors::AddEntry(const TableEntry& entry) {
  const bool is_here =
      std::any_of(entry.parts.begin(), entry.parts.end(),
                  [this](const PartPlacement& part) { return part.server == server_rank_; });
  const auto known = tensors_.find(entry.key);
  const bool was_here =
      known != tensors_.end() && known->second->FindVariant(entry.variant) != nullptr;
  if (!is_here && !was_here) return OkStatus();
  BYTEPS_RETURN_IF_ERROR(CheckEntry(entry, part_options_.num_workers));
  BYTEPS_RETURN_IF_ERROR(CheckCodec(entry.tensor));
  std::unique_ptr<ServedTensor>& tensor = tensors_[entry.key];
  if (tensor == nullptr) tensor = std::make_unique<ServedTensor>(entry.tensor.name, server_rank_);
  return tensor->AddVariant(entry, part_options_);
}

void ServedTensors::DropMoved(const PartsMoved& moved) {
  std::set<uint64_t> keys;
  for (const TableEntry& entry : moved.entries) keys.insert(entry.key);
  for (const uint64_t key : keys) {
    const auto tensor = tensors_.find(key);
    if (tensor != tensors_.end()) tensor->second->DropMoved(moved.entries, key, moved.version);
  }
}

void ServedTensors::GoOnWith(const PartsMoved& moved) {
  std::set<std::pair<uint64_t, uint32_t>> came_here;
  for (const TableEntry& entry : moved.entries) {
    for (uint32_t part = 0; part < entry.parts.size(); ++part) {
      const PartPlacement& place = entry.parts[part];
      if (place.server == server_rank_ && place.version == moved.version)
        came_here.emplace(entry.key, part);
    }
  }
  for (const PartsMoved::Part& part : moved.parts) {
    const auto tensor = tensors_.find(part.key);
    if (came_here.count({part.key, part.part}) == 0 || tensor == tensors_.end()) continue;
    const std::shared_ptr<ServedPart> rounds = tensor->second->FindPart(part.part);
    if (rounds != nullptr) rounds->GoOnFrom(part);
  }
}

Status ServedTensors::Find(const FrameHeader& header, FoundPart* found) const {
  ReaderLock lock(mutex_);
  const auto it = tensors_.find(header.key);
  if (it == tensors_.end()) {
    return InvalidArgument("of a tensor that this server has not been told of (key " +
                           std::to_string(header.key) + ")");
  }
  found->tensor = it->second.get();
  const auto refused = [&](StatusCode code, const std::string& why) {
    return Status(code, "of tensor \"" + found->tensor->name() + "\"" + why);
  };
  const TableEntry* entry = found->tensor->FindVariant(header.variant);
  if (entry == nullptr) {
    return refused(StatusCode::kInvalidArgument,
                   ", unknown variant " + std::to_string(header.variant));
  }
  if (!Members::Of(entry->tensor.name).Contain(header.worker)) {
    return refused(StatusCode::kInvalidArgument, ", of whose process set it is no member");
  }
  const PartPlacement* place = found->tensor->FindPlace(header.variant, header.part);
  found->entry = entry;
  found->part = nullptr;
  // It was in flight when its part moved; the worker pushes it again, where it has to.
  if (place != nullptr && header.placement_version < place->version) return OkStatus();
  if (place == nullptr || place->server != server_rank_) {
    return refused(StatusCode::kInvalidArgument, ", whose part " + std::to_string(header.part) +
                                                     " does not live on server " +
                                                     std::to_string(server_rank_));
  }
  if (header.placement_version != place->version) {
    return refused(StatusCode::kFailedPrecondition,
                   " by placement version " + std::to_string(header.placement_version) +
                       "; valid is " + std::to_string(place->version));
  }
  found->part = found->tensor->FindPart(header.part);
  found->is_first_part = found->tensor->IsFirstPart(header.part);
  if (header.status != StatusCode::kOk) return OkStatus();  // a text, not a contribution
  const Status checked = header.IsResult() ? CheckResult(*entry, header, *part_options_.hosts)
                                           : CheckPush(*entry, header, *part_options_.hosts);
  return checked.ok() ? checked : refused(checked.code(), checked.message());
}

Status ServedTensors::FindResumed(uint64_t key, uint32_t part, FoundPart* found) const {
  ReaderLock lock(mutex_);
  const auto it = tensors_.find(key);
  if (it == tensors_.end()) return InvalidArgument("");
  found->tensor = it->second.get();
  found->part = found->tensor->FindPart(part);
  // It asked before it knew.
  if (found->part != nullptr || found->tensor->HasMoved(part)) return OkStatus();
  return InvalidArgument("");
}

std::vector<std::pair<ServedTensor*, std::shared_ptr<ServedPart>>> ServedTensors::AllParts() const {
  std::vector<std::pair<ServedTensor*, std::shared_ptr<ServedPart>>> all;
  ReaderLock lock(mutex_);
  for (const auto& [key, tensor] : tensors_) {
    for (const auto& [number, part] : tensor->parts()) all.emplace_back(tensor.get(), part);
  }
  return all;
}

std::vector<FoundPart> ServedTensors::AllFound() const {
  std::vector<FoundPart> all;
  ReaderLock lock(mutex_);
  for (const auto& [key, tensor] : tensors_) {
    for (const auto& [number, part] : tensor->parts())
      all.push_back({tensor.get(), tensor->last_entry(), part, tensor->IsFirstPart(number)});
  }
  return all;
}

void ServedTensors::OnResultProgress(const std::vector<RoundProgress::Tensor>& all_have) const {
  ReaderLock lock(mutex_);
  for (const RoundProgress::Tensor& tensor : all_have) {
    const auto known = tensors_.find(tensor.key);
    if (known == tensors_.end()) continue;
    for (const auto& [part, rounds] : known->second->parts())
      rounds->OnResultProgress(tensor.next_round);
  }
}

}  // namespace byteps
