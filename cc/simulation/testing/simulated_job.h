// SimulatedJob: a coordinator, servers and workers, the real ones, in a simulated network. What the
// workers exchange, when, and what breaks meanwhile is drawn from one seed.
//
// Checked are, after every 16 events: nobody's credit is negative, and no server holds more memory
// than its tensors need; always: no mutex is locked twice; of each exchange: what its program
// checks (round_program.h, store_program.h, quorum_program.h), and that its result stays as it is;
// in the end: all credit has come back, and all processes have ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/coordinator/coordinator.h"
#include "cc/server/server.h"
#include "cc/simulation/testing/drawn_job.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/job_program.h"
#include "cc/simulation/testing/quorum_program.h"
#include "cc/simulation/testing/round_program.h"
#include "cc/simulation/testing/set_program.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulated_van.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/simulation/testing/simulation_run.h"
#include "cc/simulation/testing/store_program.h"
#include "cc/simulation/testing/table_program.h"
#include "cc/worker/worker.h"

namespace byteps {

// What the workers exchange.
enum class Programs {
  kRounds,      // sums, broadcasts, gathers, alltoalls
  kStores,      // asynchronous stores (store_program.h)
  kStoreJoins,  // and with workers that join
  kQuorum,      // rounds that end when a quorum has come (quorum_program.h)
  kSets,        // all kinds of rounds among process sets (set_program.h)
  kGpuSets,     // and on hosts with several GPUs
  kJoins,       // and with workers that join
  kTables,      // a table on the servers (table_program.h)
  kElastic,     // steps of an elastic job, which is an ElasticJob (elastic_program.h)
};

class SimulatedJob final : private SimulationRun {
 public:
  SimulatedJob(uint64_t seed, const std::function<void(SimulatedNetwork*)>& plant, bool keeps_log,
               Programs programs)
      : SimulationRun(seed, keeps_log),
        seed_(seed),
        programs_(programs),
        has_gpus_(programs == Programs::kGpuSets ||
                  (programs == Programs::kRounds && seed % 5 == 3)) {
    if (seed % 13 == 10) GiveHosts();
    if (plant) plant(&network_);
  }

  SimulationOutcome Run() {
    return SimulationRun::Run([this] { RunJob(); }, [this] { LookAtProcesses(); });
  }

 private:
  static constexpr int64_t kLongestNanos = 900 * 1000 * kMillisecond;

  struct ServerProcess {
    std::string name;
    std::unique_ptr<Server> server;
  };

  // In some seeds only: what is drawn in the others stays what it was.
  void GiveHosts() {
    HostSpeeds speeds;
    speeds.nic_nanos_per_byte = static_cast<double>(1 + Draw(60));
    speeds.cpu_nanos_per_byte = static_cast<double>(Draw(60));
    speeds.frame_nanos = static_cast<int64_t>(Draw(3000));
    speeds.delay_ns = static_cast<int64_t>(10000 + Draw(300000));
    speeds.piece_bytes = uint64_t{256} << Draw(6);
    speeds.kernel_bytes = Draw(3) * speeds.piece_bytes;
    network_.GiveHosts(speeds);
  }

  void RunJob() {
    drawn_.emplace(seed_, has_gpus_, &schedule_);
    job_ = drawn_->job;
    if (programs_ == Programs::kSets || programs_ == Programs::kJoins) {
      job_.worker_hosts.assign(2 + Draw(SetProgram::kMostWorkers - 2), "host");
      job_.options.compression.min_compress_bytes = 0;
    }
    if (programs_ == Programs::kTables) job_.server_hosts.assign(2 + Draw(1), "servers");
    if (programs_ == Programs::kGpuSets) job_.options.compression.min_compress_bytes = 0;
    MakeProgram();
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

  void MakeProgram() {
    const int32_t num_workers = job_.num_workers();
    switch (programs_) {
      case Programs::kStores:
      case Programs::kStoreJoins:
        job_.options.deterministic = false;
        program_ = std::make_unique<StoreProgram>(&schedule_, num_workers, job_.num_servers() == 1,
                                                  programs_ == Programs::kStoreJoins, &outcome_);
        break;
      case Programs::kQuorum:
        job_.options.deterministic = false;
        program_ = std::make_unique<QuorumProgram>(&schedule_, num_workers, &outcome_);
        break;
      case Programs::kTables:
        program_ =
            std::make_unique<TableProgram>(&schedule_, num_workers, job_.num_servers(), &outcome_);
        break;
      case Programs::kSets:
      case Programs::kGpuSets:
      case Programs::kJoins:
        program_ = std::make_unique<SetProgram>(&schedule_, num_workers,
                                                programs_ == Programs::kJoins, &faults_, &outcome_,
                                                [this](int32_t rank) { return GpuOf(rank); });
        break;
      default: rounds_.emplace(&*drawn_, &schedule_, &faults_, &outcome_);
    }
  }

  // Null: it has none.
  SimulatedGpu* GpuOf(int32_t rank) const { return workers_[rank]->gpu.get(); }

  void RunProgram(WorkerProcess* process, int rank) {
    if (rounds_.has_value())
      rounds_->Run(process, rank);
    else
      Expect(program_->Run(process->worker.get(), rank) || MayFail(), program_->failure());
    process->has_ended = true;
    if (!MayFail()) AwaitEndOfAll();
    const int64_t frozen_ns = network_.FrozenUntil(process->name) - schedule_.NowNanos();
    schedule_.Sleep(std::max<int64_t>(frozen_ns, 0) + 200 * kMillisecond);
    if (!MayFail()) CheckWorker(*process, rank);
    Count(*process);
    process->worker->Stop();
    for (const auto& sent : process->sent) Expect(sent->calls == 1, "an exchange has ended twice");
  }

  // Who says goodbye has the others' servers end rounds that they may not have begun to recover.
  void AwaitEndOfAll() {
    while (!std::all_of(workers_.begin(), workers_.end(),
                        [](const auto& process) { return process->has_ended; }))
      schedule_.Sleep(10 * kMillisecond);
  }

  // ---- what must hold

  void LookAtProcesses() {
    const uint64_t bytes = rounds_.has_value() ? drawn_->ResultBytes() : program_->ResultBytes();
    for (const ServerProcess& process : servers_)
      LookAtServer(process.name, *process.server, job_.num_workers(), bytes);
    for (const auto& process : workers_) LookAtWorker(process->name, *process->worker);
  }

  bool MayFail() const { return faults_.has_lost_worker; }

  void CheckWorker(const WorkerProcess& process, int32_t rank) {
    CheckCredit(process.name + " ", "the end", *process.worker, job_.options.flow.CreditKeptBack());
    for (const auto& sent : process.sent) {
      if (sent->status.ok()) rounds_->CheckResult(process.name + ", at the end: ", *sent);
    }
    if (program_ != nullptr) program_->CheckEnd(rank);
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
    // With a server that has answered some of the workers the others' rows of an alltoall are lost,
    // and results that those who are behind have yet to get.
    const bool needs_servers =
        rounds_.has_value() &&
        std::any_of(drawn_->tensors.begin(), drawn_->tensors.end(), [](const auto& tensor) {
          return tensor.kind == ExchangeKind::kAllToAll || tensor.backup_workers > 0;
        });
    size_t may_die = needs_servers ? 0 : job_.num_servers() - 1;
    if (programs_ == Programs::kTables) may_die = 6;  // each several times
    const int64_t within = static_cast<int64_t>(1 + Draw(3)) *
                           (drawn_->pause_ns + 4 * kMillisecond) * drawn_->rounds / 2;
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
                          DrawMilliseconds(1000));
        });
      } else if (kind <= 8 && may_die > 0) {
        --may_die;
        schedule_.After(at, [this] { LoseServer(); });
      } else if (kind >= 10) {
        DrawFaultOfHost(kind, at);
      } else if (kind == 9 && Chance(0.5)) {
        faults_.has_lost_worker = true;
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
      schedule_.After(at, [=] { network_.Freeze(one, other, DrawMilliseconds(1000)); });
    } else if (Chance(0.3)) {
      faults_.has_lost_worker = true;
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
    if (programs_ == Programs::kTables) return LoseServerOfTable();
    const auto rank = static_cast<int32_t>(Draw(current_.size() - 1));
    const std::string name = servers_[current_[rank]].name;
    if (network_.IsDead(name) || has_ended_) return;
    faults_.has_lost_server = true;
    if (Chance(0.3)) {  // only one worker loses it: what the others have of it counts
      const std::string worker = DrawWorker();
      network_.BreakAll(worker, name);
      network_.Freeze(worker, name, 3000 * kMillisecond);
    } else {
      network_.Kill(name);
    }
    if (Chance(0.5)) StartAgain(rank);
  }

  // When all of its rows are on other servers, too.
  void LoseServerOfTable() {
    int32_t rank = 0;
    const auto may_lose = [&] {
      rank = static_cast<int32_t>(Draw(current_.size() - 1));
      return !network_.IsDead(servers_[current_[rank]].name) && program_->MayLose(rank);
    };
    while (!has_ended_ && !may_lose()) schedule_.Sleep(10 * kMillisecond);
    if (has_ended_) return;
    faults_.has_lost_server = true;
    program_->OnLose();
    network_.Kill(servers_[current_[rank]].name);
    if (current_.size() == 2 || Chance(0.6)) StartAgain(rank);
  }

  void StartAgain(int32_t rank) {
    schedule_.Sleep(DrawMilliseconds(500));
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
  JobDescription job_;
  std::optional<DrawnJob> drawn_;
  std::optional<RoundProgram> rounds_;   // kRounds
  std::unique_ptr<JobProgram> program_;  // else
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<ServerProcess> servers_;  // all that there were
  std::vector<size_t> current_;         // by rank, of these
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  JobFaults faults_;
  bool has_ended_ = false;
};

}  // namespace byteps
