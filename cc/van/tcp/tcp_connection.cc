#include "cc/van/tcp/tcp_connection.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "cc/base/clock.h"
#include "cc/base/guarded.h"
#include "cc/base/logging.h"
#include "cc/base/thread_cpu.h"

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

// Ticks come about once a second.
constexpr int64_t kMostNanosBetweenTicks = 3LL * 1000000000;
// So much is enough for a stranger.
constexpr size_t kHandshakeInputBytes = 256;

static_assert(kHandshakeInputBytes >= kHelloBytes && kHandshakeInputBytes >= kResponseBytes &&
              kInputBytes >= kFrameHeaderBytes);

}  // namespace

TcpConnection::TcpConnection(EventLoop* loop, Stream stream, PeerMemory memory,
                             AtomicVanCounters* counters)
    : loop_(loop), stream_(std::move(stream)), counters_(counters), memory_(std::move(memory)) {}

void TcpConnection::Accept(EventLoop* loop, Stream stream, ConnectionAcceptor* acceptor,
                           const VanOptions& options, AtomicVanCounters* counters,
                           UnauthenticatedConnections* strangers) {
  std::shared_ptr<TcpConnection> connection(
      new TcpConnection(loop, std::move(stream),
                        PeerMemory(options.SharesMemory(), options.lend_to_own_process), counters));
  connection->acceptor_ = acceptor;
  connection->peer_name_ = PeerAddress(connection->stream_.socket());
  connection->stage_ = Stage::kHello;
  connection->is_stranger_ = true;
  connection->input_.resize(kHandshakeInputBytes);
  connection->strangers_ = strangers;
  connection->handshake_ = std::make_unique<ListeningHandshake>(options.secret, options.features,
                                                                connection->memory_.nonce());
  strangers->Add(connection);
  connection->handshake_deadline_ns_ = MonotonicNanos() + SecondsToNanos(options.handshake_timeout);
  loop->Add(connection->stream_.socket().get(), EPOLLIN | EPOLLRDHUP, connection);
}

std::shared_ptr<TcpConnection> TcpConnection::Open(EventLoop* loop, Stream stream,
                                                   PeerMemory memory, uint64_t features,
                                                   const Welcome& welcome, const Hello& peer,
                                                   ConnectionHandler* handler,
                                                   const VanOptions& options,
                                                   AtomicVanCounters* counters) {
  std::shared_ptr<TcpConnection> connection(
      new TcpConnection(loop, std::move(stream), std::move(memory), counters));
  // The coordinator and its peers have heartbeats; a server need not look, as it can do nothing.
  if (peer.role == Role::kServer)
    connection->ping_interval_ns_ = SecondsToNanos(options.ping_interval);
  connection->input_.resize(kInputBytes);
  if (welcome.reads_memory) connection->queue_.LeavePayloadsInMemory();
  if (connection->memory_.Probe(connection->stream_.socket(), welcome.memory)) {
    OutgoingFrame readable;
    readable.header.type = FrameType::kMemoryReadable;
    connection->queue_.Push(std::move(readable));
  }
  connection->peer_ = peer;
  connection->peer_.features = features;
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
  if (write_now) {
    const Status status = queue_.Write(&stream_, peer_name_, counters_, &finished);
    if (!status.ok()) return EndSoon(status);
  }
  if ((!write_now || queue_.blocked_by_socket()) && !armed_) Arm();
}

uint64_t TcpConnection::Revoke(const void* owner,
                               std::vector<std::shared_ptr<const void>>* dropped) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return queue_.Revoke(owner, dropped);
}

// After what has arrived: the peer may have said why it ends. The loop sees a broken socket by
// itself, but not that TLS has failed.
void TcpConnection::EndSoon(const Status& reason) {
  loop_->Post([self = shared_from_this(), reason] {
    self->OnEvents(EPOLLIN);
    self->Finish(reason);
  });
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

int64_t TcpConnection::last_heard_ns() const {
  std::lock_guard<std::mutex> lock(send_mutex_);
  int waiting = 0;
  const bool has_unread = stream_.socket().valid() &&
                          ioctl(stream_.socket().get(), FIONREAD, &waiting) == 0 && waiting > 0;
  return has_unread ? MonotonicNanos() : heard_ns_.load();
}

std::string TcpConnection::local_host() const {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return stream_.socket().valid() ? HostOf(LocalAddress(stream_.socket())) : "";
}

void TcpConnection::OnEvents(uint32_t events) {
  if (!stream_.socket().valid()) return;  // ended while ContinueReading waited for its turn
  const bool was_stranger = is_stranger_;
  const double before = was_stranger ? ThreadCpuSeconds() : 0;
  Status status = Guarded([&] { return HandleEvents(events); });
  if (closing_) {
    std::lock_guard<std::mutex> lock(send_mutex_);
    status = close_reason_;
  }
  if (!status.ok() || closing_) Finish(status);
  if (was_stranger) strangers_->Spend(ThreadCpuSeconds() - before, MonotonicNanos());
}

Status TcpConnection::HandleEvents(uint32_t events) {
  if (!closing_ && (events & EPOLLOUT) != 0) BYTEPS_RETURN_IF_ERROR(Flush());
  const bool is_readable = (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  return is_readable && !closing_ ? OnReadable() : OkStatus();
}

void TcpConnection::OnTick(int64_t now_ns) {
  if (is_stranger_ && now_ns > handshake_deadline_ns_) {
    return Finish(DeadlineExceeded("no handshake within the time for it"));
  }
  if (ping_interval_ns_ > 0) CheckSilence(now_ns);
}

// Whoever waits for a reply cannot know whether it takes long or is lost in flight, where the
// hosts between swallow packets and both ends live.
void TcpConnection::CheckSilence(int64_t now_ns) {
  // This process was stopped: that is no silence of others.
  const bool was_away = now_ns - last_tick_ns_ > kMostNanosBetweenTicks;
  last_tick_ns_ = now_ns;
  bool has_moved = false;
  {
    std::lock_guard<std::mutex> lock(send_mutex_);
    has_moved = queue_.HasMoved();
  }
  if (has_heard_ || was_away) {
    has_heard_ = has_pinged_ = false;
    silent_since_ns_ = now_ns;
  }
  // A long frame in front of a ping needs its time on a slow link.
  if (has_moved || silent_since_ns_ == now_ns) stuck_since_ns_ = now_ns;
  if (!has_pinged_ && now_ns - silent_since_ns_ >= ping_interval_ns_) {
    has_pinged_ = true;
    stuck_since_ns_ = now_ns;
    SendVanFrame(FrameType::kPing);
  } else if (has_pinged_ && now_ns - stuck_since_ns_ >= ping_interval_ns_) {
    Finish(Unavailable("nothing has come over the connection for " +
                       std::to_string((now_ns - silent_since_ns_) / 1000000000) +
                       " s, and it does not answer"));
  }
}

void TcpConnection::SendVanFrame(FrameType type) {
  OutgoingFrame frame;
  frame.header.type = type;
  frame.is_sign_of_life = true;
  Send(std::move(frame));
}

void TcpConnection::EndHandshake(const Status& reason) {
  loop_->Post([self = shared_from_this(), reason] {
    if (!self->is_stranger_) return;
    // It may well be a process of the job, and comes again.
    self->may_try_again_ = self->stage_ == Stage::kResponse;
    self->Finish(reason);
  });
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
  incoming_.Clear();
  if (is_stranger_) strangers_->Remove(this);
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
    // The socket will not tell of bytes that have been taken from it already. One turn for each
    // turn: events of the socket must not add to those that are waited for.
    if (!has_posted_turn_) {
      loop_->Post([self = shared_from_this()] {
        self->has_posted_turn_ = false;
        self->OnEvents(EPOLLIN);
      });
    }
    has_posted_turn_ = true;
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
  } else if (PayloadSink* const sink = incoming_.last().sink.get()) {
    span = sink->Prepare(incoming_.last().payload_left);
    span.bytes = std::min<uint64_t>(span.bytes, incoming_.piece_left());
  } else {
    discard_.resize(kDiscardBytes);
    span = {discard_.data(), std::min<size_t>(kDiscardBytes, incoming_.piece_left())};
  }
  size_t received = 0;
  const Status status = stream_.Receive(peer_name_, span.data, span.bytes, &received);
  if (!status.ok() && !into_input && incoming_.last().sink != nullptr)
    incoming_.last().sink->Commit(0);
  if (!status.ok()) return is_stranger_ && stream_.FallBackToClear() ? RefuseHello(status) : status;
  received_this_turn_ += received;
  if (received > 0) {
    has_heard_ = true;
    heard_ns_ = MonotonicNanos();
  }
  *drained = received < span.bytes;
  if (into_input) {
    input_end_ += received;
    return ParseInput();
  }
  if (incoming_.last().sink != nullptr) incoming_.last().sink->Commit(received);
  incoming_.Advance(received);
  return incoming_.piece_left() == 0 ? EndPiece() : OkStatus();
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
      const IncomingFrames::Frame& frame = incoming_.last();
      const size_t bytes = std::min<uint64_t>(available, incoming_.piece_left());
      if (frame.sink != nullptr)
        frame.sink->Take(input_.data() + input_begin_, bytes, frame.payload_left);
      input_begin_ += bytes;
      incoming_.Advance(bytes);
      if (incoming_.piece_left() == 0) BYTEPS_RETURN_IF_ERROR(EndPiece());
    }
  }
  return OkStatus();
}

Status TcpConnection::ReceiveHello() {
  Status status = handshake_->ReadHello(input_.data() + input_begin_, &peer_);
  // No word to those who speak something else.
  if (status.code() == StatusCode::kInvalidArgument) return status;
  if (!status.ok()) return RefuseHello(status);
  uint8_t challenge[kChallengeBytes];
  handshake_->WriteChallenge(OkStatus(), challenge);
  BYTEPS_RETURN_IF_ERROR(SendInHandshake(challenge, sizeof(challenge)));
  strangers_->HasSaidHello(this);
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
    peer_.same_host = response.same_host;
    welcome.status = acceptor_->OnHello(peer_, peer_name_, &handler);
  }
  if (welcome.status.ok() && peer_.same_host) {
    welcome.memory = memory_.Offer(stream_.socket(), peer_.nonce);
    welcome.reads_memory = memory_.Probe(stream_.socket(), response.memory);
  }
  uint8_t answer[kWelcomeBytes];
  handshake_->WriteWelcome(welcome, answer);
  BYTEPS_RETURN_IF_ERROR(SendInHandshake(answer, sizeof(answer)));
  may_try_again_ = welcome.status.code() == StatusCode::kUnavailable;
  BYTEPS_RETURN_IF_ERROR(welcome.status);
  input_begin_ += kResponseBytes;
  stage_ = Stage::kHeader;
  is_stranger_ = false;
  strangers_->Remove(this);
  handshake_ = nullptr;
  input_.resize(kInputBytes);
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
  FrameHeader header;
  const Status status = DecodeFrameHeader(input_.data() + input_begin_, &header);
  if (!status.ok()) return Status(status.code(), peer_name_ + ": " + status.message());
  input_begin_ += kFrameHeaderBytes;
  if (header.type == FrameType::kMore) {
    BYTEPS_RETURN_IF_ERROR(incoming_.GoOn(peer_name_, header));
  } else if (header.type >= FrameType::kMemoryReadable) {
    return OnVanFrame(header);
  } else {
    BYTEPS_RETURN_IF_ERROR(incoming_.Begin(peer_name_, header));
    if (header.payload_bytes == 0) return EndFrame();
    BYTEPS_RETURN_IF_ERROR(handler_->OnHeader(*this, header, &incoming_.last().sink));
  }
  stage_ = Stage::kPayload;
  return ReadPieceFromMemory(header);
}

Status TcpConnection::EndPiece() {
  if (incoming_.last().payload_left == 0) return EndFrame();
  stage_ = Stage::kHeader;
  return OkStatus();
}

// If that is where it is.
Status TcpConnection::ReadPieceFromMemory(const FrameHeader& header) {
  if (header.place != PayloadLocation::kSenderMemory) return OkStatus();
  if (!memory_.readable()) {
    return InvalidArgument(peer_name_ + " left a payload in memory that this side cannot read");
  }
  const uint64_t bytes = incoming_.piece_left();
  if (incoming_.last().sink != nullptr) {
    BYTEPS_RETURN_IF_ERROR(memory_.of_peer() != nullptr
                               ? TakePieceFromOwnMemory(header.payload_address)
                               : CopyPieceFromMemory(header.payload_address));
  }
  incoming_.Advance(bytes);
  received_this_turn_ += bytes;
  counters_->memory_bytes_read += bytes;
  ++unacknowledged_reads_;
  return EndPiece();
}

Status TcpConnection::CopyPieceFromMemory(uint64_t address) {
  const IncomingFrames::Frame& frame = incoming_.last();
  for (uint64_t done = 0; done < incoming_.piece_left();) {
    const PayloadSink::Span span = frame.sink->Prepare(frame.payload_left - done);
    const size_t bytes = std::min<uint64_t>(span.bytes, incoming_.piece_left() - done);
    const Status status = memory_.Read(address + done, span.data, bytes);
    frame.sink->Commit(status.ok() ? bytes : 0);
    BYTEPS_RETURN_IF_ERROR(status);
    done += bytes;
  }
  return OkStatus();
}

Status TcpConnection::TakePieceFromOwnMemory(uint64_t address) {
  const LentMemory::Loan loan = memory_.of_peer()->Borrow();
  if (!loan.owns_lock()) return Unavailable(peer_name_ + " has withdrawn its memory");
  const IncomingFrames::Frame& frame = incoming_.last();
  frame.sink->Take(reinterpret_cast<const void*>(address), incoming_.piece_left(),
                   frame.payload_left);
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

Status TcpConnection::OnVanFrame(const FrameHeader& header) {
  if (header.type == FrameType::kPing) SendVanFrame(FrameType::kPong);
  if (header.type == FrameType::kPing || header.type == FrameType::kPong) return OkStatus();
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (header.type == FrameType::kMemoryReadable) {
    queue_.LeavePayloadsInMemory();
    return OkStatus();
  }
  if (header.type != FrameType::kMemoryRead)
    return InvalidArgument(peer_name_ + " gives back room of an RDMA connection over TCP");
  if (!queue_.Release(header.element_count, &finished)) {
    return InvalidArgument(peer_name_ + " says that it has read more than it was given");
  }
  BYTEPS_RETURN_IF_ERROR(queue_.Write(&stream_, peer_name_, counters_, &finished));
  if (queue_.blocked_by_socket() && !armed_) Arm();
  return OkStatus();
}

Status TcpConnection::EndFrame() {
  stage_ = Stage::kHeader;
  IncomingFrames::Frame ended = incoming_.TakeLast();
  ++counters_->frames_received;
  counters_->payload_bytes_received += ended.header.payload_bytes;
  return handler_->OnFrame(*this, ended.header, std::move(ended.sink));
}

}  // namespace byteps
