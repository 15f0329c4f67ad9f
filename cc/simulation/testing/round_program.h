// RoundProgram: what workers do in a SimulatedJob, but for asynchronous stores (store_program.h):
// sums, broadcasts, gathers, alltoalls and sums of rows, round for round.
//
// Checked of each exchange: it ends once, with an exact result of its own round, or with an error
// where there may be one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/thread.h"
#include "cc/simulation/testing/drawn_job.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/job_program.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/simulation/testing/tensor_values.h"
#include "cc/worker/worker.h"

namespace byteps {

// An exchange of one worker.
struct Sent {
  const DrawnJob::Tensor* tensor = nullptr;
  int round = 0;
  int rank = 0;
  std::vector<float> input, output;
  std::vector<uint8_t> coded_input, coded_output;  // of a sum of rows, or not of float32
  int calls = 0;
  Status status;
  // On a GPU: whether a stream is to wait for the result, and for what, as soon as that is known.
  bool must_be_followed = false;
  bool is_submitted = false;
  DeviceEvent end;
};

struct WorkerProcess {
  std::string name;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<SimulatedGpu> gpu;  // null: it has none
  Mutex mutex;
  CondVar changed;
  std::vector<std::shared_ptr<Sent>> sent;  // all of them
  bool has_ended = false;
  Thread program;
};

class RoundProgram {
 public:
  // All outlive it.
  RoundProgram(const DrawnJob* drawn, EventSchedule* schedule, const JobFaults* faults,
               SimulationOutcome* outcome)
      : drawn_(*drawn), schedule_(*schedule), faults_(*faults), outcome_(*outcome) {}

  // What worker `rank` does.
  void Run(WorkerProcess* process, int rank) {
    if (rank == drawn_.leaver) ++outcome_.left_trainings;
    bool goes_on = true;
    size_t begin = 0;  // of those that have to end
    for (int round = 0; round < drawn_.rounds && goes_on; ++round) {
      const size_t first = process->sent.size();
      std::vector<size_t> order(drawn_.tensors.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[Draw(i - 1)]);
      if (round == drawn_.left_round && rank == drawn_.leaver) order.resize(Draw(order.size() - 1));
      for (const size_t i : order) {
        if (round == drawn_.left_round && HasFailed(process, first)) break;
        if (Chance(0.3)) schedule_.Sleep(static_cast<int64_t>(Draw(2 * DrawnJob::kMillisecond)));
        if (drawn_.giver_up[round][i] == rank) {
          ++outcome_.given_up_rounds;
          process->worker->GiveUpRounds({drawn_.tensors[i].name},
                                        "the program has left the training");
        } else {
          Enqueue(process, rank, round, drawn_.tensors[i]);
        }
      }
      if (round == drawn_.left_round && !Leave(process, rank, first)) continue;
      if (drawn_.overlaps && round % 3 < 2 && round + 1 < drawn_.rounds) continue;
      FollowResults(process, begin, /*until_failure=*/false);
      for (size_t i = begin; i < process->sent.size(); ++i) Await(process, *process->sent[i]);
      for (size_t i = begin; i < process->sent.size(); ++i)
        goes_on = Check(*process, *process->sent[i]) && goes_on;
      begin = process->sent.size();
      if (drawn_.pause_ns > 0) schedule_.Sleep(static_cast<int64_t>(Draw(drawn_.pause_ns)));
    }
  }

  void CheckResult(const std::string& what, const Sent& sent) {
    if (sent.tensor->kind == ExchangeKind::kRowSum) {
      if (sent.coded_output != drawn_.ExpectedSum(*sent.tensor, sent.round))
        schedule_.Fail(what + "the sum of rows is not that of the workers' rows");
      return;
    }
    const DrawnJob::Tensor& tensor = *sent.tensor;
    if (tensor.backup_workers > 0 || !tensor.codec.empty()) return CheckForm(what, sent);
    const std::vector<float> expected = drawn_.Expected(tensor, sent.round, sent.rank);
    const bool is_float = tensor.dtype == DType::kFloat32;
    const std::vector<float> values =
        is_float ? std::vector<float>() : ValuesOf(tensor.dtype, sent.coded_output);
    const std::vector<float>& got = is_float ? sent.output : values;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (i < got.size() && got[i] == expected[i]) continue;
      schedule_.Fail(what + "element " + std::to_string(i) + " is not " +
                     std::to_string(expected[i]));
    }
  }

 private:
  // What is rounded, or of some of the workers, but the same on all of them.
  void CheckForm(const std::string& what, const Sent& sent) {
    const DrawnJob::Tensor& tensor = *sent.tensor;
    const auto [first, is_first] =
        results_.emplace(std::make_pair(&tensor, sent.round), sent.output);
    if (!is_first && first->second != sent.output)
      return schedule_.Fail(what + "the result is not the same on all workers");
    if (tensor.backup_workers == 0) {
      if (!MayBeRounded(tensor.codec, drawn_.Expected(tensor, sent.round, sent.rank), sent.output))
        schedule_.Fail(what + "the sum is further off than " + tensor.codec + " rounds");
      return;
    }
    const int workers = drawn_.job.num_workers();
    for (size_t i = 0; i < sent.output.size(); ++i) {
      std::vector<float> given;
      for (int rank = 0; rank < workers; ++rank)
        given.push_back(DrawnJob::Value(rank, sent.round, tensor, i));
      if (IsAverageOfSome(given, workers - tensor.backup_workers, sent.output[i])) continue;
      return schedule_.Fail(what + "the result is not the average of enough of the workers");
    }
  }

  uint64_t Draw(uint64_t most) { return schedule_.Draw(most); }
  bool Chance(double probability) { return schedule_.Chance(probability); }
  void Expect(bool holds, const std::string& what) {
    if (!holds) schedule_.Fail(what);
  }

  // Whether one has failed of those from `first` on, which is the end of a step.
  static bool HasFailed(WorkerProcess* process, size_t first) {
    MutexLock lock(process->mutex);
    return AnyFailed(*process, first);
  }
  static bool AnyFailed(const WorkerProcess& process, size_t first) {
    return std::any_of(process.sent.begin() + static_cast<std::ptrdiff_t>(first),
                       process.sent.end(), [](const auto& sent) { return !sent->status.ok(); });
  }

  // By an error of its own, or when one of the exchanges from `first` on has failed. Nobody waits
  // for the rest. False if the others learn of it with the next exchange only.
  bool Leave(WorkerProcess* process, int rank, size_t first) {
    FollowResults(process, first, /*until_failure=*/true);
    for (size_t i = first; i < process->sent.size() && (rank != drawn_.leaver || Chance(0.5));
         ++i) {
      MutexLock lock(process->mutex);
      while (process->sent[i]->calls == 0 && !AnyFailed(*process, first))
        process->changed.Wait(process->mutex);
    }
    std::vector<std::string> names;
    for (const DrawnJob::Tensor& tensor : drawn_.tensors) names.push_back(tensor.name);
    process->worker->Leave(names, 1, "the program has left the training");
    if (Chance(0.3)) schedule_.Sleep(static_cast<int64_t>(Draw(20 * DrawnJob::kMillisecond)));
    if (drawn_.left_round + 1 < drawn_.rounds && Chance(0.5)) return false;
    process->worker->TellLeft();
    return true;
  }

  void Enqueue(WorkerProcess* process, int rank, int round, const DrawnJob::Tensor& tensor) {
    auto sent = std::make_shared<Sent>();
    sent->tensor = &tensor;
    sent->round = round;
    const bool has_own_rows = tensor.kind == ExchangeKind::kGather ||
                              tensor.kind == ExchangeKind::kAllToAll ||
                              tensor.kind == ExchangeKind::kRowSum;
    const int64_t rows = tensor.elements + (has_own_rows ? rank : 0);
    for (int64_t i = 0; i < rows; ++i) sent->input.push_back(drawn_.Value(rank, round, tensor, i));
    sent->output.assign(tensor.elements, -1);
    process->sent.push_back(sent);
    ExchangeRequest request;
    request.tensor.name = tensor.name;
    request.tensor.kind = tensor.kind;
    request.tensor.root_rank = tensor.kind == ExchangeKind::kBroadcast ? tensor.root : 0;
    request.tensor.shape = {tensor.elements};
    request.tensor.dtype = tensor.dtype;
    request.tensor.codec = tensor.codec;
    request.tensor.backup_workers = tensor.backup_workers;
    request.tensor.average = tensor.backup_workers > 0;
    request.input = sent->input.data();
    request.output = sent->output.data();
    if (tensor.dtype != DType::kFloat32) {
      sent->coded_input = BytesOf(tensor.dtype, sent->input);
      sent->coded_output.resize(sent->coded_input.size());
      request.input = sent->coded_input.data();
      request.output = sent->coded_output.data();
    }
    if (!tensor.codec.empty()) ++outcome_.coded_sums;
    if (tensor.backup_workers > 0) ++outcome_.backup_averages;
    if (tensor.kind == ExchangeKind::kAllToAll) {
      for (int to = 0; to < drawn_.job.num_workers(); ++to)
        request.splits.push_back(drawn_.SplitBegin(rows, to + 1) - drawn_.SplitBegin(rows, to));
    }
    sent->rank = rank;
    if (has_own_rows) PrepareRows(sent.get(), &request);
    request.keep_alive = sent;
    request.done = [process, raw = sent.get()](const Status& status) {
      MutexLock lock(process->mutex);
      raw->status = status;
      ++raw->calls;
      process->changed.NotifyAll();
    };
    ++outcome_.exchanges;
    if (tensor.kind == ExchangeKind::kRowSum) ++outcome_.row_sums;
    const bool is_on_gpu = tensor.is_on_gpu && process->gpu->CanExchange(request.tensor);
    if (!is_on_gpu) return process->worker->Enqueue(std::move(request));
    ++outcome_.gpu_exchanges;
    std::function<void(const DeviceEvent&)> on_submitted;
    if (drawn_.overlaps || Chance(0.5)) {
      on_submitted = [process, raw = sent.get()](const DeviceEvent& end) {
        MutexLock lock(process->mutex);
        raw->is_submitted = true;
        raw->end = end;
        process->changed.NotifyAll();
      };
    }
    sent->must_be_followed = on_submitted != nullptr;
    process->gpu->Enqueue(std::move(request), std::move(on_submitted));
  }

  // Of an exchange to which each worker gives as many rows as it has.
  static void PrepareRows(Sent* sent, ExchangeRequest* request) {
    const auto rows = static_cast<int64_t>(sent->input.size());
    request->tensor.shape = {-1};
    request->gather_rows = rows;
    if (sent->tensor->kind == ExchangeKind::kRowSum) return PrepareRowSum(sent, request);
    request->allocate_output = [sent](const std::vector<int64_t>& all) -> void* {
      size_t total = 0;
      for (const int64_t count : all) total += count;
      sent->output.assign(std::max<size_t>(total, 1), -1);  // never null
      return sent->output.data();
    };
  }

  static void PrepareRowSum(Sent* sent, ExchangeRequest* request) {
    std::map<int64_t, float> values;
    for (size_t i = 0; i < sent->input.size(); ++i)
      values[DrawnJob::RowIndex(sent->rank, static_cast<int64_t>(i))] = sent->input[i];
    sent->coded_input = DrawnJob::Coded(values);
    request->coded_bytes = sent->coded_input.size();
    request->input = sent->coded_input.data();
    request->allocate_output = [sent](const std::vector<int64_t>& sum) -> void* {
      sent->coded_output.resize(sum[1]);
      return sent->coded_output.data();
    };
  }

  // Has the GPU's stream copy what comes of the exchanges from `first` on, or has nobody wait for
  // it. All that the GPU has to do before is on its streams when the first one waits.
  void FollowResults(WorkerProcess* process, size_t first, bool until_failure) {
    for (size_t i = first; i < process->sent.size(); ++i) {
      Sent& sent = *process->sent[i];
      DeviceEvent end;
      {
        MutexLock lock(process->mutex);
        while (sent.must_be_followed && sent.calls == 0 && !sent.is_submitted &&
               !(until_failure && AnyFailed(*process, first)))
          process->changed.Wait(process->mutex);
        end = std::move(sent.end);
      }
      if (end != nullptr) process->gpu->Follow(end.get());
    }
  }

  void Await(WorkerProcess* process, const Sent& sent) {
    MutexLock lock(process->mutex);
    while (sent.calls == 0) process->changed.Wait(process->mutex);
  }

  // Whether the program goes on.
  bool Check(const WorkerProcess& process, const Sent& sent) {
    const std::string what =
        process.name + ", " + sent.tensor->name + ", round " + std::to_string(sent.round) + ": ";
    Expect(sent.calls == 1, what + "ended " + std::to_string(sent.calls) + " times");
    // That the ranks of a host launch different collectives, say.
    Expect(sent.status.code() != StatusCode::kInternal, what + sent.status.ToString());
    const bool is_given_up = drawn_.giver_up[sent.round][sent.tensor - drawn_.tensors.data()] >= 0;
    if (!sent.status.ok()) {
      // By the withdrawal, or by the next round's push, which may overtake it (protocol rule 31).
      const bool may_end = is_given_up || sent.round == drawn_.left_round;
      // Or by a server that does not know why a round has no result.
      const bool is_lost =
          faults_.has_lost_server && sent.status.code() == StatusCode::kUnavailable;
      const bool is_told = may_end && (is_lost || sent.status.code() == StatusCode::kCancelled ||
                                       sent.status.code() == StatusCode::kFailedPrecondition);
      Expect(faults_.has_lost_worker || is_told, what + sent.status.ToString());
      return may_end;
    }
    Expect(!is_given_up, what + "complete, although a worker has given it up");
    CheckResult(what, sent);
    return true;
  }

  const DrawnJob& drawn_;
  EventSchedule& schedule_;
  const JobFaults& faults_;
  SimulationOutcome& outcome_;
  // Of rounds whose result can be several, by tensor: what the first worker got.
  std::map<std::pair<const DrawnJob::Tensor*, int>, std::vector<float>> results_;
};

}  // namespace byteps
