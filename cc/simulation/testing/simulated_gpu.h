// SimulatedGpu: a worker's GPU (staging/testing/cpu_rank_device.h) in a SimulatedJob, with the real
// group of its host's GPUs. How long each of its steps takes is drawn.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulated_van.h"
#include "cc/staging/local_group.h"
#include "cc/staging/testing/cpu_rank_device.h"

namespace byteps {

class SimulatedGpu {
 public:
  // After so long, who is cut off sees that by itself, in place of pings.
  static constexpr int64_t kDeathNanos = 5'000'000'000;

  // `process`: the worker's.
  SimulatedGpu(SimulatedNetwork* network, std::string process)
      : network_(*network), schedule_(network->schedule()), process_(std::move(process)) {}

  Status Start(Worker* worker) {
    auto device = std::make_shared<CpuRankDevice>();
    device_ = device.get();
    device->Delay([pace = std::make_shared<Pace>(&network_, process_)] { pace->Delay(); });
    if (schedule_.Chance(0.2)) device->WaitForNothing();
    return LocalGroup::Create(worker, std::move(device), &group_,
                              std::make_unique<SimulatedVan>(&network_, process_));
  }

  bool CanExchange(const TensorDescription& tensor) const { return group_->CanExchange(tensor); }

  // The input is computed later, and so in another order than that of other ranks.
  void Enqueue(ExchangeRequest request, std::function<void(const DeviceEvent& end)> on_submitted) {
    const bool is_gather = request.tensor.kind == ExchangeKind::kGather;
    const size_t bytes = request.tensor.ByteCount() * (is_gather ? request.gather_rows : 1);
    void* const input = const_cast<void*>(request.input);
    const std::string values(static_cast<const char*>(input), bytes);
    if (!is_gather && schedule_.Chance(0.5)) request.input = request.output;  // in place
    void* const computed = const_cast<void*>(request.input);
    if (bytes > 0) std::memset(computed, 0x7f, bytes);
    const auto takes =
        static_cast<int64_t>(schedule_.Draw(schedule_.Chance(0.3) ? 3000000 : 30000));
    device_->Compute([=, &schedule = schedule_, keep = request.keep_alive] {
      schedule.Sleep(takes);
      if (bytes > 0) std::memcpy(computed, values.data(), bytes);
    });
    group_->Enqueue(nullptr, std::move(request), std::move(on_submitted));
  }

  // A stream waits for what `end` is the end of, and copies it, or nobody does. It may have failed.
  void Follow(StreamEvent* end) {
    if (!end->IsOfHost()) return;
    if (schedule_.Chance(0.1)) return end->EndByItself();
    (void)end->MakeStreamWait(nullptr);
  }

  void OnFailure(const Status& reason) { group_->OnFailure(reason); }

 private:
  // How fast the device is, which may be at work for longer than this: its worker holds the group.
  class Pace {
   public:
    Pace(SimulatedNetwork* network, std::string process)
        : network_(*network), schedule_(network->schedule()), process_(std::move(process)) {}

    // Of a step, or of a call, which waits for whoever else uses the device.
    void Delay() {
      if (network_.IsDead(process_)) {  // it does nothing more, until it is aborted
        if (dead_ns_ == 0) dead_ns_ = schedule_.NowNanos();
        if (schedule_.NowNanos() < dead_ns_ + kDeathNanos)
          schedule_.Sleep(dead_ns_ + kDeathNanos - schedule_.NowNanos());
      }
      if (schedule_.Chance(0.3)) schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(100000)));
      if (schedule_.Chance(0.001)) schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(300000000)));
    }

   private:
    SimulatedNetwork& network_;
    EventSchedule& schedule_;
    const std::string process_;
    int64_t dead_ns_ = 0;  // since when; 0: it is not
  };

  SimulatedNetwork& network_;
  EventSchedule& schedule_;
  const std::string process_;
  CpuRankDevice* device_ = nullptr;  // the group's
  std::shared_ptr<LocalGroup> group_;
};

}  // namespace byteps
