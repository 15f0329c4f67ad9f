// The way back of sums that the device decodes. Those that come soon after each other, of any
// tensors, are one launch: it has to wait for those by which TensorFlow puts its own work on the
// GPU, and they for it.
#include <chrono>
#include <utility>

#include "cc/staging/local_group.h"

namespace byteps {
namespace {

// A sum waits so long for others. At 10 Gbit/s as many come meanwhile as one launch takes, of thc
// in parts of 0.5 MB.
constexpr auto kPatience = std::chrono::microseconds(500);

}  // namespace

// Called by a thread that brings results.
void LocalGroup::DecodeSoon(const PartPointer& part, bool is_encoded) {
  if (!is_encoded) part->sum_form = DeviceForm();
  size_t count = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    arrived_.push_back(part);
    count = arrived_.size();
  }
  if (count == kPartsTogether) fills_launch_.notify_one();
  if (count == 1) decoder_.Add([this] { DecodeArrived(); });
}

void LocalGroup::DecodeArrived() {
  while (true) {
    const std::vector<PartPointer> parts = TakeArrived();
    if (parts.empty()) return;
    Decode(parts);
  }
}

// Those of one launch. None if there are none left, else it waits for more.
std::vector<PartPointer> LocalGroup::TakeArrived() {
  std::vector<PartPointer> taken;
  std::unique_lock<std::mutex> lock(mutex_);
  if (arrived_.empty()) return taken;
  fills_launch_.wait_for(lock, kPatience, [this] { return arrived_.size() >= kPartsTogether; });
  while (!arrived_.empty() && taken.size() < kPartsTogether) {
    taken.push_back(std::move(arrived_.front()));
    arrived_.pop_front();
  }
  return taken;
}

// What is launched together ends together.
void LocalGroup::Decode(const std::vector<PartPointer>& parts) {
  std::vector<PartPointer> begun;
  std::vector<ArrivedPart> arrived;
  for (const PartPointer& part : parts) {
    if (!BeginStep(part->tensor)) continue;
    begun.push_back(part);
    arrived.push_back({part->output.get(), part->sum_form, part->span.count, part->span.to});
  }
  if (begun.empty()) return;
  const auto start = [&](const RankDevice::Done& done) {
    return device_->DecodeToDevice(arrived, done);
  };
  Launch(start, [this, begun](const Status& status) {
    Hold();  // what is reported of them goes together
    for (const PartPointer& part : begun)
      EndStep(part->tensor, status, [this, part] { OnCopiedIn(part); });
    Release();
  });
}

}  // namespace byteps
