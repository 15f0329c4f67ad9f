#include "cc/staging/local_link.h"

#include <algorithm>
#include <utility>

#include "cc/van/buffer_sink.h"

namespace byteps {
namespace {

std::unique_ptr<Van> NewLocalVan(const EngineOptions& job) {
  VanOptions options;
  options.io_threads = 1;
  options.read_peer_memory = false;  // the messages are short
  options.secret = job.security.secret;
  options.tls = job.security.tls;
  return NewTcpVan(options);
}

}  // namespace

LocalLink::LocalLink(Options options, std::unique_ptr<Van> van)
    : options_(std::move(options)),
      van_(van != nullptr ? std::move(van) : NewLocalVan(options_.job->options)),
      lines_(options_.workers.size()) {}

LocalLink::~LocalLink() { Stop(); }

Status LocalLink::Listen(Endpoint* endpoint) {
  // Workers that share a host share its network (protocol rule 17).
  return van_->Listen("127.0.0.1", 0, this, endpoint);
}

Status LocalLink::Connect(const Endpoint& endpoint) {
  Hello hello;
  hello.job_id = options_.job->job_id;
  hello.epoch = options_.job->epoch;
  hello.role = Role::kWorker;
  hello.rank = options_.workers[options_.local_rank];
  hello.same_host = true;
  Hello peer;
  peer.role = Role::kWorker;
  peer.rank = options_.workers[0];
  std::shared_ptr<Connection> connection;  // OnOpen has kept it already
  return van_->Connect(endpoint, hello, peer, this, options_.job->options.timeouts.connect_timeout,
                       &connection);
}

void LocalLink::Send(int32_t local_rank, const LocalMessage& message) {
  auto bytes = std::make_shared<const std::string>(EncodeLocal(message));
  OutgoingFrame frame;
  frame.header.type = FrameType::kControl;
  frame.header.payload_bytes = bytes->size();
  frame.payload = bytes->data();
  frame.keep_alive = std::move(bytes);
  // Locked while sending: OnOpen must not let a later message overtake the waiting ones.
  MutexLock lock(mutex_);
  Line& line = lines_[local_rank];
  if (line.connection == nullptr) return line.waiting.push_back(std::move(frame));
  line.connection->Send(std::move(frame));
}

void LocalLink::Close(const Status& reason) {
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(mutex_);
    for (const Line& line : lines_) {
      if (line.connection != nullptr) connections.push_back(line.connection);
    }
  }
  for (const auto& connection : connections) connection->Close(reason);
}

void LocalLink::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  van_->Stop();
}

int32_t LocalLink::LocalRankOf(const Hello& hello) const {
  const auto it = std::find(options_.workers.begin(), options_.workers.end(), hello.rank);
  if (hello.role != Role::kWorker || it == options_.workers.end()) return -1;
  return static_cast<int32_t>(it - options_.workers.begin());
}

Status LocalLink::OnHello(const Hello& hello, const std::string& peer_address,
                          ConnectionHandler** handler) {
  BYTEPS_RETURN_IF_ERROR(CheckHello(hello, options_.job->job_id, options_.job->epoch, Role::kWorker,
                                    options_.workers[0]));
  const int32_t local_rank = LocalRankOf(hello);
  MutexLock lock(mutex_);
  if (local_rank <= 0 || lines_[local_rank].connection != nullptr) {
    return FailedPrecondition(hello.PeerName() + " (" + peer_address +
                              ") is no other worker of this host, or is connected already");
  }
  *handler = this;
  return OkStatus();
}

void LocalLink::OnOpen(const std::shared_ptr<Connection>& connection) {
  MutexLock lock(mutex_);
  Line& line = lines_[LocalRankOf(connection->peer())];
  line.connection = connection;
  for (OutgoingFrame& frame : line.waiting) connection->Send(std::move(frame));
  line.waiting.clear();
}

Status LocalLink::OnHeader(Connection& connection, const FrameHeader& header,
                           std::shared_ptr<PayloadSink>* sink) {
  if (header.type != FrameType::kControl)
    return InvalidArgument(connection.peer_name() + " sent a data frame to a worker of its host");
  *sink = std::make_shared<BufferSink>();
  return OkStatus();
}

Status LocalLink::OnFrame(Connection& connection, const FrameHeader&,
                          std::shared_ptr<PayloadSink> sink) {
  if (sink == nullptr) return InvalidArgument(connection.peer_name() + " sent an empty message");
  LocalMessage message;
  BYTEPS_RETURN_IF_ERROR(DecodeLocal(static_cast<BufferSink&>(*sink).Take(), &message));
  if (const auto* reports = std::get_if<std::vector<LaunchReport>>(&message)) {
    for (const LaunchReport& report : *reports) {
      if (report.local_rank != LocalRankOf(connection.peer()))
        return InvalidArgument(connection.peer_name() + " reported as another worker");
    }
  }
  return options_.on_message(std::move(message));
}

void LocalLink::OnClosed(Connection& connection, const Status& reason) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
  }
  options_.on_lost(LocalRankOf(connection.peer()), reason);
}

}  // namespace byteps
