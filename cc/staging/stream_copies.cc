#include "cc/staging/stream_copies.h"

#include <utility>

#include "cc/base/clock.h"

namespace byteps {
namespace {

// What a program has copied is marked with the next exchange that it begins, or after this time.
constexpr int64_t kMarkPatienceNanos = 1'000'000;

}  // namespace

void StreamCopies::WhenCopied(CudaStreamHandle stream, RankDevice::Done done) {
  {
    MutexLock lock(mutex_);
    std::vector<RankDevice::Done>& copied = copied_[stream];
    copied.push_back(std::move(done));
    if (copied.size() > 1) return;
  }
  recorder_.Add([this, stream] {
    SleepFor(kMarkPatienceNanos);
    Record(stream);
  });
}

void StreamCopies::Record(CudaStreamHandle stream) {
  std::vector<RankDevice::Done> copied;
  {
    MutexLock lock(mutex_);
    const auto found = copied_.find(stream);
    if (found == copied_.end()) return;
    copied = std::move(found->second);
    copied_.erase(found);
  }
  const auto all = [copied](const Status& result) {
    for (const RankDevice::Done& each : copied) each(result);
  };
  steps_.Launch([&](const RankDevice::Done& done) { return device_->WhenComputed(stream, done); },
                all);
}

}  // namespace byteps
