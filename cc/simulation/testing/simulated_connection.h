// SimulatedConnection: one end of a connection of a SimulatedNetwork.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/van/van.h"
#include "cc/van/waiting_frame.h"

namespace byteps {

class SimulatedConnection final : public Connection,
                                  public std::enable_shared_from_this<SimulatedConnection> {
 public:
  SimulatedConnection(SimulatedNetwork* network, std::string process, std::string peer_process,
                      Hello peer, ConnectionHandler* handler)
      : network_(*network),
        schedule_(network->schedule_),
        process_(std::move(process)),
        number_(schedule_.NumberOf(process_)),
        peer_process_(std::move(peer_process)),
        peer_(std::move(peer)),
        peer_name_(peer_.PeerName() + " at 10.0.0.1:1"),
        handler_(handler) {}

  void Send(OutgoingFrame frame) override {
    if (is_closed_ || network_.IsDead(process_)) return;
    if (network_.tamper_.on_send && network_.tamper_.on_send(&frame.header)) return;
    if (network_.tamper_.on_frame) network_.tamper_.on_frame(process_, peer_process_, &frame);
    std::optional<FrameHeader> more;
    if (network_.tamper_.after_send) more = network_.tamper_.after_send(frame.header);
    if (TakesCredit(frame.header)) pushed_bytes_ += frame.header.payload_bytes;
    Insert(std::move(frame));
    if (more.has_value()) {
      OutgoingFrame second;
      second.header = *more;
      second.header.payload_bytes = 0;
      Insert(std::move(second));
    }
    if (!is_sending_) SendNext();
  }

  // Of pushes that this end has been given, those that have not arrived.
  uint64_t pushed_bytes() const { return pushed_bytes_; }
  bool is_closed() const { return is_closed_; }
  const std::string& process() const { return process_; }

  uint64_t Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped) override {
    uint64_t bytes = 0;
    for (auto each = waiting_.begin(); each != waiting_.end();) {
      if (each->frame.owner != owner) {
        ++each;
        continue;
      }
      bytes += each->frame.header.payload_bytes;
      if (TakesCredit(each->frame.header)) pushed_bytes_ -= each->frame.header.payload_bytes;
      dropped->push_back(std::move(each->frame.keep_alive));
      each = waiting_.erase(each);
    }
    return bytes;
  }

  void Close(const Status& reason) override {
    if (is_closed_) return;
    schedule_.Note(process_ + " closes to " + peer_process_ + ": " + reason.message());
    End(reason);
    EndOther("the peer has closed it");
  }
  bool is_idle() const override { return waiting_.empty() && begun_.empty(); }
  const Hello& peer() const override { return peer_; }
  const std::string& peer_name() const override { return peer_name_; }
  // What waits to be read has been heard.
  int64_t last_heard_ns() const override {
    const int64_t now_ns = schedule_.NowNanos();
    const bool has_unread =
        !arriving_pieces_.empty() && arriving_pieces_.front().arrives_ns <= now_ns;
    return has_unread && Sees() ? now_ns : last_heard_ns_;
  }
  std::string local_host() const override { return "10.0.0.1"; }

  // Both ends see that, one after the other.
  void Break(const std::string& why) {
    if (is_closed_) return;
    schedule_.Note("break " + process_ + " - " + peer_process_);
    End(Unavailable(why));
    EndOther(why);
  }

 private:
  friend class SimulatedVan;
  friend class SimulatedNetwork;
  struct Outgoing {
    int64_t rank = 0;
    OutgoingFrame frame;
    uint64_t sent = 0;  // bytes of payload
  };
  struct Arriving {
    FrameHeader header;
    std::shared_ptr<PayloadSink> sink;
    uint64_t left = 0;
  };
  // What arrives at once: perhaps a header, and some bytes of the frame that began last.
  struct Piece {
    bool has_header = false;
    FrameHeader header;
    std::string bytes;
    int64_t arrives_ns = 0;
  };

  static bool TakesCredit(const FrameHeader& header) {
    return header.type == FrameType::kPush && header.status == StatusCode::kOk &&
           !header.IsResult();
  }

  void Insert(OutgoingFrame frame) {
    Outgoing out;
    out.rank = WaitingFrame::RankOf(frame);
    out.frame = std::move(frame);
    const bool overtakes = schedule_.Chance(network_.tamper_.overtakes);
    const auto leaves_later = [&](const Outgoing& other) {
      return overtakes ? other.rank >= out.rank : other.rank > out.rank;
    };
    const auto place = std::find_if(waiting_.begin(), waiting_.end(), leaves_later);
    waiting_.insert(place, std::move(out));
  }

  bool Sees() const { return !network_.IsDead(process_); }

  // The most urgent piece leaves; the next one when it has left.
  void SendNext() {
    if (is_closed_) return;
    const bool begins =
        !waiting_.empty() && (begun_.empty() || (waiting_.front().rank < begun_.back().rank &&
                                                 begun_.size() + 1 < kMaxBegunFrames));
    is_sending_ = begins || !begun_.empty();
    if (!is_sending_) return;
    Piece piece;
    if (begins) {
      begun_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      piece.has_header = true;
      piece.header = begun_.back().frame.header;
    }
    Outgoing& out = begun_.back();
    const uint64_t left = out.frame.header.payload_bytes - out.sent;
    uint64_t bytes = left;
    if (network_.speeds_.has_value())
      bytes = std::min(left, network_.speeds_->piece_bytes);
    else if (left > 1024 && schedule_.Chance(0.3))
      bytes = 1 + schedule_.Draw(left - 1);
    if (bytes > 0) {
      const auto* const payload = static_cast<const char*>(WholePayload(out.frame));
      piece.bytes.assign(payload + out.sent, bytes);
    }
    out.sent += bytes;
    if (out.sent == out.frame.header.payload_bytes) begun_.pop_back();
    const std::shared_ptr<SimulatedConnection> other = other_.lock();
    if (network_.speeds_.has_value()) return PassOn(std::move(piece), other);
    const int64_t takes = static_cast<int64_t>(bytes / 1024 + 1) * nanos_per_kib_ +
                          static_cast<int64_t>(schedule_.Draw(3000));
    if (other != nullptr) {
      const int64_t earliest = std::max(schedule_.NowNanos() + takes + delay_ns_,
                                        network_.FrozenUntil(process_, peer_process_));
      arrives_ns_ =
          std::max(arrives_ns_ + 1, earliest + static_cast<int64_t>(schedule_.Draw(5000)));
      piece.arrives_ns = arrives_ns_;
      other->arriving_pieces_.push_back(std::move(piece));
      schedule_.After(arrives_ns_ - schedule_.NowNanos(), other->number_,
                      [other] { other->Arrive(); });
    }
    schedule_.After(takes, number_, [self = shared_from_this()] { self->SendNext(); });
  }

  // Over the NICs of two hosts.
  void PassOn(Piece piece, const std::shared_ptr<SimulatedConnection>& other) {
    const SimulatedNetwork::Passage passage =
        network_.Pass(process_, peer_process_, piece.bytes.size());
    if (other != nullptr) {
      arrives_ns_ = std::max(arrives_ns_ + 1, passage.taken_ns);
      piece.arrives_ns = arrives_ns_;
      other->arriving_pieces_.push_back(std::move(piece));
      schedule_.After(arrives_ns_ - schedule_.NowNanos(), other->number_,
                      [other] { other->Arrive(); });
    }
    const auto ahead_ns = static_cast<int64_t>(static_cast<double>(network_.speeds_->kernel_bytes) *
                                               network_.speeds_->nic_nanos_per_byte);
    schedule_.After(std::max<int64_t>(passage.left_ns - ahead_ns - schedule_.NowNanos(), 0),
                    number_, [self = shared_from_this()] { self->SendNext(); });
  }

  void Arrive() {
    if (is_closed_ || arriving_pieces_.empty()) return;
    if (!is_open_) return schedule_.After(10000, [self = shared_from_this()] { self->Arrive(); });
    Piece piece = std::move(arriving_pieces_.front());
    arriving_pieces_.pop_front();
    if (!Sees()) return;
    last_heard_ns_ = schedule_.NowNanos();
    const Status status = Deliver(piece);
    if (!status.ok()) return Close(status);
    if (arriving_pieces_.empty() && !is_closed_) handler_->OnDrained(*this);
  }

  Status Deliver(const Piece& piece) {
    if (piece.has_header) {
      arriving_.push_back({piece.header, nullptr, piece.header.payload_bytes});
      if (piece.header.payload_bytes > 0)
        BYTEPS_RETURN_IF_ERROR(handler_->OnHeader(*this, piece.header, &arriving_.back().sink));
    }
    Arriving& last = arriving_.back();
    if (last.sink != nullptr && !piece.bytes.empty())
      last.sink->Take(piece.bytes.data(), piece.bytes.size(), last.left);
    last.left -= piece.bytes.size();
    if (last.left > 0) return OkStatus();
    Arriving frame = std::move(last);
    arriving_.pop_back();
    NoteFrame(frame.header);
    const std::shared_ptr<SimulatedConnection> other = other_.lock();
    if (TakesCredit(frame.header) && other != nullptr)
      other->pushed_bytes_ -= frame.header.payload_bytes;
    return handler_->OnFrame(*this, frame.header, std::move(frame.sink));
  }

  void NoteFrame(const FrameHeader& header) {
    static const char* const kNames[] = {"?", "push", "reply", "credit", "control", "requested"};
    std::string what = peer_process_ + " -> " + process_ + " " +
                       kNames[std::min<size_t>(static_cast<size_t>(header.type), 5)];
    if (header.type == FrameType::kPush || header.type == FrameType::kReply) {
      what += " key " + std::to_string(header.key % 1000) + " part " + std::to_string(header.part) +
              " round " + std::to_string(header.round) + " of worker " +
              std::to_string(header.worker) + " v" + std::to_string(header.placement_version);
      if (header.IsResult()) what += " (result)";
      if (header.status != StatusCode::kOk) what += " (given up)";
    } else if (header.type == FrameType::kControl) {
      what += " " + std::to_string(header.round);
    }
    schedule_.Note(what + ", " + std::to_string(header.payload_bytes) + " bytes");
  }

  // Nothing comes after it but OnClosed. What has not been read by then is lost.
  void End(const Status& reason) {
    is_closed_ = true;
    waiting_.clear();
    begun_.clear();
    arriving_pieces_.clear();
    const auto tell = [self = shared_from_this(), reason] {
      self->arriving_.clear();
      if (self->is_open_ && self->Sees() && self->handler_ != nullptr)
        self->handler_->OnClosed(*self, reason);
      self->handler_ = nullptr;
      self->set_context(nullptr);
    };
    if (network_.tamper_.closes_at_once) return tell();
    schedule_.After(static_cast<int64_t>(schedule_.Draw(100000)), number_, tell);
  }

  // What was in flight arrives first, or does not.
  void EndOther(const std::string& why) {
    const std::shared_ptr<SimulatedConnection> other = other_.lock();
    if (other == nullptr || other->is_closed_) return;
    const int64_t after = static_cast<int64_t>(schedule_.Draw(2000000));
    const int64_t frozen = network_.FrozenUntil(process_, peer_process_) - schedule_.NowNanos();
    schedule_.After(std::max(after, frozen), other->number_, [other, why] {
      if (!other->is_closed_) other->End(Unavailable(why));
    });
  }

  SimulatedNetwork& network_;
  EventSchedule& schedule_;
  const std::string process_;
  const size_t number_;  // the schedule's, of process_
  const std::string peer_process_;
  const Hello peer_;
  const std::string peer_name_;
  ConnectionHandler* handler_;  // null: has had its last call
  std::weak_ptr<SimulatedConnection> other_;
  std::deque<Outgoing> waiting_;  // in the order in which they leave
  std::vector<Outgoing> begun_;   // the last one goes on
  bool is_sending_ = false;
  int64_t delay_ns_ = 0;
  int64_t nanos_per_kib_ = 0;
  uint64_t pushed_bytes_ = 0;
  int64_t arrives_ns_ = 0;  // of what was sent last
  std::deque<Piece> arriving_pieces_;
  std::vector<Arriving> arriving_;
  int64_t last_heard_ns_ = 0;
  bool is_open_ = false;
  bool is_closed_ = false;
};

}  // namespace byteps
