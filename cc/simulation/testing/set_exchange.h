// SetExchange: an exchange of a SetTensor by one worker, and its end.
#ifndef TF_BYTEPS_CC_SIMULATION_TESTING_SET_EXCHANGE_H_
#define TF_BYTEPS_CC_SIMULATION_TESTING_SET_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/simulation/testing/set_tensor.h"
#include "cc/worker/worker.h"

namespace byteps {

struct SetExchange {
  const SetTensor* tensor = nullptr;
  int64_t round = 0;
  std::vector<uint8_t> input, output;
  std::vector<int64_t> row_counts;  // of a gather or an alltoall
  Mutex mutex;
  CondVar changed;
  int calls = 0;
  Status status;

  // `on_end` is called in `done`.
  static std::shared_ptr<SetExchange> Begin(Worker* worker, const SetTensor& tensor, int64_t round,
                                            std::function<void()> on_end) {
    auto begun = std::make_shared<SetExchange>();
    begun->tensor = &tensor;
    begun->round = round;
    begun->input = tensor.Input(round, worker->rank());
    ExchangeRequest request;
    request.tensor = tensor.description;
    request.input = begun->input.data();
    if (tensor.description.HasOwnRows()) {
      begun->PrepareRows(worker->rank(), &request);
    } else {
      begun->output.assign(tensor.description.ByteCount(), 0xee);
      request.output = begun->output.data();
    }
    request.keep_alive = begun;
    request.done = [raw = begun.get(), on_end = std::move(on_end)](const Status& status) {
      MutexLock lock(raw->mutex);
      raw->status = status;
      ++raw->calls;
      if (on_end) on_end();
      raw->changed.NotifyAll();
    };
    worker->Enqueue(std::move(request));
    return begun;
  }

  Status Await() {
    MutexLock lock(mutex);
    while (calls == 0) changed.Wait(mutex);
    return status;
  }

 private:
  // Each worker gives as many as it has.
  void PrepareRows(int32_t rank, ExchangeRequest* request) {
    request->gather_rows = tensor->RowsOf(round, rank);
    const bool is_row_sum = tensor->description.kind == ExchangeKind::kRowSum;
    if (is_row_sum) request->coded_bytes = input.size();
    if (tensor->description.kind == ExchangeKind::kAllToAll)
      request->splits = tensor->Splits(round, rank);
    request->allocate_output = [this, is_row_sum](const std::vector<int64_t>& all) -> void* {
      uint64_t bytes = 0;
      if (is_row_sum) {
        bytes = all[1];
      } else {
        row_counts = all;
        for (const int64_t each : all) bytes += each * tensor->description.ByteCount();
      }
      output.reserve(1);  // never null
      output.assign(bytes, 0xee);
      return output.data();
    };
  }
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SIMULATION_TESTING_SET_EXCHANGE_H_
