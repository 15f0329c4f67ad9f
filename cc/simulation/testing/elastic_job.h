// ElasticJob: an elastic job in a simulated network: the real coordinator, servers and workers of
// each epoch, and in place of Python an ElasticRendezvous. Which processes are lost, come, leave or
// are cut off, and what breaks, is drawn from one seed.
//
// Checked are, after every 16 events: nobody's credit is negative, and no server holds more memory
// than its tensors need; always: what elastic_program.h checks, no mutex is locked twice, and
// nobody is taken for lost who is neither lost nor cut off; where a worker leaves an epoch in which
// nobody was lost: all credit has come back; in the end: somebody has made all steps, and all
// processes have ended.
#ifndef TF_BYTEPS_CC_SIMULATION_TESTING_ELASTIC_JOB_H_
#define TF_BYTEPS_CC_SIMULATION_TESTING_ELASTIC_JOB_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/server/server.h"
#include "cc/simulation/testing/drawn_job.h"
#include "cc/simulation/testing/elastic_program.h"
#include "cc/simulation/testing/elastic_rendezvous.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulated_van.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/simulation/testing/simulation_run.h"
#include "cc/worker/worker.h"

namespace byteps {

class ElasticJob final : private SimulationRun {
 public:
  ElasticJob(uint64_t seed, const std::function<void(SimulatedNetwork*)>& plant, bool keeps_log)
      : SimulationRun(seed, keeps_log) {
    if (plant) plant(&network_);
  }

  SimulationOutcome Run() {
    return SimulationRun::Run([this] { RunJob(); }, [this] { LookAtProcesses(); });
  }

 private:
  static constexpr int64_t kLongestNanos = 1800 * 1000 * kMillisecond;
  static constexpr size_t kMostWorkers = 4;

  struct Process {
    std::string name;
    bool is_server = false;
    std::unique_ptr<Worker> worker;  // of the present epoch
    std::unique_ptr<Server> server;
    ElasticState state;
    bool has_ended = false;
    Thread main;
  };

  void RunJob() {
    job_.job_id = "simulation";
    job_.options = DrawnJob::DrawOptions(&schedule_);
    job_.options.server_failover = Chance(0.8);
    job_.server_hosts.assign(1 + Draw(2), Chance(0.5) ? "host" : "servers");
    if (Chance(0.6)) network_.ReusePorts();
    const size_t num_workers = 1 + Draw(2);
    rendezvous_.emplace(job_, num_workers, job_.server_hosts.size(), kMostWorkers, &network_);
    program_.emplace(
        &schedule_, &*rendezvous_, [this](const ElasticEpoch& epoch) { return MayFail(epoch); },
        &outcome_);
    faults_left_ = static_cast<int>(Draw(6));
    schedule_.After(kLongestNanos, [this] { Expect(has_ended_, "the job does not end"); });
    rendezvous_->OnBegun([this] { DrawFaultOfStart(); });
    for (size_t i = 0; i < job_.server_hosts.size(); ++i) StartServer();
    for (size_t i = 0; i < num_workers; ++i) StartWorker();
    schedule_.After(0, [this] { RunFaults(); });
    rendezvous_->Run();
    has_ended_ = true;
    for (size_t i = 0; i < processes_.size(); ++i) processes_[i]->main.Join();
    EndJob();
  }

  // ---- processes

  void StartWorker() {
    Process* const process = AddProcess("worker " + std::to_string(workers_started_++));
    process->main = Thread("worker", [this, process] { RunWorker(process); });
  }
  void StartServer() {
    Process* const process = AddProcess("server " + std::to_string(servers_started_++));
    process->is_server = true;
    process->main = Thread("server", [this, process] { RunServer(process); });
  }
  Process* AddProcess(const std::string& name) {
    processes_.push_back(std::make_unique<Process>());
    processes_.back()->name = name;
    return processes_.back().get();
  }
  std::unique_ptr<Van> NewVan(const std::string& process) {
    return std::make_unique<SimulatedVan>(&network_, process);
  }

  void RunWorker(Process* process) {
    schedule_.BelongTo(process->name);
    ElasticSession session;
    session.name = process->name;
    while (true) {
      ElasticEpoch* const epoch = rendezvous_->Join(process->name, nullptr, &session.rank);
      if (epoch == nullptr) break;
      session.epoch = epoch;
      process->worker =
          std::make_unique<Worker>(epoch->job, session.rank, nullptr, NewVan(process->name));
      session.worker = process->worker.get();
      const auto end = RunEpoch(&session, &process->state);
      if (end == ElasticProgram::End::kDone && !network_.IsDead(process->name)) {
        outcome_.done_workers += 1;
        Expect(process->state.now.step == program_->steps(), "a worker is done too early");
        rendezvous_->SayDone(process->name);
      }
      CheckSession(session, end);
      epoch->any_has_left = true;
      Count(*session.worker);
      process->worker->Stop();
      program_->CheckEnd(session);
      CheckLoss(session);
      session.sent.clear();
      if (end == ElasticProgram::End::kDone || network_.IsDead(process->name)) break;
    }
    rendezvous_->OnEnd(process->name);
    process->has_ended = true;
  }

  ElasticProgram::End RunEpoch(ElasticSession* session, ElasticState* state) {
    const Status status = session->worker->Start();
    if (status.ok()) return program_->Run(session, state);
    ++outcome_.failed_starts;
    Expect(MayFail(*session->epoch), session->What() + "it does not start: " + status.ToString());
    schedule_.Sleep(500 * kMillisecond);
    return ElasticProgram::End::kError;
  }

  void RunServer(Process* process) {
    schedule_.BelongTo(process->name);
    while (true) {
      auto server = std::make_unique<Server>(job_.options, NewVan(process->name));
      (void)server->Listen("", 0);
      int32_t rank = 0;
      const Endpoint listens_at = server->endpoint();
      ElasticEpoch* const epoch = rendezvous_->Join(process->name, &listens_at, &rank);
      if (epoch == nullptr) break;
      process->server = std::move(server);
      const Status status = process->server->Start(epoch->job, rank);
      if (status.ok()) {
        rendezvous_->SayReady(process->name);
        while (!process->server->Wait(0.2)) {
        }
      } else {
        Expect(MayFail(*epoch), process->name + " does not start: " + status.ToString());
        rendezvous_->GiveUp(process->name);
      }
      process->server->Stop();
      if (network_.IsDead(process->name)) break;
    }
    rendezvous_->OnEnd(process->name);
    process->has_ended = true;
  }

  void EndJob() {
    Expect(outcome_.done_workers > 0, "nobody has made all steps");
    outcome_.epochs = rendezvous_->epoch()->number;
    schedule_.AfterEvent(nullptr);
    processes_.clear();
  }

  // ---- what must hold

  bool IsLost(const std::string& process) const {
    return network_.IsDead(process) || cut_off_.count(process) > 0;
  }

  // Whether exchanges of an epoch may fail. Whoever leaves takes along what the others may need
  // when a server is lost.
  bool MayFail(const ElasticEpoch& epoch) const {
    const auto is_lost = [this](const std::string& name) { return IsLost(name); };
    if (epoch.is_interrupted || epoch.lacks_server || IsLost("coordinator")) return true;
    if (std::any_of(epoch.workers.begin(), epoch.workers.end(), is_lost)) return true;
    const auto lost = std::count_if(epoch.servers.begin(), epoch.servers.end(), is_lost);
    const bool is_needed = !epoch.job.MayLoseServers() || epoch.any_has_left ||
                           lost == static_cast<std::ptrdiff_t>(epoch.servers.size());
    return lost > 0 && is_needed;
  }

  void CheckLoss(const ElasticSession& session) {
    const std::optional<LostPeer> lost = session.worker->lost_peer();
    if (!lost.has_value()) return;
    ++outcome_.lost_sessions;
    const std::string& name = session.epoch->NameOf(lost->role, lost->rank);
    const bool may_be = IsLost(name) || IsLost(session.name) || IsLost("coordinator");
    Expect(may_be || session.epoch->has_ended,
           session.What() + name + " is taken for lost: " + session.worker->failure().ToString());
  }

  void Count(const Worker& worker) {
    const WorkerCounters counters = worker.counters();
    outcome_.lost_servers += counters.lost_servers;
    outcome_.retried_parts += counters.retried_parts;
  }

  void CheckSession(const ElasticSession& session, ElasticProgram::End end) {
    const auto is_lost = [this](const std::string& name) { return IsLost(name); };
    const std::vector<std::string>& servers = session.epoch->servers;
    if (end == ElasticProgram::End::kError || Chance(0.5)) return;
    const int64_t frozen_ns = network_.FrozenUntil(session.name) - schedule_.NowNanos();
    schedule_.Sleep(std::max<int64_t>(frozen_ns, 0) + 200 * kMillisecond);
    if (MayFail(*session.epoch) || std::any_of(servers.begin(), servers.end(), is_lost)) return;
    CheckCredit(session.What(), "its end", *session.worker, job_.options.flow.CreditKeptBack());
  }

  void LookAtProcesses() {
    for (const auto& process : processes_) {
      if (process->server != nullptr)
        LookAtServer(process->name, *process->server, kMostWorkers, program_->ResultBytes());
      if (process->worker != nullptr) LookAtWorker(process->name, *process->worker);
    }
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
      const uint64_t steps_long = program_->steps() * (program_->pause_ns() / 1000000 + 4);
      schedule_.Sleep(Chance(0.7) ? DrawMilliseconds(steps_long / 2) : DrawMilliseconds(8000));
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
      if (server != nullptr) LoseServer(server);
    } else if (kind == 7) {
      if (server != nullptr && Chance(0.3)) {
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

  JobDescription job_;  // what all epochs have in common
  std::optional<ElasticRendezvous> rendezvous_;
  std::optional<ElasticProgram> program_;
  std::vector<std::unique_ptr<Process>> processes_;  // all that there were
  std::set<std::string> cut_off_;                    // now, or once
  int workers_started_ = 0, servers_started_ = 0;
  int faults_left_ = 0;
  size_t sent_away_ = 0;
  bool has_ended_ = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SIMULATION_TESTING_ELASTIC_JOB_H_
