// ServedTensors: all tensors that a server has parts of.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/server/served_part.h"
#include "cc/server/served_tensor.h"
#include "cc/wire/control.h"

namespace byteps {

// A part, and the variant of its tensor that a push is of.
struct FoundPart {
  ServedTensor* tensor = nullptr;
  const TableEntry* entry = nullptr;
  // Null: the push was made by an old placement. Nobody waits for it, and it is dropped.
  std::shared_ptr<ServedPart> part;
  bool is_first_part = false;
};

// Thread-safe. Tensors are added, never removed: a pointer to one stays valid.
class ServedTensors {
 public:
  // `part_options`: of all parts, but for what a tensor says itself.
  ServedTensors(int32_t server_rank, const ServedPart::Options& part_options)
      : server_rank_(server_rank), part_options_(part_options) {}

  // See SummationService.
  Status AddEntries(const std::vector<TableEntry>& entries);
  Status MoveParts(const PartsMoved& moved);

  // What a push is of. Messages do not say who pushed: texts are made only for pushes that are
  // refused.
  Status Find(const FrameHeader& header, FoundPart* found) const;
  // INVALID_ARGUMENT if there is none here, without a text. Null: it has moved.
  Status FindResumed(uint64_t key, uint32_t part, FoundPart* found) const;
  std::vector<std::pair<ServedTensor*, std::shared_ptr<ServedPart>>> AllParts() const;
  // The same, each with the variant that its tensor has used last.
  std::vector<FoundPart> AllFound() const;

  void OnResultProgress(const std::vector<RoundProgress::Tensor>& all_have) const;

  // Calls `function` with each tensor.
  template <typename Function>
  void ForEach(const Function& function) const {
    ReaderLock lock(mutex_);
    for (const auto& [key, tensor] : tensors_) function(*tensor);
  }

 private:
  Status AddAll(const std::vector<TableEntry>& entries) BYTEPS_REQUIRES(mutex_);
  Status AddEntry(const TableEntry& entry) BYTEPS_REQUIRES(mutex_);
  void DropMoved(const PartsMoved& moved) BYTEPS_REQUIRES(mutex_);
  void GoOnWith(const PartsMoved& moved) BYTEPS_REQUIRES(mutex_);

  const int32_t server_rank_;
  const ServedPart::Options part_options_;
  mutable SharedMutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<ServedTensor>> tensors_
      BYTEPS_GUARDED_BY(mutex_);  // by key
};

}  // namespace byteps
