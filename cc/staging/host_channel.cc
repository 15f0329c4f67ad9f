#include "cc/staging/host_channel.h"

#include <charconv>
#include <utility>

namespace byteps {

HostChannel::HostChannel(Worker* worker, const HostPlace& place, Handler* handler,
                         std::unique_ptr<Van> link)
    : worker_(worker), place_(place), handler_(*handler), link_(LinkOptions(), std::move(link)) {}

LocalLink::Options HostChannel::LinkOptions() {
  LocalLink::Options options;
  options.job = &worker_->job();
  options.workers = place_.workers;
  options.local_rank = place_.local_rank;
  options.on_message = [this](LocalMessage message) { return Receive(std::move(message)); };
  options.on_lost = [this](int32_t rank, const Status& reason) {
    handler_.OnRankLost(rank, reason);
  };
  return options;
}

Status HostChannel::Start(const GroupInvitation& invitation) {
  if (place_.local_rank == 0) BYTEPS_RETURN_IF_ERROR(StartRankZero(invitation));
  thread_ = Thread("byteps-group", [this] { Run(); });
  return OkStatus();
}

Status HostChannel::StartRankZero(const GroupInvitation& invitation) {
  Endpoint endpoint;
  BYTEPS_RETURN_IF_ERROR(link_.Listen(&endpoint));
  sequencer_ = std::make_unique<Sequencer>(
      place_.local_size, place_.results_from, [this](const LogSlice& slice) { Publish(slice); },
      [this](const Status& reason) { handler_.OnChannelError(reason); });
  {
    MutexLock lock(mutex_);
    inbox_.push_back(invitation);
  }
  for (int32_t rank = 1; rank < place_.local_size; ++rank) {
    link_.Send(rank, invitation);
    worker_->RelayTo(place_.workers[rank], std::to_string(endpoint.port));
  }
  return OkStatus();
}

void HostChannel::OnPort(const std::string& port) {
  {
    MutexLock lock(mutex_);
    port_ = port;
  }
  changed_.NotifyAll();
}

void HostChannel::Send(std::vector<LaunchReport> reports) {
  sequencer_ != nullptr ? sequencer_->Add(std::move(reports)) : link_.Send(0, std::move(reports));
}

void HostChannel::End() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  sequencer_.reset();
  link_.Stop();
  if (thread_.joinable()) thread_.Join();
}

Status HostChannel::Receive(LocalMessage message) {
  const bool is_report = std::holds_alternative<std::vector<LaunchReport>>(message);
  if (is_report != (place_.local_rank == 0)) {
    return InvalidArgument("local rank " + std::to_string(place_.local_rank) +
                           " got a message that is not for it");
  }
  if (is_report) {
    sequencer_->Add(std::move(std::get<std::vector<LaunchReport>>(message)));
    return OkStatus();
  }
  {
    MutexLock lock(mutex_);
    inbox_.push_back(std::move(message));
  }
  changed_.NotifyAll();
  return OkStatus();
}

void HostChannel::Publish(const LogSlice& slice) {
  if (slice.entries.back().kind == LaunchEntry::Kind::kEnd) handler_.OnEndPublished();
  for (int32_t rank = 1; rank < place_.local_size; ++rank) link_.Send(rank, slice);
  {
    MutexLock lock(mutex_);
    inbox_.push_back(slice);
  }
  changed_.NotifyAll();
}

void HostChannel::Run() {
  if (place_.local_rank > 0) {
    std::string port;
    if (!WaitForPort(&port)) return;
    const Status status = ConnectToRankZero(port);
    if (!status.ok()) handler_.OnChannelError(status);
  }
  LocalMessage message;
  while (WaitForMessage(&message)) {
    const Status status = Handle(message);
    if (!status.ok()) handler_.OnChannelError(status);
  }
}

// These two return false at the end.
bool HostChannel::WaitForPort(std::string* port) {
  MutexLock lock(mutex_);
  while (!ending_ && port_.empty()) changed_.Wait(mutex_);
  *port = port_;
  return !ending_;
}

bool HostChannel::WaitForMessage(LocalMessage* message) {
  MutexLock lock(mutex_);
  while (!ending_ && inbox_.empty()) changed_.Wait(mutex_);
  if (ending_) return false;
  *message = std::move(inbox_.front());
  inbox_.pop_front();
  return true;
}

Status HostChannel::ConnectToRankZero(const std::string& port) {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size())
    return Internal("local rank 0 listens at port \"" + port + "\", which is none");
  return link_.Connect(endpoint);
}

Status HostChannel::Handle(const LocalMessage& message) {
  if (const auto* invitation = std::get_if<GroupInvitation>(&message))
    return handler_.OnInvitation(*invitation);
  return handler_.OnSlice(std::get<LogSlice>(message));
}

}  // namespace byteps
