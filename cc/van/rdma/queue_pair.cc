#include "cc/van/rdma/queue_pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "cc/base/fork.h"
#include "cc/wire/handshake.h"

namespace byteps {
namespace {

// A lost packet is sent again after 4.096 us * 2^kTimeout, 0.27 s; the connection is given up after
// kRetries times that (up to four times as long, as devices round it). Not 7 retries: soft devices
// take that for "for ever".
constexpr uint8_t kTimeout = 16;
constexpr uint8_t kRetries = 6;
constexpr uint8_t kShortReceiverWait = 12;  // 0.64 ms; receives never run out, see queue_pair.h
constexpr uint8_t kHopLimit = 64;
constexpr uint32_t kLeastWindow = 2;

constexpr uint64_t kMostLockedBytes = uint64_t{1} << 30;
// What a link carries while an answer comes back is less than these slots hold.
constexpr uint32_t kLeastSlots = 4;
constexpr uint32_t kLeastSends = 8;
constexpr uint32_t kLeastSlotPayloadBytes = 32 * 1024;

uint64_t SlotBytes(const RdmaWindow& window) {
  return uint64_t{window.slots} * (kFrameHeaderBytes + window.slot_payload_bytes);
}

// Room for what the peer may say before it hears that some is free again, twice.
uint32_t Receives(const RdmaWindow& window) { return 2 * (window.slots + window.sends); }

// A request's number says what it was.
uint64_t RequestId(QueuePair::Kind kind, uint32_t index) {
  return static_cast<uint64_t>(kind) << 32 | index;
}

}  // namespace

uint64_t LockedBytes(const RdmaWindow& window) {
  const uint64_t sends = uint64_t{Receives(window)} + window.sends + kRdmaReturnBuffers;
  return 2 * SlotBytes(window) + sends * kRdmaSendBytes;
}

RdmaWindow WindowFor(size_t connections) {
  RdmaWindow window;
  const auto is_too_much = [&] { return LockedBytes(window) * connections > kMostLockedBytes; };
  while (is_too_much() && window.slots > kLeastSlots) {
    window.slots /= 2;
    window.sends = std::max(kLeastSends, window.sends / 2);
  }
  while (is_too_much() && window.slot_payload_bytes > kLeastSlotPayloadBytes)
    window.slot_payload_bytes /= 2;
  return window;
}

QueuePair::QueuePair(std::shared_ptr<RdmaDevice> device, const RdmaOptions& options)
    : device_(std::move(device)), verbs_(device_->verbs()), options_(options) {}

QueuePair::~QueuePair() {
  if (pair_ != nullptr) verbs_.ibv_destroy_qp(pair_);
  for (const Queue* const queue : {&received_, &sent_}) {
    if (queue->queue == nullptr) continue;
    if (queue->events > 0) verbs_.ibv_ack_cq_events(queue->queue, queue->events);
    verbs_.ibv_destroy_cq(queue->queue);
  }
  if (channel_ != nullptr) {
    ForgetDescriptor(channel_->fd);
    verbs_.ibv_destroy_comp_channel(channel_);
  }
  if (registration_ != nullptr) verbs_.ibv_dereg_mr(registration_);
  if (slots_registration_ != nullptr) verbs_.ibv_dereg_mr(slots_registration_);
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

Status QueuePair::New(std::shared_ptr<RdmaDevice> device, const RdmaWindow& wanted,
                      const RdmaOptions& options, std::unique_ptr<QueuePair>* queue_pair) {
  std::unique_ptr<QueuePair> made(new QueuePair(std::move(device), options));
  BYTEPS_RETURN_IF_ERROR(made->Shrink(wanted));
  BYTEPS_RETURN_IF_ERROR(made->AllocateMemory());
  BYTEPS_RETURN_IF_ERROR(made->CreateQueues());
  BYTEPS_RETURN_IF_ERROR(made->ToInit());
  // Before the peer can know of the queue pair.
  for (uint32_t i = 0; i < made->receives(); ++i) BYTEPS_RETURN_IF_ERROR(made->Repost(i));
  BYTEPS_RETURN_IF_ERROR(made->ArmReceived());
  *queue_pair = std::move(made);
  return OkStatus();
}

Status QueuePair::Shrink(const RdmaWindow& wanted) {
  window_ = wanted;
  const auto largest = device_->port().max_msg_sz;
  if (largest > 0 && largest < kFrameHeaderBytes + window_.slot_payload_bytes) {
    if (largest <= kRdmaSendBytes) {
      return FailedPrecondition("RDMA device " + device_->name() + " moves messages of at most " +
                                std::to_string(largest) + " bytes; at least " +
                                std::to_string(kRdmaSendBytes) + " are needed");
    }
    window_.slot_payload_bytes = largest - kFrameHeaderBytes;
  }
  const auto most_requests = static_cast<uint32_t>(std::max(0, device_->limits().max_qp_wr));
  const auto most_entries = static_cast<uint32_t>(std::max(0, device_->limits().max_cqe));
  while (std::max(receives(), requests()) > most_requests ||
         std::max(receives(), requests()) > most_entries) {
    if (window_.slots <= kLeastWindow && window_.sends <= kLeastWindow) {
      return FailedPrecondition("RDMA device " + device_->name() + " has queues of " +
                                std::to_string(most_requests) + " requests and " +
                                std::to_string(most_entries) + " completions; that is too few");
    }
    window_.slots = std::max(kLeastWindow, window_.slots / 2);
    window_.sends = std::max(kLeastWindow, window_.sends / 2);
  }
  return OkStatus();
}

uint32_t QueuePair::receives() const { return Receives(window_); }

Status QueuePair::AllocateMemory() {
  const uint64_t slots = SlotBytes(window_);
  const uint64_t receive_buffers = uint64_t{receives()} * kRdmaSendBytes;
  memory_bytes_ = LockedBytes(window_);
  void* const memory =
      mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ResourceExhausted(ErrnoMessage("mmap"));
  memory_ = static_cast<uint8_t*>(memory);
  receive_slots_ = memory_;
  write_slots_ = receive_slots_ + slots;
  receive_buffers_ = write_slots_ + slots;
  send_buffers_ = receive_buffers_ + receive_buffers;
  verbs::ibv_pd* const domain = device_->protection_domain();
  slots_registration_ =
      verbs_.ibv_reg_mr(domain, receive_slots_, slots,
                        verbs::IBV_ACCESS_LOCAL_WRITE | verbs::IBV_ACCESS_REMOTE_WRITE);
  if (slots_registration_ == nullptr) return CannotRegister(memory_bytes_, device_->name());
  registration_ =
      verbs_.ibv_reg_mr(domain, write_slots_, memory_bytes_ - slots, verbs::IBV_ACCESS_LOCAL_WRITE);
  if (registration_ == nullptr) return CannotRegister(memory_bytes_, device_->name());
  return OkStatus();
}

Status QueuePair::CreateQueues() {
  const auto failed = [this](const char* call) {
    return ResourceExhausted(
        ErrnoMessage(std::string(call) + " on RDMA device " + device_->name()));
  };
  channel_ = verbs_.ibv_create_comp_channel(device_->context());
  if (channel_ == nullptr) return failed("ibv_create_comp_channel");
  CloseInForkedChild(channel_->fd);
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) return failed("fcntl");
  received_.queue = verbs_.ibv_create_cq(device_->context(), static_cast<int>(receives()),
                                         &received_, channel_, 0);
  if (received_.queue == nullptr) return failed("ibv_create_cq");
  sent_.queue =
      verbs_.ibv_create_cq(device_->context(), static_cast<int>(requests()), &sent_, channel_, 0);
  if (sent_.queue == nullptr) return failed("ibv_create_cq");
  verbs::ibv_qp_init_attr attributes{};
  attributes.send_cq = sent_.queue;
  attributes.recv_cq = received_.queue;
  attributes.cap.max_send_wr = requests();
  attributes.cap.max_recv_wr = receives();
  attributes.cap.max_send_sge = std::size(WriteRequest().pieces);
  attributes.cap.max_recv_sge = 1;
  attributes.qp_type = verbs::IBV_QPT_RC;
  pair_ = verbs_.ibv_create_qp(device_->protection_domain(), &attributes);
  if (pair_ == nullptr) return failed("ibv_create_qp");
  return OkStatus();
}

Status QueuePair::ToInit() {
  const Nonce random = RandomNonce();
  std::memcpy(&packet_sequence_, random.data(), sizeof(packet_sequence_));
  packet_sequence_ &= 0xffffff;
  verbs::ibv_qp_attr attributes{};
  attributes.qp_state = verbs::IBV_QPS_INIT;
  attributes.port_num = device_->port_number();
  attributes.qp_access_flags = verbs::IBV_ACCESS_REMOTE_WRITE;
  errno = verbs_.ibv_modify_qp(pair_, &attributes,
                               verbs::IBV_QP_STATE | verbs::IBV_QP_PKEY_INDEX | verbs::IBV_QP_PORT |
                                   verbs::IBV_QP_ACCESS_FLAGS);
  if (errno != 0) return Unavailable(ErrnoMessage("prepare a queue pair of " + device_->name()));
  return OkStatus();
}

RdmaOffer QueuePair::offer() const {
  RdmaOffer offer;
  offer.window = window_;
  offer.queue_pair = pair_->qp_num;
  offer.packet_sequence = packet_sequence_;
  offer.mtu = device_->port().active_mtu;
  offer.lid = device_->port().lid;
  offer.is_ethernet = device_->is_ethernet();
  offer.gid = device_->gid();
  offer.slots_address = reinterpret_cast<uint64_t>(receive_slots_);
  offer.slots_key = slots_registration_->rkey;
  return offer;
}

Status QueuePair::Connect(const RdmaOffer& peer) {
  if (peer.is_ethernet != device_->is_ethernet()) {
    return FailedPrecondition(
        "one end has Ethernet (RoCE), the other one InfiniBand; RDMA device " + device_->name() +
        " is on this side");
  }
  if (peer.window.slots > window_.slots || peer.window.sends > window_.sends ||
      peer.window.slot_payload_bytes > window_.slot_payload_bytes) {
    return InvalidArgument("the peer wants a larger window than it was offered");
  }
  window_ = peer.window;
  peer_ = peer;
  verbs::ibv_qp_attr attributes{};
  attributes.qp_state = verbs::IBV_QPS_RTR;
  attributes.path_mtu = std::min(peer.mtu, device_->port().active_mtu);
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.packet_sequence;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kShortReceiverWait;
  verbs::ibv_ah_attr& path = attributes.ah_attr;
  path.dlid = peer.lid;
  path.sl = static_cast<uint8_t>(options_.service_level);
  path.port_num = device_->port_number();
  path.is_global = device_->is_ethernet() || options_.gid_index >= 0;
  path.grh.dgid = peer.gid;
  path.grh.sgid_index = device_->gid_index();
  path.grh.hop_limit = kHopLimit;
  path.grh.traffic_class = static_cast<uint8_t>(options_.traffic_class);
  errno = verbs_.ibv_modify_qp(pair_, &attributes,
                               verbs::IBV_QP_STATE | verbs::IBV_QP_AV | verbs::IBV_QP_PATH_MTU |
                                   verbs::IBV_QP_DEST_QPN | verbs::IBV_QP_RQ_PSN |
                                   verbs::IBV_QP_MAX_DEST_RD_ATOMIC | verbs::IBV_QP_MIN_RNR_TIMER);
  if (errno != 0) {
    return Unavailable(ErrnoMessage("no path to the peer's RDMA device from " + device_->name()));
  }
  attributes = {};
  attributes.qp_state = verbs::IBV_QPS_RTS;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kRetries;
  attributes.sq_psn = packet_sequence_;
  attributes.max_rd_atomic = 1;
  errno = verbs_.ibv_modify_qp(pair_, &attributes,
                               verbs::IBV_QP_STATE | verbs::IBV_QP_TIMEOUT |
                                   verbs::IBV_QP_RETRY_CNT | verbs::IBV_QP_RNR_RETRY |
                                   verbs::IBV_QP_SQ_PSN | verbs::IBV_QP_MAX_QP_RD_ATOMIC);
  if (errno != 0) return Unavailable(ErrnoMessage("start a queue pair of " + device_->name()));
  return OkStatus();
}

int QueuePair::descriptor() const { return channel_->fd; }

void QueuePair::TakeEvent() {
  verbs::ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (verbs_.ibv_get_cq_event(channel_, &cq, &context) != 0) return;
  Queue& queue = cq == sent_.queue ? sent_ : received_;
  ++queue.events;
  queue.armed = false;
}

Status QueuePair::ArmReceived() { return Arm(&received_); }

Status QueuePair::ArmSent() { return Arm(&sent_); }

Status QueuePair::Arm(Queue* queue) {
  if (queue->armed.exchange(true)) return OkStatus();
  errno = verbs_.req_notify_cq(queue->queue, 0);
  if (errno != 0) return Internal(ErrnoMessage("ibv_req_notify_cq"));
  return OkStatus();
}

// Both, so that neither waits for a pause of the other.
bool QueuePair::Pending() {
  if (next_polled_ < num_polled_) return true;
  next_polled_ = num_polled_ = 0;
  poll_failed_ = !PollQueue(received_) || !PollQueue(sent_);
  return num_polled_ > 0;
}

bool QueuePair::PollQueue(const Queue& queue) {
  const int count = verbs_.poll_cq(queue.queue, kPollAtOnce, polled_.data() + num_polled_);
  num_polled_ += std::max(0, count);
  return count >= 0;
}

Status QueuePair::Poll(Completion* completion, bool* found) {
  *found = false;
  if (!Pending()) {
    if (poll_failed_) return Internal("ibv_poll_cq failed on RDMA device " + device_->name());
    return OkStatus();
  }
  const verbs::ibv_wc& polled = polled_[next_polled_++];
  if (polled.status != verbs::IBV_WC_SUCCESS) return WhatBroke(polled);
  *found = true;
  completion->kind = static_cast<Kind>(polled.wr_id >> 32);
  completion->index = static_cast<uint32_t>(polled.wr_id);
  completion->bytes = polled.byte_len;
  if (completion->kind == Kind::kReceivedSend) {
    last_receive_ = completion->index;
    if (polled.opcode == verbs::IBV_WC_RECV_RDMA_WITH_IMM) {
      completion->kind = Kind::kReceivedSlot;
      completion->index = ntohl(polled.imm_data);
    }
  }
  return OkStatus();
}

// Everything that was posted comes back when a connection breaks. Only one of them says why.
Status QueuePair::WhatBroke(verbs::ibv_wc first) {
  verbs::ibv_wc reason = first;
  while (reason.status == verbs::IBV_WC_WR_FLUSH_ERR && Pending()) {
    const verbs::ibv_wc& other = polled_[next_polled_++];
    if (other.status != verbs::IBV_WC_SUCCESS) reason = other;
  }
  return Unavailable("RDMA device " + device_->name() + ": " +
                     verbs_.ibv_wc_status_str(reason.status) + " (status " +
                     std::to_string(reason.status) + ", vendor's code " +
                     std::to_string(reason.vendor_err) + ")");
}

Status QueuePair::PostSend(verbs::ibv_send_wr* request) {
  verbs::ibv_send_wr* bad = nullptr;
  errno = verbs_.post_send(pair_, request, &bad);
  if (errno != 0) return Unavailable(ErrnoMessage("ibv_post_send on " + device_->name()));
  return OkStatus();
}

void QueuePair::Write(uint32_t index, const Bytes& bytes) {
  const auto [begin, end, payload, payload_key] = bytes;
  const uint32_t own_end = payload == nullptr ? end : std::max<uint32_t>(begin, kFrameHeaderBytes);
  WriteRequest& write = writes_[num_writes_];
  int count = 0;
  if (own_end > begin) {
    write.pieces[count++] = {reinterpret_cast<uint64_t>(slot_to_write(index)) + begin,
                             own_end - begin, registration_->lkey};
  }
  if (end > own_end)
    write.pieces[count++] = {reinterpret_cast<uint64_t>(payload), end - own_end, payload_key};
  write.request = {};
  write.request.wr_id = RequestId(Kind::kWritten, index);
  write.request.sg_list = write.pieces;
  write.request.num_sge = count;
  write.request.opcode = verbs::IBV_WR_RDMA_WRITE;
  write.request.remote_addr = peer_.slots_address + begin +
                              uint64_t{index} * (kFrameHeaderBytes + window_.slot_payload_bytes);
  write.request.rkey = peer_.slots_key;
  if (num_writes_ > 0) writes_[num_writes_ - 1].request.next = &write.request;
  ++num_writes_;
}

Status QueuePair::Announce(uint32_t message) {
  verbs::ibv_send_wr& last = writes_[num_writes_ - 1].request;
  last.opcode = verbs::IBV_WR_RDMA_WRITE_WITH_IMM;
  last.imm_data = htonl(message);
  last.send_flags = verbs::IBV_SEND_SIGNALED;
  num_writes_ = 0;
  return PostSend(&writes_[0].request);
}

Status QueuePair::Send(uint32_t index, uint32_t bytes) {
  verbs::ibv_sge piece{reinterpret_cast<uint64_t>(buffer_to_send(index)), bytes,
                       registration_->lkey};
  verbs::ibv_send_wr request{};
  request.wr_id = RequestId(Kind::kSent, index);
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = verbs::IBV_WR_SEND;
  request.send_flags = verbs::IBV_SEND_SIGNALED;
  return PostSend(&request);
}

Status QueuePair::Repost(uint32_t receive) {
  verbs::ibv_sge piece{reinterpret_cast<uint64_t>(received_send(receive)), kRdmaSendBytes,
                       registration_->lkey};
  verbs::ibv_recv_wr request{};
  request.wr_id = RequestId(Kind::kReceivedSend, receive);
  request.sg_list = &piece;
  request.num_sge = 1;
  verbs::ibv_recv_wr* bad = nullptr;
  errno = verbs_.post_recv(pair_, &request, &bad);
  if (errno != 0) return Unavailable(ErrnoMessage("ibv_post_recv on " + device_->name()));
  return OkStatus();
}

}  // namespace byteps
