// SetExchange: an exchange of a SetTensor by one worker, and its end. SetResults: what has come of
// those of all workers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/simulation/testing/set_tensor.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/tensor_values.h"
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
  bool is_of_gpu = false;
  Status status;

  // `on_end` is called in `done`. By the GPU, if there is one that can.
  static std::shared_ptr<SetExchange> Begin(Worker* worker, const SetTensor& tensor, int64_t round,
                                            std::function<void()> on_end,
                                            SimulatedGpu* gpu = nullptr) {
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
    begun->is_of_gpu = gpu != nullptr && tensor.CanBeOnGpu() && gpu->CanExchange(request.tensor);
    if (begun->is_of_gpu)
      gpu->Enqueue(std::move(request), nullptr);
    else
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

class SetResults {
 public:
  // What is wrong with that of worker `rank`, if `from` have given something; empty: nothing.
  std::string FindFault(const SetExchange& sent, const SetTensor::Ranks& from, int32_t rank) {
    const SetTensor& tensor = *sent.tensor;
    const std::string& codec = tensor.description.codec;
    if (!codec.empty() && tensor.IsSum()) {
      const auto [first, is_first] =
          rounded_.emplace(std::make_pair(tensor.number, sent.round), sent.output);
      if (!is_first && first->second != sent.output)
        return "has not the same result on all workers";
      const bool is_near =
          MayBeRounded(codec, tensor.Reduced(sent.round, from), ValuesOf<float>(sent.output));
      return is_near ? "" : "is further off than " + codec + " rounds";
    }
    std::vector<int64_t> row_counts;
    const std::vector<uint8_t> expected = tensor.Expected(sent.round, from, rank, &row_counts);
    if (sent.output != expected) return "has not the result of its round";
    return sent.row_counts == row_counts ? "" : "has other rows of the workers";
  }

 private:
  // What the first worker got, by tensor and round.
  std::map<std::pair<size_t, int64_t>, std::vector<uint8_t>> rounded_;
};

}  // namespace byteps
