#include "cc/van/tcp/tcp_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "cc/base/clock.h"
#include "cc/base/logging.h"

namespace byteps {
namespace {

// Room behind a header for the frames that arrive with it; larger payloads are received where they
// belong.
constexpr size_t kInputBytes = 8 * 1024;
// After so much from one connection the loop looks at the others. Little enough that a server finds
// a sum in the cache when the next worker's contribution to it comes.
constexpr uint64_t kReadBudget = 1024 * 1024;
constexpr size_t kDiscardBytes = 64 * 1024;
// A caller of Send writes small frames itself; larger ones are left to the loop, so that Send stays
// short.
constexpr uint64_t kInlineBytes = 64 * 1024;

static_assert(kInputBytes >= kHelloBytes && kInputBytes >= kResponseBytes &&
              kInputBytes >= kFrameHeaderBytes);

}  // namespace

TcpConnection::TcpConnection(EventLoop* loop, Stream stream, PeerMemory memory,
                             AtomicVanCounters* counters)
    : loop_(loop),
      stream_(std::move(stream)),
      counters_(counters),
      input_(kInputBytes),
      memory_(std::move(memory)) {}

void TcpConnection::Accept(EventLoop* loop, Stream stream, ConnectionAcceptor* acceptor,
                           const VanOptions& options, AtomicVanCounters* counters,
                           Strangers* strangers) {
  std::shared_ptr<TcpConnection> connection(
      new TcpConnection(loop, std::move(stream), PeerMemory(options.read_peer_memory), counters));
  connection->acceptor_ = acceptor;
  connection->peer_name_ = PeerAddress(connection->stream_.socket());
  if (options.lend_to_own_process) connection->memory_.Lend(connection->stream_.socket());
  connection->stage_ = Stage::kHello;
  connection->is_stranger_ = true;
  connection->strangers_ = strangers;
  connection->handshake_ = std::make_unique<ListeningHandshake>(options.secret, options.features,
                                                                connection->memory_.nonce());
  strangers->Add(connection);
  connection->handshake_deadline_ns_ = MonotonicNanos() + SecondsToNanos(options.handshake_timeout);
  loop->Add(connection->stream_.socket().get(), EPOLLIN | EPOLLRDHUP, connection);
}

std::shared_ptr<TcpConnection> TcpConnection::Open(EventLoop* loop, Stream stream,
                                                   PeerMemory memory, const Challenge& challenge,
                                                   const Welcome& welcome, const Hello& peer,
                                                   ConnectionHandler* handler,
                                                   AtomicVanCounters* counters) {
  std::shared_ptr<TcpConnection> connection(
      new TcpConnection(loop, std::move(stream), std::move(memory), counters));
  if (welcome.reads_memory) connection->queue_.LeavePayloadsInMemory();
  if (connection->memory_.Probe(connection->stream_.socket(), welcome.memory, challenge.nonce)) {
    OutgoingFrame readable;
    readable.header.type = FrameType::kMemoryReadable;
    connection->queue_.Push(std::move(readable));
  }
  connection->peer_ = peer;
  connection->peer_.features = challenge.features;
  connection->peer_name_ = peer.PeerName() + " at " + PeerAddress(connection->stream_.socket());
  connection->handler_ = handler;
  // What came with the end of the handshake: the socket will not tell of it.
  const bool holds_bytes = connection->stream_.HoldsBytes();
  handler->OnOpen(connection);
  // Armed from the start, for what OnOpen may have queued before the loop knew the socket.
  connection->armed_ = true;
  loop->Add(connection->stream_.socket().get(), EPOLLIN | EPOLLRDHUP | EPOLLOUT, connection);
  if (holds_bytes) loop->Post([connection] { connection->OnEvents(EPOLLIN); });
  return connection;
}

void TcpConnection::Send(OutgoingFrame frame) {
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (finished_ || closing_) {
    finished.push_back(std::move(frame.keep_alive));
    return;
  }
  queue_.Push(std::move(frame));
  const bool write_now = !queue_.blocked_by_socket() && queue_.waiting_bytes() <= kInlineBytes;
  // A broken socket is reported by the loop, which sees it too.
  if (write_now && !queue_.Write(&stream_, peer_name_, counters_, &finished).ok()) return;
  if ((!write_now || queue_.blocked_by_socket()) && !armed_) Arm();
}

void TcpConnection::Close(const Status& reason) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (finished_ || closing_.exchange(true)) return;
  close_reason_ = reason;
  // Wakes the loop with a hang-up; OnEvents does the rest.
  shutdown(stream_.socket().get(), SHUT_RDWR);
}

void TcpConnection::LimitUnsent(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (stream_.socket().valid()) byteps::LimitUnsent(stream_.socket(), bytes);
}

bool TcpConnection::is_idle() const {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return queue_.is_empty();
}

uint64_t TcpConnection::round_trip_ns() const {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return stream_.socket().valid() ? LeastRoundTripNanos(stream_.socket()) : 0;
}

std::string TcpConnection::local_host() const {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return stream_.socket().valid() ? HostOf(LocalAddress(stream_.socket())) : "";
}

void TcpConnection::OnEvents(uint32_t events) {
  if (!stream_.socket().valid()) return;  // ended while ContinueReading waited for its turn
  Status status;
  if (!closing_ && (events & EPOLLOUT) != 0) status = Flush();
  if (status.ok() && !closing_ && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    status = OnReadable();
  }
  if (closing_) {
    std::lock_guard<std::mutex> lock(send_mutex_);
    status = close_reason_;
  }
  if (!status.ok() || closing_) Finish(status);
}

void TcpConnection::OnTick(int64_t now_ns) {
  if (is_stranger_ && now_ns > handshake_deadline_ns_) {
    Finish(DeadlineExceeded("no handshake within the time for it"));
  }
}

void TcpConnection::OnStop() { Finish(Cancelled("this side is shutting down")); }

void TcpConnection::Arm() {
  armed_ = true;
  loop_->Modify(stream_.socket().get(), EPOLLIN | EPOLLRDHUP | EPOLLOUT);
}

Status TcpConnection::Flush() {
  std::vector<std::shared_ptr<const void>> finished;
  std::lock_guard<std::mutex> lock(send_mutex_);
  BYTEPS_RETURN_IF_ERROR(queue_.Write(&stream_, peer_name_, counters_, &finished));
  if (!queue_.blocked_by_socket() && armed_) {
    armed_ = false;
    loop_->Modify(stream_.socket().get(), EPOLLIN | EPOLLRDHUP);
  }
  return OkStatus();
}

void TcpConnection::Finish(const Status& reason) {
  std::vector<std::shared_ptr<const void>> dropped;
  const std::shared_ptr<TcpConnection> self =
      shared_from_this();  // Remove drops the loop's reference
  // Who opens a port and says nothing may be a load balancer's health check.
  const bool said_something = stage_ != Stage::kHello || input_end_ > 0 || stream_.has_received();
  {
    std::lock_guard<std::mutex> lock(send_mutex_);
    if (finished_) return;
    finished_ = true;
    memory_.Withdraw();  // the peer may be reading what is dropped
    queue_.Clear(&dropped);
    loop_->Remove(stream_.socket().get());
    stream_.Reset();
  }
  sink_.reset();
  if (handler_ != nullptr) {
    handler_->OnClosed(*this, reason);
  } else if (reason.code() != StatusCode::kCancelled && !may_try_again_) {
    const std::string what = strangers_->Failed(
        HostOf(peer_name_), "refused a connection from " + peer_name_ + ": " + reason.message(),
        MonotonicNanos());
    if (!what.empty()) Log(said_something ? LogLevel::kWarning : LogLevel::kInfo, what);
  }
}

Status TcpConnection::OnReadable() {
  received_this_turn_ = 0;
  bool drained = false;
  Status status = ParseInput();  // what the last turn's budget left there
  while (status.ok() && !drained && !closing_ && HasBudget()) status = ReceiveSome(&drained);
  if (status.ok() && !HasBudget() && (input_end_ > input_begin_ || stream_.HoldsBytes())) {
    // The socket will not tell of bytes that have been taken from it already.
    loop_->Post([self = shared_from_this()] { self->OnEvents(EPOLLIN); });
  }
  AcknowledgeMemoryReads();
  // Also after an error: what was taken in before it counts.
  if (handler_ != nullptr && !closing_) handler_->OnDrained(*this);
  return status;
}

Status TcpConnection::ReceiveSome(bool* drained) {
  PayloadSink::Span span;
  const bool into_input = stage_ != Stage::kPayload;
  if (into_input) {
    // Complete frames have been parsed, so that what is left is the beginning of one.
    std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
    input_end_ -= input_begin_;
    input_begin_ = 0;
    span = {input_.data() + input_end_, input_.size() - input_end_};
  } else if (sink_ != nullptr) {
    span = sink_->Prepare(payload_left_);
    span.bytes = std::min<uint64_t>(span.bytes, payload_left_);
  } else {
    discard_.resize(kDiscardBytes);
    span = {discard_.data(), static_cast<size_t>(std::min<uint64_t>(kDiscardBytes, payload_left_))};
  }
  size_t received = 0;
  const Status status = stream_.Receive(peer_name_, span.data, span.bytes, &received);
  if (!status.ok()) return is_stranger_ && stream_.FallBackToClear() ? RefuseHello(status) : status;
  received_this_turn_ += received;
  *drained = received < span.bytes;
  if (into_input) {
    input_end_ += received;
    return ParseInput();
  }
  if (sink_ != nullptr) sink_->Commit(received);
  payload_left_ -= received;
  return payload_left_ == 0 ? EndFrame() : OkStatus();
}

bool TcpConnection::HasBudget() const { return received_this_turn_ < kReadBudget; }

Status TcpConnection::ParseInput() {
  while (!closing_ && HasBudget()) {
    const size_t available = input_end_ - input_begin_;
    if (stage_ == Stage::kHello) {
      if (available >= kLeastTlsBytes && BeginsTls(input_.data(), available))
        return RefuseHello(OnlyOneSideUsesTls(false));
      if (available < kHelloBytes) return OkStatus();
      BYTEPS_RETURN_IF_ERROR(ReceiveHello());
    } else if (stage_ == Stage::kResponse) {
      if (available < kResponseBytes) return OkStatus();
      BYTEPS_RETURN_IF_ERROR(ReceiveResponse());
    } else if (stage_ == Stage::kHeader) {
      if (available < kFrameHeaderBytes) return OkStatus();
      BYTEPS_RETURN_IF_ERROR(BeginFrame());
    } else {
      if (available == 0) return OkStatus();
      const size_t bytes = std::min<uint64_t>(available, payload_left_);
      if (sink_ != nullptr) {
        sink_->Take(input_.data() + input_begin_, bytes, payload_left_);
      }
      input_begin_ += bytes;
      payload_left_ -= bytes;
      if (payload_left_ == 0) BYTEPS_RETURN_IF_ERROR(EndFrame());
    }
  }
  return OkStatus();
}

Status TcpConnection::ReceiveHello() {
  const Status status = handshake_->ReadHello(input_.data() + input_begin_, &peer_);
  // No word to those who speak something else.
  if (status.code() == StatusCode::kInvalidArgument) return status;
  if (!status.ok()) return RefuseHello(status);
  uint8_t challenge[kChallengeBytes];
  handshake_->WriteChallenge(OkStatus(), challenge);
  BYTEPS_RETURN_IF_ERROR(SendInHandshake(challenge, sizeof(challenge)));
  input_begin_ += kHelloBytes;
  stage_ = Stage::kResponse;
  return OkStatus();
}

Status TcpConnection::RefuseHello(const Status& status) {
  uint8_t challenge[kChallengeBytes];
  handshake_->WriteChallenge(status, challenge);
  BYTEPS_RETURN_IF_ERROR(SendInHandshake(challenge, sizeof(challenge)));
  return status;
}

Status TcpConnection::ReceiveResponse() {
  Response response;
  Welcome welcome;
  ConnectionHandler* handler = nullptr;
  welcome.status = handshake_->ReadResponse(input_.data() + input_begin_, &response);
  if (welcome.status.code() == StatusCode::kInvalidArgument) return welcome.status;
  if (welcome.status.ok()) {
    peer_.same_host = response.memory.pid != 0;
    welcome.status = acceptor_->OnHello(peer_, peer_name_, &handler);
  }
  if (welcome.status.ok() && peer_.same_host) {
    welcome.memory = memory_.offer();
    welcome.reads_memory = memory_.Probe(stream_.socket(), response.memory, peer_.nonce);
  }
  uint8_t answer[kWelcomeBytes];
  handshake_->WriteWelcome(welcome, answer);
  BYTEPS_RETURN_IF_ERROR(SendInHandshake(answer, sizeof(answer)));
  may_try_again_ = welcome.status.code() == StatusCode::kUnavailable;
  BYTEPS_RETURN_IF_ERROR(welcome.status);
  input_begin_ += kResponseBytes;
  stage_ = Stage::kHeader;
  is_stranger_ = false;
  handshake_ = nullptr;
  peer_name_ = peer_.PeerName() + " at " + peer_name_;
  handler_ = handler;
  handler_->OnOpen(shared_from_this());
  return OkStatus();
}

// So little has been sent on this socket before that it takes a message at once.
Status TcpConnection::SendInHandshake(const uint8_t* message, size_t bytes) {
  const iovec piece{const_cast<uint8_t*>(message), bytes};
  size_t sent = 0;
  BYTEPS_RETURN_IF_ERROR(stream_.Send(peer_name_, &piece, 1, &sent));
  return sent == bytes ? OkStatus() : Unavailable(peer_name_ + " takes no answer");
}

Status TcpConnection::BeginFrame() {
  Status status = DecodeFrameHeader(input_.data() + input_begin_, &header_);
  if (!status.ok()) return Status(status.code(), peer_name_ + ": " + status.message());
  input_begin_ += kFrameHeaderBytes;
  if (header_.type >= FrameType::kMemoryReadable) return OnVanFrame();
  payload_left_ = header_.payload_bytes;
  if (payload_left_ == 0) return EndFrame();
  stage_ = Stage::kPayload;
  BYTEPS_RETURN_IF_ERROR(handler_->OnHeader(*this, header_, &sink_));
  return header_.place == PayloadPlace::kSenderMemory ? ReadPayloadFromMemory() : OkStatus();
}

Status TcpConnection::ReadPayloadFromMemory() {
  if (!memory_.readable()) {
    return InvalidArgument(peer_name_ + " left a payload in memory that this side cannot read");
  }
  if (sink_ != nullptr) {
    BYTEPS_RETURN_IF_ERROR(memory_.of_peer() != nullptr ? TakePayloadFromOwnMemory()
                                                        : CopyPayloadFromMemory());
  }
  received_this_turn_ += header_.payload_bytes;
  counters_->memory_bytes_read += header_.payload_bytes;
  ++unacknowledged_reads_;
  return EndFrame();
}

Status TcpConnection::CopyPayloadFromMemory() {
  uint64_t address = header_.payload_address;
  while (payload_left_ > 0) {
    const PayloadSink::Span span = sink_->Prepare(payload_left_);
    const size_t bytes = std::min<uint64_t>(span.bytes, payload_left_);
    BYTEPS_RETURN_IF_ERROR(memory_.Read(address, span.data, bytes));
    sink_->Commit(bytes);
    address += bytes;
    payload_left_ -= bytes;
  }
  return OkStatus();
}

Status TcpConnection::TakePayloadFromOwnMemory() {
  const LentMemory::Loan loan = memory_.of_peer()->Borrow();
  if (!loan.owns_lock()) return Unavailable(peer_name_ + " has withdrawn its memory");
  sink_->Take(reinterpret_cast<const void*>(header_.payload_address), payload_left_, payload_left_);
  payload_left_ = 0;
  return OkStatus();
}

void TcpConnection::AcknowledgeMemoryReads() {
  if (unacknowledged_reads_ == 0) return;
  OutgoingFrame frame;
  frame.header.type = FrameType::kMemoryRead;
  frame.header.element_count = unacknowledged_reads_;
  unacknowledged_reads_ = 0;
  Send(std::move(frame));
}

Status TcpConnection::OnVanFrame() {
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (header_.type == FrameType::kMemoryReadable) {
    queue_.LeavePayloadsInMemory();
    return OkStatus();
  }
  if (header_.type != FrameType::kMemoryRead)
    return InvalidArgument(peer_name_ + " gives back room of an RDMA connection over TCP");
  if (!queue_.Release(header_.element_count, &finished)) {
    return InvalidArgument(peer_name_ + " says that it has read more than it was given");
  }
  BYTEPS_RETURN_IF_ERROR(queue_.Write(&stream_, peer_name_, counters_, &finished));
  if (queue_.blocked_by_socket() && !armed_) Arm();
  return OkStatus();
}

Status TcpConnection::EndFrame() {
  stage_ = Stage::kHeader;
  ++counters_->frames_received;
  counters_->payload_bytes_received += header_.payload_bytes;
  return handler_->OnFrame(*this, header_, std::move(sink_));
}

}  // namespace byteps
