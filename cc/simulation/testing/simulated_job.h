// SimulatedJob: a coordinator, servers and workers, the real ones, in a simulated network. What the
// workers exchange, when, and what breaks meanwhile is drawn from one seed.
//
// Checked are, after every 16 events: nobody's credit is negative; always: no mutex is locked
// twice; of each exchange: it ends once, its sum is exact and that of its round, and stays as it
// is; in the end: all credit has come back, and all processes have ended.
#ifndef TF_BYTEPS_CC_SIMULATION_TESTING_SIMULATED_JOB_H_
#define TF_BYTEPS_CC_SIMULATION_TESTING_SIMULATED_JOB_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/coded_rows.h"
#include "cc/base/mutex.h"
#include "cc/base/thread.h"
#include "cc/coordinator/coordinator.h"
#include "cc/server/server.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/store_program.h"
#include "cc/worker/worker.h"

namespace byteps {

// What came of a seed.
struct SimulationOutcome {
  std::string failure;  // empty: all was well
  uint64_t hash = 0;    // of all that happened
  uint64_t events = 0;
  std::vector<std::string> log;
  // How often it happened: a seed in which nothing does proves nothing.
  uint64_t exchanges = 0, lost_servers = 0, returned_servers = 0, retried_parts = 0,
           given_up_rounds = 0, left_trainings = 0, lost_workers = 0, gpu_exchanges = 0,
           lost_gpu_workers = 0, lost_hosts_links = 0, row_sums = 0;

  void Add(const SimulationOutcome& other) {
    for (const auto& [count, what] : kCounts) this->*count += other.*count;
  }
  std::string ToString() const {
    std::string text;
    for (const auto& [count, what] : kCounts)
      text += (text.empty() ? "" : ", ") + std::to_string(this->*count) + " " + what;
    return text;
  }

 private:
  struct Count {
    uint64_t SimulationOutcome::* count;
    const char* what;
  };
  static const Count kCounts[12];
};

inline constexpr SimulationOutcome::Count SimulationOutcome::kCounts[] = {
    {&SimulationOutcome::events, "events"},
    {&SimulationOutcome::exchanges, "exchanges"},
    {&SimulationOutcome::gpu_exchanges, "of them of GPUs"},
    {&SimulationOutcome::row_sums, "sums of rows"},
    {&SimulationOutcome::lost_servers, "lost servers, as workers saw them"},
    {&SimulationOutcome::returned_servers, "that came back"},
    {&SimulationOutcome::retried_parts, "parts pushed again"},
    {&SimulationOutcome::given_up_rounds, "rounds given up"},
    {&SimulationOutcome::left_trainings, "trainings left"},
    {&SimulationOutcome::lost_workers, "lost workers"},
    {&SimulationOutcome::lost_gpu_workers, "of them with GPUs"},
    {&SimulationOutcome::lost_hosts_links, "groups of GPUs that lost a connection"},
};

// What the workers exchange.
enum class Programs {
  kRounds,  // sums, broadcasts, gathers, alltoalls
  kStores,  // asynchronous stores (store_program.h)
};

class SimulatedJob {
 public:
  SimulatedJob(uint64_t seed, const std::function<void(SimulatedNetwork*)>& plant, bool keeps_log,
               Programs programs)
      : seed_(seed),
        programs_(programs),
        has_gpus_(programs == Programs::kRounds && seed % 5 == 3),
        schedule_(seed, keeps_log),
        network_(&schedule_) {
    if (plant) plant(&network_);
  }

  SimulationOutcome Run() {
    schedule_.AfterEvent([this] { LookAtWorkers(); });
    schedule_.Run([this] { RunJob(); });
    SimulationOutcome outcome = outcome_;
    outcome.failure = schedule_.failure();
    outcome.hash = schedule_.hash();
    outcome.events = schedule_.events_done();
    outcome.log = schedule_.log();
    return outcome;
  }

 private:
  static constexpr int64_t kMillisecond = 1000000;
  static constexpr int64_t kLongestNanos = 900 * 1000 * kMillisecond;

  struct Tensor {
    std::string name;
    ExchangeKind kind = ExchangeKind::kSum;
    int64_t elements = 0;
    int32_t root = 0;
    bool is_on_gpu = false;
  };
  // Of one worker.
  struct Sent {
    const Tensor* tensor = nullptr;
    int round = 0;
    int rank = 0;
    std::vector<float> input, output;
    std::vector<uint8_t> coded_input, coded_output;  // of a sum of rows
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
  struct ServerProcess {
    std::string name;
    std::unique_ptr<Server> server;
  };

  uint64_t Draw(uint64_t most) { return schedule_.Draw(most); }
  bool Chance(double probability) { return schedule_.Chance(probability); }
  void Expect(bool holds, const std::string& what) {
    if (!holds) schedule_.Fail(what);
  }
  void ExpectOk(const Status& status, const std::string& what) {
    Expect(status.ok(), what + ": " + status.ToString());
  }

  void DrawJob() {
    EngineOptions options;
    options.flow.part_bytes = 1024 << Draw(3);
    options.flow.credit_bytes = options.flow.part_bytes * (1 + Draw(8));
    options.timeouts.heartbeat_interval = 0.5;
    options.timeouts.heartbeat_timeout = 5;
    options.timeouts.connect_timeout = 20;
    options.timeouts.operation_timeout = 120;
    options.timeouts.shutdown_timeout = 10;
    options.network.connections_per_server = 1 + static_cast<int32_t>(Draw(3));
    options.deterministic = Chance(0.3);
    job_.job_id = "simulation";
    job_.options = options;
    job_.worker_hosts.assign(2 + Draw(1), "host");
    job_.server_hosts.assign(1 + Draw(2), "host");
    if (Chance(0.5)) job_.server_hosts.assign(job_.server_hosts.size(), "servers");
    if (has_gpus_) DrawHosts();
    const size_t tensors = 1 + Draw(3);
    for (size_t i = 0; i < tensors; ++i) {
      Tensor tensor;
      tensor.name = "t" + std::to_string(i);
      if (Chance(0.2)) tensor.kind = ExchangeKind::kBroadcast;
      // One part, which may be longer than all credit.
      else if (Chance(0.2))
        tensor.kind = seed_ % 7 == 2 ? ExchangeKind::kRowSum : ExchangeKind::kGather;
      else if (seed_ % 3 == 1 && Chance(0.3))
        tensor.kind = ExchangeKind::kAllToAll;
      tensor.elements = static_cast<int64_t>(Draw(Chance(0.3) ? 20000 : 2000));
      tensor.root = static_cast<int32_t>(Draw(job_.worker_hosts.size() - 1));
      const bool is_of_host =
          tensor.kind == ExchangeKind::kAllToAll || tensor.kind == ExchangeKind::kRowSum;
      tensor.is_on_gpu = has_gpus_ && !is_of_host && Chance(0.9);
      tensors_.push_back(tensor);
    }
    rounds_ = 3 + static_cast<int>(Draw(7));
    giver_up_.assign(rounds_, std::vector<int>(tensors, -1));
    for (int round = 1; round < rounds_; ++round) {
      for (size_t i = 0; i < tensors; ++i) {
        if (tensors_[i].kind == ExchangeKind::kSum && Chance(round + 1 == rounds_ ? 0.25 : 0.1))
          giver_up_[round][i] = static_cast<int>(Draw(job_.worker_hosts.size() - 1));
      }
    }
    if (seed_ % 5 == 2) GiveUpFirstRounds();
    if (seed_ % 7 == 4) DrawLeaver();
    pause_ns_ = static_cast<int64_t>(Draw(Chance(0.3) ? 20000 : 500)) * (kMillisecond / 1000);
    if (programs_ == Programs::kStores) {
      job_.options.deterministic = false;
      stores_.emplace(&schedule_, job_.num_workers(), job_.num_servers() == 1);
    }
  }

  // Several workers on a host, or one, each with a GPU.
  void DrawHosts() {
    static const std::vector<std::string> kHosts[] = {
        {"a", "a"}, {"a", "a", "a"}, {"a", "a", "b"},      {"a", "b", "b"},
        {"a", "b"}, {"a", "b", "a"}, {"a", "b", "a", "b"}, {"a", "a", "a", "b"}};
    job_.worker_hosts = kHosts[Draw(std::size(kHosts) - 1)];
    job_.gpus_share_hosts = Chance(0.9);
  }

  // One worker leaves in the middle of a round, the others by what they get then; all go on.
  void DrawLeaver() {
    ++outcome_.left_trainings;
    leaver_ = static_cast<int>(Draw(job_.worker_hosts.size() - 1));
    left_round_ = static_cast<int>(Draw(rounds_ - 1));
    giver_up_[left_round_].assign(tensors_.size(), -1);
  }

  // Before anything is placed under the names, for all that their worker knows. In some seeds only:
  // what is drawn in the others stays what it was.
  void GiveUpFirstRounds() {
    for (int round = 0; round < 2; ++round) {
      for (int& giver_up : giver_up_[round]) {
        if (Chance(0.4)) giver_up = static_cast<int>(Draw(job_.worker_hosts.size() - 1));
      }
    }
  }

  void RunJob() {
    DrawJob();
    schedule_.After(kLongestNanos, [this] { Expect(has_ended_, "the job does not end"); });
    coordinator_ = std::make_unique<Coordinator>(job_.options, NewVan("coordinator"));
    ExpectOk(coordinator_->Listen("", 0), "listen");
    job_.coordinator_endpoint = coordinator_->endpoint();
    for (int32_t rank = 0; rank < job_.num_servers(); ++rank) {
      AddServer("server " + std::to_string(rank));
      job_.server_endpoints.push_back(servers_.back().server->endpoint());
      current_.push_back(servers_.size() - 1);
    }
    ExpectOk(coordinator_->Start(job_), "start");
    for (int32_t rank = 0; rank < job_.num_servers(); ++rank)
      ExpectOk(servers_[rank].server->Start(job_, rank), "a server starts");
    StartWorkers();
    DrawFaults();
    for (auto& process : workers_) process->program.Join();
    EndJob();
  }

  void StartWorkers() {
    for (int32_t rank = 0; rank < job_.num_workers(); ++rank) {
      auto process = std::make_unique<WorkerProcess>();
      process->name = "worker " + std::to_string(rank);
      process->worker = std::make_unique<Worker>(job_, rank, nullptr, NewVan(process->name));
      ExpectOk(process->worker->Start(), "a worker starts");
      if (has_gpus_) {
        process->gpu = std::make_unique<SimulatedGpu>(&network_, process->name);
        ExpectOk(process->gpu->Start(process->worker.get()), "a group of GPUs starts");
      }
      workers_.push_back(std::move(process));
    }
    for (auto& process : workers_) {
      const auto rank = static_cast<int>(&process - workers_.data());
      process->program =
          Thread("program", [this, p = process.get(), rank] { RunProgram(p, rank); });
    }
  }

  // ---- programs

  static float Value(int rank, int round, const Tensor& tensor, size_t i) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 101 + 1) + 1000 * round +
                              static_cast<int>(tensor.name.back()));
  }

  void RunProgram(WorkerProcess* process, int rank) {
    if (stores_.has_value())
      RunStores(process, rank);
    else
      RunRounds(process, rank);
    process->has_ended = true;
    if (!may_fail_) AwaitEndOfAll();
    const int64_t frozen_ns = network_.FrozenUntil(process->name) - schedule_.NowNanos();
    schedule_.Sleep(std::max<int64_t>(frozen_ns, 0) + 200 * kMillisecond);
    if (!may_fail_) CheckCredit(*process);
    Count(*process);
    process->worker->Stop();
    for (const auto& sent : process->sent) Expect(sent->calls == 1, "an exchange has ended twice");
  }

  void RunStores(WorkerProcess* process, int rank) {
    const bool is_well =
        stores_->Run(process->worker.get(), rank, &outcome_.exchanges, &outcome_.given_up_rounds);
    Expect(is_well || may_fail_, stores_->failure());
  }

  void RunRounds(WorkerProcess* process, int rank) {
    bool goes_on = true;
    size_t begin = 0;  // of those that have to end
    for (int round = 0; round < rounds_ && goes_on; ++round) {
      const size_t first = process->sent.size();
      std::vector<size_t> order(tensors_.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[Draw(i - 1)]);
      if (round == left_round_ && rank == leaver_) order.resize(Draw(order.size() - 1));
      for (const size_t i : order) {
        if (round == left_round_ && HasFailed(process, first)) break;
        if (Chance(0.3)) schedule_.Sleep(static_cast<int64_t>(Draw(2 * kMillisecond)));
        if (giver_up_[round][i] == rank) {
          ++outcome_.given_up_rounds;
          process->worker->GiveUpRounds({tensors_[i].name}, "the program has left the training");
        } else {
          Enqueue(process, rank, round, tensors_[i]);
        }
      }
      if (round == left_round_ && !Leave(process, rank, first)) continue;
      FollowResults(process, begin, /*until_failure=*/false);
      for (size_t i = begin; i < process->sent.size(); ++i) Await(process, *process->sent[i]);
      for (size_t i = begin; i < process->sent.size(); ++i)
        goes_on = Check(*process, *process->sent[i]) && goes_on;
      begin = process->sent.size();
      if (pause_ns_ > 0) schedule_.Sleep(static_cast<int64_t>(Draw(pause_ns_)));
    }
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
    for (size_t i = first; i < process->sent.size() && (rank != leaver_ || Chance(0.5)); ++i) {
      MutexLock lock(process->mutex);
      while (process->sent[i]->calls == 0 && !AnyFailed(*process, first))
        process->changed.Wait(process->mutex);
    }
    std::vector<std::string> names;
    for (const Tensor& tensor : tensors_) names.push_back(tensor.name);
    process->worker->Leave(names, 1, "the program has left the training");
    if (Chance(0.3)) schedule_.Sleep(static_cast<int64_t>(Draw(20 * kMillisecond)));
    if (left_round_ + 1 < rounds_ && Chance(0.5)) return false;
    process->worker->TellLeft();
    return true;
  }

  // Who says goodbye has the others' servers end rounds that they may not have begun to recover.
  void AwaitEndOfAll() {
    while (!std::all_of(workers_.begin(), workers_.end(),
                        [](const auto& process) { return process->has_ended; }))
      schedule_.Sleep(10 * kMillisecond);
  }

  void Enqueue(WorkerProcess* process, int rank, int round, const Tensor& tensor) {
    auto sent = std::make_shared<Sent>();
    sent->tensor = &tensor;
    sent->round = round;
    const bool has_own_rows = tensor.kind == ExchangeKind::kGather ||
                              tensor.kind == ExchangeKind::kAllToAll ||
                              tensor.kind == ExchangeKind::kRowSum;
    const int64_t rows = tensor.elements + (has_own_rows ? rank : 0);
    for (int64_t i = 0; i < rows; ++i) sent->input.push_back(Value(rank, round, tensor, i));
    sent->output.assign(tensor.elements, -1);
    process->sent.push_back(sent);
    ExchangeRequest request;
    request.tensor.name = tensor.name;
    request.tensor.kind = tensor.kind;
    request.tensor.root_rank = tensor.kind == ExchangeKind::kBroadcast ? tensor.root : 0;
    request.tensor.shape = {tensor.elements};
    request.input = sent->input.data();
    request.output = sent->output.data();
    if (tensor.kind == ExchangeKind::kAllToAll) {
      for (int to = 0; to < job_.num_workers(); ++to)
        request.splits.push_back(SplitBegin(rows, to + 1) - SplitBegin(rows, to));
    }
    if (has_own_rows) {
      request.tensor.shape = {-1};
      request.gather_rows = rows;
      request.allocate_output = [raw = sent.get()](const std::vector<int64_t>& all) -> void* {
        size_t total = 0;
        for (const int64_t count : all) total += count;
        raw->output.assign(std::max<size_t>(total, 1), -1);  // never null
        return raw->output.data();
      };
    }
    if (tensor.kind == ExchangeKind::kRowSum) {
      std::map<int64_t, float> values;
      for (int64_t i = 0; i < rows; ++i) values[RowIndex(rank, i)] = sent->input[i];
      sent->coded_input = Coded(values);
      request.coded_bytes = sent->coded_input.size();
      request.input = sent->coded_input.data();
      request.allocate_output = [raw = sent.get()](const std::vector<int64_t>& sum) -> void* {
        raw->coded_output.resize(sum[1]);
        return raw->coded_output.data();
      };
    }
    sent->rank = rank;
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
    if (Chance(0.5)) {
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
    const bool is_given_up = giver_up_[sent.round][sent.tensor - tensors_.data()] >= 0;
    if (!sent.status.ok()) {
      // By the withdrawal, or by the next round's push, which may overtake it (protocol rule 31).
      const bool may_end = is_given_up || sent.round == left_round_;
      const bool is_told = may_end && (sent.status.code() == StatusCode::kCancelled ||
                                       sent.status.code() == StatusCode::kFailedPrecondition);
      Expect(may_fail_ || is_told, what + sent.status.ToString());
      return may_end;
    }
    Expect(!is_given_up, what + "complete, although a worker has given it up");
    CheckResult(what, sent);
    return true;
  }

  // The first of `rows` rows that go to worker `to` in an alltoall.
  int64_t SplitBegin(int64_t rows, int to) const {
    return rows * to * to / (job_.num_workers() * job_.num_workers());
  }

  // Which row of a sum of rows a worker's row is. Some are of several workers.
  static int64_t RowIndex(int rank, int64_t row) { return row * (rank + 1); }

  static std::vector<uint8_t> Coded(const std::map<int64_t, float>& values) {
    std::vector<int64_t> indices;
    std::vector<float> rows;
    for (const auto& [index, value] : values) {
      indices.push_back(index);
      rows.push_back(value);
    }
    std::vector<uint8_t> coded = EncodeRowIndices(indices);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(rows.data());
    coded.insert(coded.end(), bytes, bytes + rows.size() * sizeof(float));
    return coded;
  }

  std::vector<uint8_t> ExpectedSum(const Tensor& tensor, int round) const {
    std::map<int64_t, float> sums;
    for (int from = 0; from < job_.num_workers(); ++from) {
      for (int64_t i = 0; i < tensor.elements + from; ++i)
        sums[RowIndex(from, i)] += Value(from, round, tensor, i);
    }
    return Coded(sums);
  }

  std::vector<float> Expected(const Tensor& tensor, int round, int rank) const {
    std::vector<float> expected;
    if (tensor.kind == ExchangeKind::kAllToAll) {
      for (int from = 0; from < job_.num_workers(); ++from) {
        const int64_t rows = tensor.elements + from;
        for (int64_t i = SplitBegin(rows, rank); i < SplitBegin(rows, rank + 1); ++i)
          expected.push_back(Value(from, round, tensor, i));
      }
      return expected;
    }
    if (tensor.kind == ExchangeKind::kGather) {
      for (int from = 0; from < job_.num_workers(); ++from) {
        for (int64_t i = 0; i < tensor.elements + from; ++i)
          expected.push_back(Value(from, round, tensor, i));
      }
      return expected;
    }
    expected.assign(tensor.elements, 0);
    for (int from = 0; from < job_.num_workers(); ++from) {
      if (tensor.kind == ExchangeKind::kBroadcast && from != tensor.root) continue;
      for (int64_t i = 0; i < tensor.elements; ++i) expected[i] += Value(from, round, tensor, i);
    }
    return expected;
  }

  void CheckResult(const std::string& what, const Sent& sent) {
    if (sent.tensor->kind == ExchangeKind::kRowSum) {
      if (sent.coded_output != ExpectedSum(*sent.tensor, sent.round))
        schedule_.Fail(what + "the sum of rows is not that of the workers' rows");
      return;
    }
    const std::vector<float> expected = Expected(*sent.tensor, sent.round, sent.rank);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (i < sent.output.size() && sent.output[i] == expected[i]) continue;
      schedule_.Fail(what + "element " + std::to_string(i) + " is not " +
                     std::to_string(expected[i]));
    }
  }

  // ---- what must hold

  void LookAtWorkers() {
    if (++looks_ % 16 != 0) return;
    constexpr uint64_t kNegative = uint64_t{1} << 40;
    for (const auto& process : workers_) {
      const WorkerCounters counters = process->worker->counters();
      const bool is_negative =
          counters.in_flight_bytes >= kNegative || counters.unanswered_bytes >= kNegative;
      // Until it has heard that a connection has ended, what was lost with that counts, too.
      if (!is_negative && counters.in_flight_bytes >= network_.PushedBytes(process->name)) continue;
      schedule_.After(0, [this, name = process->name] {
        schedule_.Fail(name + " has been given back more credit than it had");
      });
    }
  }

  void CheckCredit(const WorkerProcess& process) {
    const WorkerCounters counters = process.worker->counters();
    const uint64_t kept_back = job_.options.flow.CreditKeptBack();
    Expect(counters.in_flight_bytes <= kept_back,
           process.name + " lacks " + std::to_string(counters.in_flight_bytes) +
               " bytes of credit at the end; servers keep back " + std::to_string(kept_back));
    Expect(counters.unanswered_bytes == 0 && counters.queued_parts == 0,
           process.name + " still waits for answers at the end");
    for (const auto& sent : process.sent) {
      if (sent->status.ok()) CheckResult(process.name + ", at the end: ", *sent);
    }
  }

  void Count(const WorkerProcess& process) {
    const WorkerCounters counters = process.worker->counters();
    outcome_.lost_servers += counters.lost_servers;
    outcome_.returned_servers += counters.returned_servers;
    outcome_.retried_parts += counters.retried_parts;
  }

  // ---- faults

  std::string DrawServer() { return servers_[current_[Draw(current_.size() - 1)]].name; }
  std::string DrawWorker() { return workers_[Draw(workers_.size() - 1)]->name; }

  void DrawFaults() {
    // With a server that has answered some of the workers the others' rows of an alltoall are lost.
    const bool needs_servers =
        std::any_of(tensors_.begin(), tensors_.end(),
                    [](const Tensor& tensor) { return tensor.kind == ExchangeKind::kAllToAll; });
    size_t may_die = needs_servers ? 0 : job_.num_servers() - 1;
    const int64_t within =
        static_cast<int64_t>(1 + Draw(3)) * (pause_ns_ + 4 * kMillisecond) * rounds_ / 2;
    const size_t faults = Draw(6);
    for (size_t i = 0; i < faults; ++i) {
      const int64_t at = static_cast<int64_t>(Draw(within));
      const uint64_t kind = Draw(has_gpus_ ? 12 : 9);
      if (kind <= 2) {
        schedule_.After(at, [this] { network_.BreakAll(DrawWorker(), DrawServer()); });
      } else if (kind == 3) {
        schedule_.After(at, [this] {
          network_.BreakAll("coordinator", Chance(0.5) ? DrawWorker() : DrawServer());
        });
      } else if (kind == 4) {
        schedule_.After(at, [this] {
          network_.Freeze(DrawWorker(), Chance(0.7) ? DrawServer() : "coordinator",
                          static_cast<int64_t>(Draw(1000)) * kMillisecond);
        });
      } else if (kind <= 8 && may_die > 0) {
        --may_die;
        schedule_.After(at, [this] { LoseServer(); });
      } else if (kind >= 10) {
        DrawFaultOfHost(kind, at);
      } else if (kind == 9 && Chance(0.5)) {
        may_fail_ = true;
        schedule_.After(at, [this] {
          ++outcome_.lost_workers;
          LoseWorker(Draw(workers_.size() - 1));
        });
      }
    }
  }

  // Between the workers of a host, or those of several: they have nothing to say to each other
  // then.
  void DrawFaultOfHost(uint64_t kind, int64_t at) {
    const std::string one = DrawWorker(), other = DrawWorker();
    if (kind <= 11) {  // reports and the log come late
      schedule_.After(at, [=] {
        network_.Freeze(one, other, static_cast<int64_t>(Draw(1000)) * kMillisecond);
      });
    } else if (Chance(0.3)) {
      may_fail_ = true;
      schedule_.After(at, [=] {
        ++outcome_.lost_hosts_links;
        network_.BreakAll(one, other);
      });
    }
  }

  void LoseWorker(size_t index) {
    network_.Kill(workers_[index]->name);
    if (workers_[index]->gpu == nullptr) return;
    ++outcome_.lost_gpu_workers;
    schedule_.Sleep(SimulatedGpu::kDeathNanos);
    if (!has_ended_) workers_[index]->gpu->OnFailure(Unavailable("this process is cut off"));
  }

  // One that has been lost and has not come again does not count as a server any more.
  void LoseServer() {
    const auto rank = static_cast<int32_t>(Draw(current_.size() - 1));
    const std::string name = servers_[current_[rank]].name;
    if (network_.IsDead(name) || has_ended_) return;
    if (Chance(0.3)) {  // only one worker loses it: what the others have of it counts
      const std::string worker = DrawWorker();
      network_.BreakAll(worker, name);
      network_.Freeze(worker, name, 3000 * kMillisecond);
    } else {
      network_.Kill(name);
    }
    if (Chance(0.5)) StartAgain(rank);
  }

  void StartAgain(int32_t rank) {
    schedule_.Sleep(static_cast<int64_t>(Draw(500)) * kMillisecond);
    for (int tries = 0; tries < 1000 && !has_ended_; ++tries) {
      const std::vector<int32_t> lost = coordinator_->lost_servers();
      if (std::find(lost.begin(), lost.end(), rank) != lost.end()) break;
      schedule_.Sleep(10 * kMillisecond);
    }
    if (has_ended_) return;
    AddServer(servers_[current_[rank]].name + "'");
    const size_t index = servers_.size() - 1;
    Server* const server = servers_[index].server.get();
    if (!coordinator_->Readmit(rank, server->endpoint(), job_.server_hosts[rank]).ok()) return;
    current_[rank] = index;
    const Status status = server->Start(job_, rank);
    schedule_.Note(servers_[index].name + " has been started again: " + status.ToString());
  }

  void AddServer(const std::string& name) {
    auto server = std::make_unique<Server>(job_.options, NewVan(name));
    ExpectOk(server->Listen("", 0), "listen");
    servers_.push_back({name, std::move(server)});
  }
  std::unique_ptr<Van> NewVan(const std::string& process) {
    return std::make_unique<SimulatedVan>(&network_, process);
  }

  void EndJob() {
    bool is_over = false;
    for (int i = 0; i < 20 && !is_over; ++i) is_over = coordinator_->Wait(10);
    Expect(is_over, "the coordinator still waits for somebody");
    has_ended_ = true;
    // Who starts a server again may be at it.
    schedule_.Sleep(30000 * kMillisecond);
    for (ServerProcess& process : servers_) process.server->Stop();
    coordinator_->Stop();
    schedule_.AfterEvent(nullptr);  // who ends waits for threads of its own
    workers_.clear();
    servers_.clear();
    coordinator_.reset();
  }

  const uint64_t seed_;
  const Programs programs_;
  const bool has_gpus_;
  EventSchedule schedule_;
  SimulatedNetwork network_;
  SimulationOutcome outcome_;
  JobDescription job_;
  std::vector<Tensor> tensors_;
  int rounds_ = 0;
  std::vector<std::vector<int>> giver_up_;  // by round and tensor; -1: nobody
  int leaver_ = -1, left_round_ = -1;       // nobody leaves
  int64_t pause_ns_ = 0;
  std::optional<StoreProgram> stores_;  // kStores
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<ServerProcess> servers_;  // all that there were
  std::vector<size_t> current_;         // by rank, of these
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  uint64_t looks_ = 0;
  bool may_fail_ = false;
  bool has_ended_ = false;
};

// After a failure, what the job was at work with stays in memory.
inline SimulationOutcome Simulate(uint64_t seed,
                                  const std::function<void(SimulatedNetwork*)>& plant = nullptr,
                                  bool keeps_log = false, Programs programs = Programs::kRounds) {
  auto job = std::make_unique<SimulatedJob>(seed, plant, keeps_log, programs);
  SimulationOutcome outcome = job->Run();
  if (!outcome.failure.empty()) {
    (void)job.release();
    SetSchedule(nullptr);
  }
  return outcome;
}

// What there is to say of a seed that failed: the end of its log, from a second run.
inline std::string Replay(uint64_t seed,
                          const std::function<void(SimulatedNetwork*)>& plant = nullptr,
                          size_t lines = 200, Programs programs = Programs::kRounds) {
  const SimulationOutcome outcome = Simulate(seed, plant, /*keeps_log=*/true, programs);
  std::string text =
      "BYTEPS_SIMULATION_SEED=" + std::to_string(seed) + ": " + outcome.failure + "\n";
  const size_t first = outcome.log.size() > lines ? outcome.log.size() - lines : 0;
  for (size_t i = first; i < outcome.log.size(); ++i) text += outcome.log[i] + "\n";
  return text;
}

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SIMULATION_TESTING_SIMULATED_JOB_H_
