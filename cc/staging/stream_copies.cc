#include "cc/staging/stream_copies.h"

#include <chrono>
#include <thread>
#include <utility>

namespace byteps {
namespace {

// What a program has copied is marked with the next exchange that it begins, or after this time.
constexpr auto kMarkPatience = std::chrono::milliseconds(1);

}  // namespace

void StreamCopies::WhenCopied(CudaStreamHandle stream, RankDevice::Done done) {
  {
    MutexLock lock(mutex_);
    std::vector<RankDevice::Done>& copied = copied_[stream];
    copied.push_back(std::move(done));
    if (copied.size() > 1) return;
  }
  recorder_.Add([this, stream] {
    std::this_thread::sleep_for(kMarkPatience);
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
