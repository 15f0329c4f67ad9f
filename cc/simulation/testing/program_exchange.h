// ProgramExchange: an exchange of int64 elements by a program in a SimulatedJob, and its end.
// ExchangeEnd: that of any exchange.
// ProgramBarrier: where the programs of all workers come together, without an exchange.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/worker/worker.h"

namespace byteps {

// Whether an exchange has ended, how often, and how.
struct ExchangeEnd {
  Mutex mutex;
  CondVar changed;
  int calls = 0;
  Status status;

  void Done(const Status& of_exchange) {
    MutexLock lock(mutex);
    status = of_exchange;
    ++calls;
    changed.NotifyAll();
  }

  Status Await() {
    MutexLock lock(mutex);
    while (calls == 0) changed.Wait(mutex);
    return status;
  }
};

struct ProgramExchange : ExchangeEnd {
  std::vector<int64_t> input, output;

  // `request` says what the exchange is; its shape and memory are those of `input`.
  static std::shared_ptr<ProgramExchange> Begin(Worker* worker, ExchangeRequest request,
                                                std::vector<int64_t> input) {
    auto begun = std::make_shared<ProgramExchange>();
    begun->input = std::move(input);
    begun->output.assign(begun->input.size(), -1);
    request.tensor.dtype = DType::kInt64;
    request.tensor.shape = {static_cast<int64_t>(begun->input.size())};
    request.input = begun->input.data();
    request.output = begun->output.data();
    request.keep_alive = begun;
    request.done = [raw = begun.get()](const Status& status) { raw->Done(status); };
    worker->Enqueue(std::move(request));
    return begun;
  }
};

class ProgramBarrier {
 public:
  ProgramBarrier(EventSchedule* schedule, int32_t num_workers)
      : schedule_(*schedule), met_(num_workers, 0) {}

  // All workers have come so far. False: one has failed.
  bool Meet(int32_t rank) {
    const int meeting = ++met_[rank];
    while (!has_failed_ &&
           std::any_of(met_.begin(), met_.end(), [meeting](int each) { return each < meeting; }))
      schedule_.Sleep(1000000);
    return !has_failed_;
  }
  void Fail() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }

 private:
  EventSchedule& schedule_;
  std::vector<int> met_;  // meetings, by worker
  bool has_failed_ = false;
};

}  // namespace byteps
