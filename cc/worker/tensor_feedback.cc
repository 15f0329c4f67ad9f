#include "cc/worker/tensor_feedback.h"

#include <atomic>
#include <numeric>
#include <optional>
#include <utility>

#include "cc/base/logging.h"
#include "cc/base/mutex.h"
#include "cc/codec/part_forms.h"

namespace byteps {
namespace {

std::vector<uint64_t> LengthsOf(const TableEntry& entry) {
  std::vector<uint64_t> lengths;
  lengths.reserve(entry.parts.size());
  for (const PartPlacement& part : entry.parts) lengths.push_back(part.element_count);
  return lengths;
}

// A worker of another epoch had residuals; they ended with it, but for those that were restored.
void NoteEpoch(uint32_t epoch, bool is_restored) {
  static Mutex& mutex = *new Mutex;
  static std::optional<uint32_t> last;
  MutexLock lock(mutex);
  if (last.has_value() && *last != epoch && !is_restored)
    LogWarning("the workers have changed: error feedback of compressed gradients begins at zero",
               {"feedback_reset", {}});
  last = epoch;
}

// Whether it does.
bool GoesOnWith(const Residual& kept, const TableEntry& entry, TensorFeedback* feedback) {
  if (feedback != nullptr && feedback->Begin(kept)) return true;
  static std::atomic<bool> was_said{false};
  if (!was_said.exchange(true)) {
    LogWarning(
        "tensor \"" + entry.tensor.name + "\" (" + entry.tensor.ToString() +
            "), and perhaps others, has another codec or length than what was saved of it, " +
            std::to_string(kept.values.size()) + " elements of " + kept.codec +
            ": error feedback begins at zero",
        {"feedback_reset", {}});
  }
  return false;
}

}  // namespace

TensorFeedback::TensorFeedback(const TableEntry& entry)
    : codec_(entry.tensor.codec), lengths_(LengthsOf(entry)), parts_(lengths_.size()) {}

bool TensorFeedback::IsOf(const TableEntry& entry) const {
  return codec_ == entry.tensor.codec && lengths_ == LengthsOf(entry);
}

Residual TensorFeedback::residual() const {
  Residual all;
  all.codec = codec_;
  all.values.resize(std::accumulate(lengths_.begin(), lengths_.end(), uint64_t{0}));
  float* next = all.values.data();
  for (size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].Read(lengths_[part], next);
    next += lengths_[part];
  }
  return all;
}

bool TensorFeedback::Begin(const Residual& residual) {
  const uint64_t elements = std::accumulate(lengths_.begin(), lengths_.end(), uint64_t{0});
  if (residual.codec != codec_ || residual.values.size() != elements) return false;
  const float* next = residual.values.data();
  for (size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].Begin(next, lengths_[part]);
    next += lengths_[part];
  }
  return true;
}

void RenewFeedback(const TableEntry& entry, uint32_t epoch,
                   std::shared_ptr<TensorFeedback>* feedback, std::unique_ptr<Residual>* restored) {
  const std::shared_ptr<TensorFeedback> before = *feedback;
  const bool wants_some = FormsOf(entry.tensor).wants_feedback();
  const bool is_same = before != nullptr && before->IsOf(entry);
  if (!is_same) *feedback = wants_some ? std::make_shared<TensorFeedback>(entry) : nullptr;
  std::unique_ptr<Residual> kept;
  if (!entry.tensor.codec.empty()) kept = std::move(*restored);
  const bool is_restored = kept != nullptr && GoesOnWith(*kept, entry, feedback->get());
  if (is_same) return;
  if (wants_some) NoteEpoch(epoch, is_restored);
  if (is_restored || before == nullptr) return;
  if (wants_some && (*feedback)->Begin(before->residual())) return;
  LogInfo("tensor \"" + entry.tensor.name +
          "\" has another codec: its error feedback begins at zero");
}

}  // namespace byteps
