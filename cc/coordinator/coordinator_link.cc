#include "cc/coordinator/coordinator_link.h"

#include <algorithm>

#include "cc/base/clock.h"
#include "cc/base/logging.h"

namespace byteps {

CoordinatorLink::CoordinatorLink(std::function<void(ControlMessage)> on_message,
                                 std::function<void(const Status&)> on_lost)
    : on_message_(std::move(on_message)), on_lost_(std::move(on_lost)) {}

CoordinatorLink::~CoordinatorLink() { Stop(); }

Status CoordinatorLink::Start(Van* van, const JobDescription& job, Role role, int32_t rank) {
  Hello hello;
  hello.job_id = job.job_id;
  hello.epoch = job.epoch;
  hello.role = role;
  hello.rank = rank;
  Hello peer;
  peer.role = Role::kCoordinator;
  peer.rank = 0;
  last_seen_ns_ = MonotonicNanos();
  Hello again = hello;
  again.again = true;
  const Endpoint endpoint = job.coordinator_endpoint;
  reconnector_ = std::make_unique<Reconnector>(
      [this, van, endpoint, again, peer](double seconds) {
        std::shared_ptr<Connection> connection;  // OnOpen has kept it already
        return van->Connect(endpoint, again, peer, this, seconds, &connection);
      },
      [this](const Status& reason, int) { Lost(reason); });
  std::shared_ptr<Connection> connection;
  BYTEPS_RETURN_IF_ERROR(
      van->Connect(endpoint, hello, peer, this, job.options.timeouts.connect_timeout, &connection));
  started_ = true;
  if (role == Role::kWorker) TellWhereItListens(van);
  const double timeout = job.options.timeouts.heartbeat_timeout;
  heartbeat_interval_ = job.options.timeouts.heartbeat_interval;
  const std::string name = connection->peer_name();
  heartbeat_.Start(
      "byteps-beat", job.options.timeouts.heartbeat_interval,
      [this, timeout, name, heard_ns = last_seen_ns_.load()](int64_t late_ns) mutable {
        Send(Heartbeat{});
        // What has arrived and waits until this process has time for it is no silence. Nor is the
        // time in which this process was stopped: whoever has the same computer was stopped, too.
        heard_ns = std::max({heard_ns + late_ns, last_seen_ns_.load(), session_->last_heard_ns()});
        const int64_t silence_ns = MonotonicNanos() - heard_ns;
        if (silence_ns <= SecondsToNanos(timeout)) return;
        Lost(Unavailable("the scheduler at " + name + " has been silent for " +
                         std::to_string(silence_ns / 1000000000) + " s"));
      });
  return OkStatus();
}

// On the address that it has towards the coordinator, and no other.
void CoordinatorLink::TellWhereItListens(Van* van) {
  const std::shared_ptr<Connection> connection = session_->connection();
  const std::string host = connection == nullptr ? "" : connection->local_host();
  if (host.empty()) return;  // it can do without
  Endpoint bound;
  const Status status = van->Listen(host, 0, this, &bound);
  if (!status.ok())
    return LogWarning("a loss of this worker may be noticed late: " + status.message());
  Send(Reachable{bound.host, bound.port});
}

Status CoordinatorLink::OnHello(const Hello& hello, const std::string& peer_address,
                                ConnectionHandler**) {
  return FailedPrecondition("a worker takes no connections, not that of " + hello.PeerName() +
                            " (" + peer_address + ") either");
}

void CoordinatorLink::OnOpen(const std::shared_ptr<Connection>& connection) {
  session_->Attach(connection);
}

void CoordinatorLink::Stop() {
  quiet_ = true;
  heartbeat_.Stop();
  if (reconnector_ != nullptr) reconnector_->Stop();
}

Status CoordinatorLink::OnMessage(Connection&, ControlMessage message) {
  last_seen_ns_ = MonotonicNanos();
  if (reconnector_ != nullptr) reconnector_->NoteProgress();
  if (auto* beat = std::get_if<Heartbeat>(&message)) {
    MutexLock lock(silent_mutex_);
    silent_servers_ = std::move(beat->silent_servers);
  } else if (!quiet_) {
    on_message_(std::move(message));
  }
  return OkStatus();
}

bool CoordinatorLink::HasHeardLately() const {
  return MonotonicNanos() - last_seen_ns_ <= SecondsToNanos(1.2 * heartbeat_interval_);
}

bool CoordinatorLink::hears() const {
  return HasHeardLately() && session_->connection() != nullptr;
}

bool CoordinatorLink::KnowsToLive(int32_t server) const {
  if (!HasHeardLately()) return false;
  MutexLock lock(silent_mutex_);
  return std::find(silent_servers_.begin(), silent_servers_.end(), server) == silent_servers_.end();
}

void CoordinatorLink::OnClosed(Connection& connection, const Status& reason) {
  session_->Detach(connection);
  reconnector_->OnClosed(Status(reason.code(), "the connection to the scheduler (" +
                                                   connection.peer_name() +
                                                   ") is lost: " + reason.message()));
}

void CoordinatorLink::Lost(const Status& reason) {
  if (!quiet_.exchange(true)) on_lost_(reason);
}

}  // namespace byteps
