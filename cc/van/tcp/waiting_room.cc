#include "cc/van/tcp/waiting_room.h"

#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/logging.h"

namespace byteps {
namespace {

constexpr int64_t kTurnNanos = 10 * 1000000;
// What a handshake takes is known only afterwards.
constexpr int kMostInATurn = 8;

}  // namespace

Status WaitingRoom::Open() {
  const int descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (descriptor < 0) return ResourceExhausted(ErrnoMessage("timerfd_create"));
  timer_ = Socket(descriptor);
  return OkStatus();
}

void WaitingRoom::Enter(Socket socket) {
  const int64_t now = MonotonicNanos();
  std::string host = HostOf(PeerAddress(socket));
  if (!strangers_->HasFailedTooOften(host, now) || (waiting_.empty() && strangers_->HasTime(now)))
    return next_(std::move(socket));
  if (waiting_.size() >= kMost) DropThoseThatHaveGone();
  if (waiting_.size() >= kMost) {
    Refuse(waiting_.front(), "too many connections wait for their handshake");
    waiting_.pop_front();
  }
  if (waiting_.empty()) SetTimer(true);
  waiting_.push_back({std::move(socket), std::move(host)});
}

void WaitingRoom::MakeRoom() {
  for (size_t left = (waiting_.size() + 1) / 2; left > 0; --left) {
    Refuse(waiting_.front(), "no descriptors for connections without a handshake");
    waiting_.pop_front();
  }
}

void WaitingRoom::OnEvents(uint32_t) {
  uint64_t turns;
  if (read(timer_.get(), &turns, sizeof(turns)) < 0) return;
  DropThoseThatHaveGone();
  for (int i = 0; i < kMostInATurn && !waiting_.empty(); ++i) {
    // One in any case: who belongs to the job has 2 s to come back (van/reconnector.h).
    if (i > 0 && !strangers_->HasTime(MonotonicNanos())) break;
    Socket socket = std::move(waiting_.front().socket);
    waiting_.pop_front();
    next_(std::move(socket));
  }
  if (waiting_.empty()) SetTimer(false);
}

void WaitingRoom::OnStop() {
  waiting_.clear();
  timer_.Reset();
}

void WaitingRoom::SetTimer(bool is_on) {
  itimerspec turn{};
  if (is_on) turn.it_interval.tv_nsec = turn.it_value.tv_nsec = kTurnNanos;
  timerfd_settime(timer_.get(), 0, &turn, nullptr);
}

void WaitingRoom::DropThoseThatHaveGone() {
  std::vector<pollfd> entries;
  entries.reserve(waiting_.size());
  for (const Waiting& one : waiting_) entries.push_back({one.socket.get(), POLLRDHUP, 0});
  if (poll(entries.data(), entries.size(), 0) <= 0) return;
  std::deque<Waiting> still;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents == 0)
      still.push_back(std::move(waiting_[i]));
    else
      Refuse(waiting_[i], "it has gone before it was listened to");
  }
  waiting_ = std::move(still);
}

void WaitingRoom::Refuse(const Waiting& one, const std::string& why) {
  const std::string what = strangers_->Failed(
      one.host, "refused a connection from " + one.host + ": " + why, MonotonicNanos());
  if (!what.empty()) Log(LogLevel::kWarning, what);
}

}  // namespace byteps
