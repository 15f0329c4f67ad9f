#include "cc/server/server.h"

#include <algorithm>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

constexpr int64_t kFarewellNanos = 500 * int64_t{1000000};

}  // namespace

Server::Server(const EngineOptions& options, std::unique_ptr<Van> van,
               std::shared_ptr<KeptTables> kept)
    : options_(options), van_(std::move(van)), kept_(std::move(kept)) {
  if (van_ == nullptr) van_ = NewVan(VanOptionsOf(options));
}

Server::~Server() { Stop(); }

Status Server::Listen(const std::string& address, uint16_t port) {
  return van_->Listen(address, port, this, &endpoint_);
}

Status Server::Start(const JobDescription& job, int32_t rank) {
  CoordinatorLink* link = nullptr;
  {
    MutexLock lock(mutex_);
    if (link_ != nullptr) return FailedPrecondition("this server has joined a job already");
    job_ = job;
    rank_ = rank;
    SummationService::Options service_options;
    service_options.server_rank = rank;
    service_options.num_workers = job.num_workers();
    service_options.worker_hosts = job.worker_hosts;
    service_options.epoch = job.epoch;
    // Each of a worker's connections keeps back so much.
    service_options.least_credit_frame = std::max<uint64_t>(
        1, job.options.flow.CreditKeptBack() / (job.num_servers() * job.PathsPerServer()));
    service_options.asks_for_parts = job.HasLinks();
    service_options.in_rank_order = job.options.deterministic;
    service_options.max_lag = job.options.max_lag;
    service_options.registry = van_->memory_registry();
    service_options.kept = kept_;
    service_ = std::make_shared<SummationService>(service_options);
    link_ = std::make_unique<CoordinatorLink>(
        [this](const ControlMessage& message) { OnMessage(message); },
        [this](const Status& reason) { OnCoordinatorLost(reason); });
    link = link_.get();
  }
  BYTEPS_RETURN_IF_ERROR(van_->Expect(1 + job.num_workers() * job.PathsPerServer()));
  BYTEPS_RETURN_IF_ERROR(link->Start(van_.get(), job, Role::kServer, rank));
  if (job.num_workers() > 1) {
    reports_.Start("byteps-arrivals", job.options.timeouts.heartbeat_interval,
                   [this](int64_t) { service_->ReportArrivals(); });
  }
  return OkStatus();
}

bool Server::Wait(double timeout) {
  MutexLock lock(mutex_);
  const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(timeout);
  while (!over_) {
    const int64_t left_ns = deadline_ns - MonotonicNanos();
    if (left_ns <= 0) return false;
    changed_.WaitFor(mutex_, left_ns);
  }
  // Not to close the connections before the workers have read why.
  const int64_t farewell_ns = MonotonicNanos() + kFarewellNanos;
  while (coordinator_lost_ && !stopped_ && MonotonicNanos() < farewell_ns)
    changed_.WaitFor(mutex_, farewell_ns - MonotonicNanos());
  return true;
}

std::string Server::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

SummationCounters Server::counters() const {
  MutexLock lock(mutex_);
  return service_ ? service_->counters() : SummationCounters();
}

std::vector<TensorCounters> Server::tensor_counters() const {
  MutexLock lock(mutex_);
  return service_ ? service_->tensor_counters() : std::vector<TensorCounters>();
}

std::vector<WorkerLag> Server::arrival_lags() const {
  MutexLock lock(mutex_);
  return service_ ? service_->arrival_lags() : std::vector<WorkerLag>();
}

ServerTimeline* Server::timeline() {
  MutexLock lock(mutex_);
  return service_ ? &service_->timeline() : nullptr;
}

void Server::Stop() {
  CoordinatorLink* link = nullptr;
  {
    MutexLock lock(mutex_);
    over_ = stopped_ = true;
    link = link_.get();
  }
  changed_.NotifyAll();
  reports_.Stop();
  if (link != nullptr) link->Stop();
  van_->Stop();
  MutexLock lock(mutex_);
  if (service_ != nullptr) service_->KeepTables();
}

Status Server::OnHello(const Hello& hello, const std::string& peer_address,
                       ConnectionHandler** handler) {
  MutexLock lock(mutex_);
  if (service_ == nullptr) return Unavailable("this server has not joined its job yet");
  BYTEPS_RETURN_IF_ERROR(CheckHello(hello, job_.job_id, job_.epoch, Role::kServer, rank_));
  if (hello.role != Role::kWorker || hello.rank < 0 || hello.rank >= job_.num_workers()) {
    return FailedPrecondition("a server of this job talks to workers 0 to " +
                              std::to_string(job_.num_workers() - 1) + ", not to " +
                              hello.PeerName() + " (" + peer_address + ")");
  }
  BYTEPS_RETURN_IF_ERROR(service_->CheckReturn(hello));
  *handler = service_.get();
  return OkStatus();
}

void Server::OnMessage(const ControlMessage& message) {
  if (const auto* update = std::get_if<TableUpdate>(&message)) {
    const Status status = service_->AddEntries(update->entries);
    // The workers learn of it when they push a tensor that this server does not know.
    if (!status.ok())
      LogError("the scheduler's table is refused: " + status.ToString(), {"table_refused", {}});
    link_->Send(TableAck{update->update_id});
  } else if (const auto* moved = std::get_if<PartsMoved>(&message)) {
    const Status status = service_->MoveParts(*moved);
    if (!status.ok())
      LogError("the scheduler's table is refused: " + status.ToString(), {"table_refused", {}});
    link_->Send(TableAck{moved->update_id});
  } else if (const auto* retune = std::get_if<Retune>(&message)) {
    service_->LimitUnsent(retune->unsent_bytes);
  } else if (const auto* all_have = std::get_if<ResultProgress>(&message)) {
    service_->OnResultProgress(all_have->tensors);
  } else if (const auto* goodbye = std::get_if<Goodbye>(&message)) {
    service_->OnWorkersLeft(goodbye->ranks);
  } else if (const auto* joined = std::get_if<Joined>(&message)) {
    service_->OnWorkersJoined(*joined);
  } else if (const auto* lost = std::get_if<PeerLost>(&message)) {
    if (lost->role == Role::kWorker)
      service_->OnWorkerLost(lost->rank, Unavailable(lost->description));
    Fail(lost->description);
    // This server was not heard of for too long. The others may go on without it.
    if (lost->role == Role::kServer && lost->rank == rank_) EndJob();
  } else if (std::holds_alternative<JobEnded>(message)) {
    EndJob();
  }
}

void Server::EndJob() {
  MutexLock lock(mutex_);
  over_ = true;
  changed_.NotifyAll();
}

void Server::OnCoordinatorLost(const Status& reason) {
  Fail(reason.message());
  service_->SendToWorkers(ControlFrame(PeerLost{Role::kCoordinator, 0, reason.message()}));
  MutexLock lock(mutex_);
  over_ = coordinator_lost_ = true;
  changed_.NotifyAll();
}

void Server::Fail(const std::string& what) {
  MutexLock lock(mutex_);
  if (failure_.empty()) failure_ = what;
}

}  // namespace byteps
