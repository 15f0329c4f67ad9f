#include "cc/worker/state/key_table.h"

#include <algorithm>
#include <utility>

namespace byteps {
namespace {

// Parts of one tensor that a server may ask for before they are there.
constexpr size_t kMostRequested = 4096;
constexpr int64_t kIdleNanos = 5 * int64_t{1000000000};

}  // namespace

void RequestedParts::Add(uint64_t round, uint32_t part) {
  if (round_ != round) *this = {};
  round_ = round;
  if (parts_.size() < kMostRequested && parts_.insert(part).second) in_order_.push_back(part);
}

bool KeyTable::Key::IsStore() const {
  return std::any_of(variants.begin(), variants.end(), [](const Variant& variant) {
    return variant.tensor.kind == ExchangeKind::kStore;
  });
}

std::shared_ptr<const TableEntry> KeyTable::Key::AnyEntryFor(uint64_t round) const {
  for (const Variant& variant : variants) {
    if (variant.EntryFor(round) != nullptr) return variant.EntryFor(round);
  }
  return nullptr;
}

KeyTable::Key& KeyTable::FindOrAdd(const std::string& name) {
  std::unique_ptr<Key>& key = by_name_[name];
  if (key == nullptr) {
    key = std::make_unique<Key>();
    key->name = name;
  }
  return *key;
}

KeyTable::Key* KeyTable::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second.get();
}

KeyTable::Key* KeyTable::FindPlaced(uint64_t id) const {
  const auto found = placed_.find(id);
  return found == placed_.end() ? nullptr : found->second;
}

KeyTable::Variant& KeyTable::FindOrAddVariant(Key& key, const TensorDescription& tensor) {
  for (Variant& variant : key.variants) {
    if (variant.tensor.SameExchangeAs(tensor)) return variant;
  }
  key.variants.emplace_back();
  key.variants.back().tensor = tensor;
  return key.variants.back();
}

const PartPlacement* KeyTable::FindPlace(const FrameHeader& header) const {
  const Key* const key = FindPlaced(header.key);
  if (key == nullptr) return nullptr;
  for (const Variant& variant : key->variants) {
    for (const auto* known : {&variant.entry, &variant.new_cut}) {
      if (*known != nullptr && (*known)->variant == header.variant)
        return header.part < (*known)->parts.size() ? &(*known)->parts[header.part] : nullptr;
    }
  }
  return nullptr;
}

std::vector<std::shared_ptr<Exchange>> KeyTable::OldestExchanges() const {
  std::vector<std::shared_ptr<Exchange>> live;
  for (const auto& [name, key] : by_name_) {
    if (key->live != nullptr) live.push_back(key->live);
  }
  std::sort(live.begin(), live.end(),
            [](const auto& a, const auto& b) { return a->enqueued_ns < b->enqueued_ns; });
  return live;
}

KeyTable::Variant& KeyTable::Declare(Key& key, const TensorDescription& tensor) {
  Variant& variant = FindOrAddVariant(key, tensor);
  if (!variant.is_declared) undeclared_.push_back(tensor);
  variant.is_declared = true;
  return variant;
}

void KeyTable::DeclareAny(Key& key) {
  if (key.variants.empty()) Declare(key, PlaceholderOf(key.name));
}

TensorDescription KeyTable::PlaceholderOf(const std::string& name) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.dtype = DType::kUInt8;
  tensor.shape = {1};
  return tensor;
}

std::optional<DeclareRequest> KeyTable::NextRequest() {
  if (declare_request_ != 0 || undeclared_.empty()) return std::nullopt;
  DeclareRequest request;
  request.request_id = declare_request_ = next_request_++;
  request.tensors = declaring_ = std::move(undeclared_);
  undeclared_.clear();
  return request;
}

Status KeyTable::TakeAnswered(const DeclareReply& reply, std::vector<TensorDescription>* declared) {
  if (reply.request_id != declare_request_ || reply.results.size() != declaring_.size())
    return Internal("the scheduler answered a declaration that was not made");
  declare_request_ = 0;
  *declared = std::exchange(declaring_, {});
  return OkStatus();
}

void KeyTable::Forget(Key& key, const TensorDescription& tensor) {
  key.variants.erase(
      std::remove_if(key.variants.begin(), key.variants.end(),
                     [&](const Variant& v) { return v.tensor.SameExchangeAs(tensor); }),
      key.variants.end());
}

Status KeyTable::Place(Key& key, const TensorDescription& tensor, TableEntry entry) {
  BYTEPS_RETURN_IF_ERROR(CheckEntry(entry, job_.num_workers(), job_.num_servers()));
  if (entry.tensor.name != key.name || !entry.tensor.SameExchangeAs(tensor))
    return Internal("the scheduler placed another tensor than \"" + key.name + "\"");
  placed_[entry.key] = &key;
  FindOrAddVariant(key, tensor).entry = std::make_shared<const TableEntry>(std::move(entry));
  return OkStatus();
}

void KeyTable::PlaceAlone(Variant* variant) {
  undeclared_.clear();
  if (variant->entry != nullptr) return;
  TableEntry entry;
  entry.tensor = variant->tensor;
  entry.key = KeyOfName(variant->tensor.name);
  entry.parts.push_back({static_cast<uint64_t>(variant->tensor.ElementCount()), -1});
  variant->entry = std::make_shared<const TableEntry>(std::move(entry));
}

RoundProgress KeyTable::NextRoundsToPlace() const {
  RoundProgress progress;
  for (const auto& [id, key] : placed_) {
    const bool waits = key->live != nullptr && key->live->entry == nullptr;
    progress.tensors.push_back({id, waits ? key->live->round : key->next_round});
  }
  return progress;
}

Status KeyTable::CutAgain(NewCut cut) {
  BYTEPS_RETURN_IF_ERROR(CheckEntry(cut.entry, job_.num_workers(), job_.num_servers()));
  Key& key = FindOrAdd(cut.entry.tensor.name);
  placed_[cut.entry.key] = &key;
  Variant& variant = FindOrAddVariant(key, cut.entry.tensor);
  variant.first_round_of_new_cut = cut.first_round;
  variant.new_cut = std::make_shared<const TableEntry>(std::move(cut.entry));
  return OkStatus();
}

ResumeQuery KeyTable::UnansweredOn(int32_t server, uint32_t path) const {
  ResumeQuery query;
  for (const auto& [id, key] : placed_) {
    const std::shared_ptr<Exchange>& live = key->live;
    if (live == nullptr || live->entry == nullptr) continue;
    for (uint32_t part = 0; part < live->places.size(); ++part) {
      if (live->places[part].server != server || live->part_done[part] ||
          live->sent_on[part] != static_cast<int32_t>(path))
        continue;
      query.pushes.push_back({id, part, live->round});
    }
  }
  return query;
}

ResultProgress KeyTable::NewIdleResults(int64_t now_ns) {
  ResultProgress progress;
  for (const auto& [id, key] : placed_) {
    // The last answer of a store is kept: the server may yet be lost.
    const bool has_result =
        key->live == nullptr && key->ended_ns > 0 && !key->has_failed && !key->IsStore();
    if (!has_result || key->is_reported || now_ns - key->ended_ns < kIdleNanos) continue;
    key->is_reported = true;
    progress.tensors.push_back({id, key->next_round});
  }
  return progress;
}

}  // namespace byteps
