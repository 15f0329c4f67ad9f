// ElasticFaults: the processes of an ElasticJob, and what happens to them: which are lost, come,
// are sent away or are cut off, and what breaks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cc/base/thread.h"
#include "cc/server/server.h"
#include "cc/simulation/testing/elastic_program.h"
#include "cc/simulation/testing/elastic_rendezvous.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulation_run.h"
#include "cc/worker/worker.h"

namespace byteps {

class ElasticFaults : protected SimulationRun {
 protected:
  static constexpr size_t kMostWorkers = 4;

  struct Process {
    std::string name;
    bool is_server = false;
    std::unique_ptr<Worker> worker;     // of the present epoch
    std::unique_ptr<SimulatedGpu> gpu;  // the same; null: it has none
    std::unique_ptr<Server> server;
    ElasticState state;
    bool has_ended = false;
    Thread main;
  };

  using SimulationRun::SimulationRun;
  virtual ~ElasticFaults() = default;

  virtual void StartWorker() = 0;
  virtual void StartServer() = 0;

  Process* AddProcess(const std::string& name) {
    processes_.push_back(std::make_unique<Process>());
    processes_.back()->name = name;
    return processes_.back().get();
  }

  bool IsLost(const std::string& process) const {
    return network_.IsDead(process) || cut_off_.count(process) > 0;
  }

  // ---- faults

  std::vector<Process*> Living(bool are_servers) {
    std::vector<Process*> living;
    for (const auto& process : processes_) {
      if (process->is_server == are_servers && !process->has_ended && !IsLost(process->name))
        living.push_back(process.get());
    }
    return living;
  }
  // Null: there is none.
  Process* DrawProcess(bool is_server) {
    const std::vector<Process*> living = Living(is_server);
    return living.empty() ? nullptr : living[Draw(living.size() - 1)];
  }

  // One after the other; some together, and some when those before are over.
  void RunFaults() {
    while (!has_ended_ && faults_left_ > 0) {
      const auto steps_ms = static_cast<uint64_t>(steps_nanos_ / kMillisecond);
      schedule_.Sleep(Chance(0.7) ? DrawMilliseconds(steps_ms / 2) : DrawMilliseconds(8000));
      if (has_ended_ || faults_left_ <= 0) return;
      --faults_left_;
      Break();
    }
  }

  // When the workers of an epoch have just been told of it.
  void DrawFaultOfStart() {
    if (faults_left_ <= 0 || Chance(0.7)) return;
    --faults_left_;
    schedule_.After(DrawMilliseconds(30), [this] {
      if (!has_ended_) Break();
    });
  }

  void Break() {
    const uint64_t kind = Draw(18);
    Process* const worker = DrawProcess(/*is_server=*/false);
    Process* const server = DrawProcess(/*is_server=*/true);
    if (kind <= 4) {
      if (worker != nullptr) LoseWorker(worker);
    } else if (kind <= 6) {
      if (server != nullptr && !keeps_servers_) LoseServer(server);
    } else if (kind == 7) {
      if (server != nullptr && !keeps_servers_ && Chance(0.3)) {
        NoteLossOfServer(server->name);
        CutOff(server->name);
      } else if (worker != nullptr) {
        CutOff(worker->name);
      }
    } else if (kind == 8 && Chance(0.3)) {
      CutOff("coordinator");
    } else if (kind <= 10) {
      if (Living(/*are_servers=*/false).size() < kMostWorkers) StartOneMore();
    } else if (kind <= 12) {
      if (Living(/*are_servers=*/false).size() > sent_away_ + 1) SendAway(worker);
    } else if (kind <= 15) {
      if (worker != nullptr && server != nullptr) BreakLink(*worker, *server);
    } else if (worker != nullptr) {
      CutOff(worker->name);
    }
  }

  void LoseWorker(Process* worker) {
    KillWorker(worker);
    Process* const other = DrawProcess(/*is_server=*/false);
    if (other != nullptr && Chance(0.2)) KillWorker(other);
  }
  // bpslaunch starts another one.
  void KillWorker(Process* worker) {
    ++outcome_.lost_workers;
    if (worker->gpu != nullptr) ++outcome_.lost_gpu_workers;
    Kill(worker->name);
    schedule_.After(DrawMilliseconds(2000), [this] {
      if (Living(/*are_servers=*/false).size() < kMostWorkers) StartOneMore();
    });
  }
  void LoseServer(Process* server) {
    ++outcome_.killed_servers;
    NoteLossOfServer(server->name);
    Kill(server->name);
    schedule_.After(DrawMilliseconds(2000), [this] {
      if (!has_ended_) StartServer();
    });
  }
  // While workers are still to come, the coordinator does not go on without a server.
  void NoteLossOfServer(const std::string& name) {
    ElasticEpoch* const epoch = rendezvous_->epoch();
    if (epoch == nullptr) return;
    for (const std::string& worker : epoch->workers) {
      const bool is_here = network_.IsConnected(worker, "coordinator");
      epoch->lacks_server = epoch->lacks_server || (!is_here && Has(epoch->servers, name));
    }
  }
  static bool Has(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  void Kill(const std::string& process) {
    if (Chance(0.2))
      network_.KillHost(process);
    else
      network_.Kill(process);
  }
  void StartOneMore() {
    if (has_ended_ || (rendezvous_->any_is_done() && !Living(/*are_servers=*/false).empty()))
      return;
    ++outcome_.new_workers;
    StartWorker();
  }
  void SendAway(Process* worker) {
    ++outcome_.workers_sent_away;
    ++sent_away_;
    rendezvous_->SendAway(worker->name);
  }

  // For longer than the heartbeat timeout: the others take it for lost, and it comes again.
  void CutOff(const std::string& process) {
    ++outcome_.cut_off_processes;
    cut_off_.insert(process);
    const int64_t nanos = 5000 * kMillisecond + DrawMilliseconds(Chance(0.7) ? 1200 : 6000);
    if (process == "coordinator" || Chance(0.4))
      network_.CutOff(process, nanos);
    else
      schedule_.Stop(process, nanos);
  }

  void BreakLink(const Process& worker, const Process& server) {
    const std::string& one = Chance(0.7) ? worker.name : server.name;
    const std::string other = &one == &worker.name && Chance(0.6) ? server.name : "coordinator";
    if (Chance(0.5))
      network_.BreakAll(one, other);
    else
      network_.Freeze(one, other, DrawMilliseconds(1000));
  }

  std::optional<ElasticRendezvous> rendezvous_;
  std::vector<std::unique_ptr<Process>> processes_;  // all that there were
  std::set<std::string> cut_off_;                    // now, or once
  int workers_started_ = 0, servers_started_ = 0;
  int faults_left_ = 0;
  int64_t steps_nanos_ = 0;  // how long all steps take, about
  size_t sent_away_ = 0;
  bool has_ended_ = false;
  bool keeps_servers_ = false;  // they have rows of a table, and none is lost
};

}  // namespace byteps
