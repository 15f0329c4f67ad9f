#include "cc/gpu/sequencer.h"

#include <iterator>
#include <string>
#include <utility>

namespace byteps {

Sequencer::Sequencer(int32_t local_size, ResultsFrom results_from,
                     std::function<void(const LogSlice&)> publish,
                     std::function<void(const Status&)> fail)
    : publish_(std::move(publish)), fail_(std::move(fail)), log_(local_size, results_from) {
  thread_ = Thread("byteps-sequence", [this] { Run(); });
}

Sequencer::~Sequencer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.Join();
}

void Sequencer::Add(std::vector<LaunchReport> reports) {
  {
    MutexLock lock(mutex_);
    std::move(reports.begin(), reports.end(), std::back_inserter(reports_));
  }
  changed_.NotifyOne();
}

void Sequencer::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && reports_.empty()) changed_.Wait(mutex_);
    if (stopping_) return;
    std::vector<LaunchReport> reports;
    reports.swap(reports_);
    lock.Unlock();
    for (const LaunchReport& report : reports) {
      const Status status = log_.Add(report);
      if (!status.ok()) return fail_(status);
    }
    const LogSlice slice = log_.TakeNew();
    if (!slice.entries.empty()) publish_(slice);
    lock.Lock();
  }
}

Status LogFollower::Receive(const LogSlice& slice) {
  if (slice.first != next_) {
    return Internal("the launch log goes on at entry " + std::to_string(slice.first) +
                    ", but entry " + std::to_string(next_) + " is the next one");
  }
  for (const LaunchEntry& entry : slice.entries) {
    BYTEPS_RETURN_IF_ERROR(launch_(entry));
    ++next_;
  }
  return OkStatus();
}

}  // namespace byteps
