// ElasticJob: an elastic job in a simulated network: the real coordinator, servers and workers of
// each epoch, and in place of Python an ElasticRendezvous. Which processes are lost, come, leave or
// are cut off, and what breaks, is drawn from one seed.
//
// Checked are, after every 16 events: nobody's credit is negative, and no server holds more memory
// than its tensors need; always: what elastic_program.h checks, no mutex is locked twice, and
// nobody is taken for lost who is neither lost nor cut off; where a worker leaves an epoch in which
// nobody was lost: all credit has come back; in the end: somebody has made all steps, and all
// processes have ended.
#pragma once

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
#include "cc/simulation/testing/elastic_faults.h"
#include "cc/simulation/testing/elastic_program.h"
#include "cc/simulation/testing/elastic_rendezvous.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulated_van.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/simulation/testing/simulation_run.h"
#include "cc/worker/worker.h"

namespace byteps {

class ElasticJob final : private ElasticFaults {
 public:
  ElasticJob(uint64_t seed, const std::function<void(SimulatedNetwork*)>& plant, bool keeps_log)
      : ElasticFaults(seed, keeps_log),
        has_forms_(seed % 10 == 5 || seed % 10 == 7),
        has_gpus_(seed % 5 == 4) {
    keeps_servers_ = seed % 10 == 1 || seed % 10 == 2;
    if (plant) plant(&network_);
  }

  SimulationOutcome Run() {
    return SimulationRun::Run([this] { RunJob(); }, [this] { LookAtProcesses(); });
  }

 private:
  static constexpr int64_t kLongestNanos = 1800 * 1000 * kMillisecond;
  void RunJob() {
    job_.job_id = "simulation";
    job_.options = DrawnJob::DrawOptions(&schedule_);
    job_.options.server_failover = Chance(0.8);
    job_.gpus_share_hosts = has_gpus_;
    if (has_forms_ || has_gpus_) job_.options.compression.min_compress_bytes = 0;
    job_.server_hosts.assign(1 + Draw(2), Chance(0.5) ? "host" : "servers");
    if (Chance(0.6)) network_.ReusePorts();
    const size_t num_workers = 1 + Draw(2);
    rendezvous_.emplace(job_, num_workers, job_.server_hosts.size(), kMostWorkers, &network_);
    program_.emplace(
        &schedule_, has_forms_ || (has_gpus_ && Chance(0.7)), has_gpus_, keeps_servers_,
        &*rendezvous_, [this](const ElasticEpoch& epoch) { return MayFail(epoch); }, &outcome_);
    faults_left_ = static_cast<int>(Draw(6));
    schedule_.After(kLongestNanos, [this] { Expect(has_ended_, "the job does not end"); });
    rendezvous_->OnBegun([this] { DrawFaultOfStart(); });
    steps_nanos_ = program_->steps() * (program_->pause_ns() / kMillisecond + 4) * kMillisecond;
    for (size_t i = 0; i < job_.server_hosts.size(); ++i) StartServer();
    for (size_t i = 0; i < num_workers; ++i) StartWorker();
    schedule_.After(0, [this] { RunFaults(); });
    rendezvous_->Run();
    has_ended_ = true;
    for (size_t i = 0; i < processes_.size(); ++i) processes_[i]->main.Join();
    EndJob();
  }

  // ---- processes

  void StartWorker() override {
    Process* const process = AddProcess("worker " + std::to_string(workers_started_++));
    if (has_gpus_) rendezvous_->SetHost(process->name, Chance(0.7) ? "a" : "b");
    process->main = Thread("worker", [this, process] { RunWorker(process); });
  }
  void StartServer() override {
    Process* const process = AddProcess("server " + std::to_string(servers_started_++));
    process->is_server = true;
    process->main = Thread("server", [this, process] { RunServer(process); });
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
      process->gpu.reset();
      process->worker =
          std::make_unique<Worker>(epoch->job, session.rank, nullptr, NewVan(process->name));
      session.worker = process->worker.get();
      const auto end = RunEpoch(process, &session);
      if (end == ElasticProgram::End::kDone && !network_.IsDead(process->name)) {
        outcome_.done_workers += 1;
        Expect(process->state.now.step == program_->steps(), "a worker is done too early");
        rendezvous_->SayDone(process->name);
      }
      CheckSession(session, end);
      epoch->any_has_left = true;
      Count(*session.worker);
      process->worker->Stop(ReasonToGoBack(session, end, epoch));
      program_->CheckEnd(session);
      CheckLoss(session);
      session.sent.clear();
      session.of_steps.clear();
      if (end == ElasticProgram::End::kDone || network_.IsDead(process->name)) break;
    }
    rendezvous_->OnEnd(process->name);
    process->has_ended = true;
  }

  // As elastic.run has it: what the others do not hear of otherwise.
  static std::string ReasonToGoBack(const ElasticSession& session, ElasticProgram::End end,
                                    ElasticEpoch* epoch) {
    if (end != ElasticProgram::End::kError || !session.worker->failure().ok()) return "";
    epoch->is_given_up = true;
    return "it goes back to its last commit";
  }

  ElasticProgram::End RunEpoch(Process* process, ElasticSession* session) {
    Status status = session->worker->Start();
    if (status.ok() && has_gpus_) {
      process->gpu = std::make_unique<SimulatedGpu>(&network_, process->name);
      status = process->gpu->Start(session->worker);
    }
    session->gpu = process->gpu.get();
    if (status.ok()) return program_->Run(session, &process->state);
    ++outcome_.failed_starts;
    Expect(MayFail(*session->epoch), session->What() + "it does not start: " + status.ToString());
    schedule_.Sleep(500 * kMillisecond);
    return ElasticProgram::End::kError;
  }

  void RunServer(Process* process) {
    schedule_.BelongTo(process->name);
    const auto kept = std::make_shared<KeptTables>();
    while (true) {
      auto server = std::make_unique<Server>(job_.options, NewVan(process->name), kept);
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

  // Whether exchanges of an epoch may fail. Whoever leaves takes along what the others may need
  // when a server is lost.
  bool MayFail(const ElasticEpoch& epoch) const {
    const auto is_lost = [this](const std::string& name) { return IsLost(name); };
    if (epoch.is_interrupted || epoch.lacks_server || epoch.is_given_up || IsLost("coordinator"))
      return true;
    if (std::any_of(epoch.workers.begin(), epoch.workers.end(), is_lost)) return true;
    const auto lost = std::count_if(epoch.servers.begin(), epoch.servers.end(), is_lost);
    // Of an alltoall nobody has what another worker lacks.
    const bool is_needed = !epoch.job.MayLoseServers() || epoch.any_has_left ||
                           program_->has_alltoalls() ||
                           lost == static_cast<std::ptrdiff_t>(epoch.servers.size());
    return lost > 0 && is_needed;
  }

  void CheckLoss(const ElasticSession& session) {
    const std::optional<LostPeer> lost = session.worker->lost_peer();
    if (!lost.has_value()) return;
    ++outcome_.lost_sessions;
    const std::string& name = session.epoch->NameOf(lost->role, lost->rank);
    const bool may_be = IsLost(name) || IsLost(session.name) || IsLost("coordinator");
    Expect(may_be || session.epoch->is_given_up || session.epoch->has_ended,
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
        LookAtServer(process->name, *process->server, kMostWorkers,
                     program_->ResultBytes(kMostWorkers));
      if (process->worker != nullptr) LookAtWorker(process->name, *process->worker);
    }
  }

  // In some seeds only: what is drawn in the others stays what it was.
  const bool has_forms_, has_gpus_;
  JobDescription job_;  // what all epochs have in common
  std::optional<ElasticProgram> program_;
};

}  // namespace byteps
