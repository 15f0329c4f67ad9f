#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <limits>

#include "cc/van/tcp/tcp_connection.h"

namespace byteps {
namespace {

// Small frames leave in one call up to this size; what has been gathered can no longer be
// overtaken.
constexpr uint64_t kGatherBytes = 64 * 1024;
constexpr size_t kGatherFrames = 32;

}  // namespace

void SendQueue::Push(OutgoingFrame frame) {
  auto entry = std::make_unique<Entry>();
  entry->rank = frame.header.type == FrameType::kControl || frame.header.type == FrameType::kCredit
                    ? std::numeric_limits<int64_t>::min()
                    : -int64_t{frame.header.priority};
  entry->sequence = next_sequence_++;
  EncodeFrameHeader(frame.header, entry->header.data());
  entry->payload = static_cast<const uint8_t*>(frame.payload);
  entry->payload_bytes = frame.header.payload_bytes;
  entry->keep_alive = std::move(frame.keep_alive);
  waiting_.insert(std::move(entry));
}

void SendQueue::Gather() {
  uint64_t bytes = 0;
  for (const auto& entry : leaving_)
    bytes += kFrameHeaderBytes + entry->payload_bytes - entry->sent;
  while (!waiting_.empty() && leaving_.size() < kGatherFrames &&
         (leaving_.empty() || bytes < kGatherBytes)) {
    auto node = waiting_.extract(waiting_.begin());
    bytes += kFrameHeaderBytes + node.value()->payload_bytes;
    leaving_.push_back(std::move(node.value()));
  }
}

Status SendQueue::Write(const Socket& socket, AtomicVanCounters* counters,
                        std::vector<std::shared_ptr<const void>>* finished) {
  while (true) {
    Gather();
    if (leaving_.empty()) return OkStatus();
    iovec pieces[2 * kGatherFrames];
    size_t count = 0;
    for (const auto& entry : leaving_) {
      if (entry->sent < kFrameHeaderBytes) {
        pieces[count++] = {entry->header.data() + entry->sent, kFrameHeaderBytes - entry->sent};
      }
      const uint64_t payload_sent =
          entry->sent > kFrameHeaderBytes ? entry->sent - kFrameHeaderBytes : 0;
      if (entry->payload_bytes > payload_sent) {
        pieces[count++] = {const_cast<uint8_t*>(entry->payload) + payload_sent,
                           static_cast<size_t>(entry->payload_bytes - payload_sent)};
      }
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t result = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return OkStatus();
      return Unavailable(ErrnoMessage("send"));
    }
    counters->wire_bytes_sent += result;
    uint64_t left = result;
    while (!leaving_.empty()) {
      Entry& entry = *leaving_.front();
      const uint64_t rest = kFrameHeaderBytes + entry.payload_bytes - entry.sent;
      if (left < rest) {
        entry.sent += left;
        break;
      }
      left -= rest;
      ++counters->frames_sent;
      counters->payload_bytes_sent += entry.payload_bytes;
      finished->push_back(std::move(entry.keep_alive));
      leaving_.pop_front();
    }
  }
}

void SendQueue::Clear(std::vector<std::shared_ptr<const void>>* dropped) {
  for (const auto& entry : waiting_) dropped->push_back(std::move(entry->keep_alive));
  for (const auto& entry : leaving_) dropped->push_back(std::move(entry->keep_alive));
  waiting_.clear();
  leaving_.clear();
}

}  // namespace byteps
