#include "cc/worker/tensor_feedback.h"

#include <mutex>
#include <optional>

#include "cc/base/logging.h"
#include "cc/codec/part_forms.h"

namespace byteps {
namespace {

std::vector<uint64_t> LengthsOf(const TableEntry& entry) {
  std::vector<uint64_t> lengths;
  lengths.reserve(entry.parts.size());
  for (const PartPlacement& part : entry.parts) lengths.push_back(part.element_count);
  return lengths;
}

// A worker of another epoch had residuals; they ended with it.
void NoteEpoch(uint32_t epoch) {
  static std::mutex& mutex = *new std::mutex;
  static std::optional<uint32_t> last;
  std::lock_guard<std::mutex> lock(mutex);
  if (last.has_value() && *last != epoch)
    LogWarning("the workers have changed: error feedback of compressed gradients begins at zero",
               {"feedback_reset", {}});
  last = epoch;
}

}  // namespace

TensorFeedback::TensorFeedback(const TableEntry& entry)
    : codec_(entry.tensor.codec), lengths_(LengthsOf(entry)), parts_(lengths_.size()) {}

bool TensorFeedback::IsOf(const TableEntry& entry) const {
  return codec_ == entry.tensor.codec && lengths_ == LengthsOf(entry);
}

void RenewFeedback(const TableEntry& entry, uint32_t epoch,
                   std::shared_ptr<TensorFeedback>* feedback) {
  const bool had_some = *feedback != nullptr;
  if (had_some && (*feedback)->IsOf(entry)) return;
  const bool wants_some = FormsOf(entry.tensor).wants_feedback();
  *feedback = wants_some ? std::make_shared<TensorFeedback>(entry) : nullptr;
  if (wants_some) NoteEpoch(epoch);
  if (!had_some) return;
  LogInfo("tensor \"" + entry.tensor.name +
          "\" has another codec or other parts: its error feedback begins at zero");
}

}  // namespace byteps
