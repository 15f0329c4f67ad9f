// SimulatedNetwork: Vans whose frames travel through memory, in simulated time. Each direction of a
// connection has a rate and a delay; connections break, links freeze, processes die. Processes may
// have hosts of their own, whose NIC and CPU all their connections share.
//
// It keeps the contract of van/van.h and no more: frames of higher priority overtake waiting ones,
// long ones go in pieces between which others come, what has arrived before a break may be half a
// frame. A Tamper breaks the contract, or changes what peers say: the planted bugs.
#ifndef TF_BYTEPS_CC_SIMULATION_TESTING_SIMULATED_NETWORK_H_
#define TF_BYTEPS_CC_SIMULATION_TESTING_SIMULATED_NETWORK_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/van/van.h"
#include "cc/van/waiting_frame.h"

namespace byteps {

// Bugs that a test plants.
struct Tamper {
  // Of each frame as it is sent; returns whether it is to be lost.
  std::function<bool(FrameHeader* header)> on_send;
  // Of each frame as it is sent, between two processes, with its payload.
  std::function<void(const std::string& from, const std::string& to, OutgoingFrame* frame)>
      on_frame;
  // Of each handshake, before the end that listens looks at it.
  std::function<void(Hello* hello)> on_hello;
  // A second frame, without payload, that follows one.
  std::function<std::optional<FrameHeader>(const FrameHeader& header)> after_send;
  double overtakes = 0;         // how often a frame overtakes its equals
  bool repeats_epochs = false;  // all epochs of an elastic job have the same number
  bool closes_at_once = false;  // Close calls OnClosed itself, with whatever its caller has locked
};

// What each process's host can do.
struct HostSpeeds {
  double nic_nanos_per_byte = 0;  // of payload, in each direction
  double cpu_nanos_per_byte = 0;  // to take in what has arrived, and to add it up
  int64_t frame_nanos = 0;        // more for each piece of a frame
  int64_t delay_ns = 0;           // of the network between two hosts
  uint64_t piece_bytes = 0;       // connections take turns after so many
  // So many of each connection wait for the NIC in the kernel, where nothing overtakes them.
  uint64_t kernel_bytes = 0;
};

class SimulatedVan;
class SimulatedConnection;

// All that the Vans of one simulation share. Outlives them.
class SimulatedNetwork {
 public:
  explicit SimulatedNetwork(EventSchedule* schedule) : schedule_(*schedule) {}

  EventSchedule& schedule() { return schedule_; }
  Tamper& tamper() { return tamper_; }
  // Before there are connections. Without it, each connection has a rate of its own.
  void GiveHosts(const HostSpeeds& speeds) { speeds_ = speeds; }
  // Like that of a process whose host still answers for it: nobody hears of it any more.
  void Kill(const std::string& process) {
    schedule_.Note("kill " + process);
    dead_.insert(process);
    BreakAll(process, "");
  }
  // With its host: nothing comes from it any more, and no connection breaks.
  void KillHost(const std::string& process) {
    schedule_.Note("kill the host of " + process);
    dead_.insert(process);
    lost_hosts_.insert(process);
  }
  bool IsDead(const std::string& process) const { return dead_.count(process) > 0; }

  // Connections between two processes break, or those of one with all others ("").
  inline void BreakAll(const std::string& one, const std::string& other);

  // Nothing arrives between the two for so long, and no connection is made.
  void Freeze(const std::string& one, const std::string& other, int64_t nanos) {
    schedule_.Note("freeze " + one + " - " + other + " for " + std::to_string(nanos / 1000000) +
                   " ms");
    int64_t& until = frozen_[Between(one, other)];
    until = std::max(until, schedule_.NowNanos() + nanos);
  }
  // The same between one and all others.
  void CutOff(const std::string& process, int64_t nanos) { Freeze(process, "", nanos); }
  // Whether nothing can come from it now.
  bool IsSilent(const std::string& process) {
    return FrozenUntil(process, "") > schedule_.NowNanos() ||
           schedule_.IsStopped(schedule_.NumberOf(process));
  }
  // From now on who listens gets a port that nobody has any more, as with BYTEPS_PORTS.
  void ReusePorts() { reuses_ports_ = true; }
  bool IsConnected(const std::string& one, const std::string& other) const {
    return std::any_of(connections_.begin(), connections_.end(),
                       [&](const auto& each) { return AreEnds(each, one, other); });
  }
  // The bytes of pushes of a process that are sure not to have arrived.
  inline uint64_t PushedBytes(const std::string& process) const;

  // Until when something of a process may be kept back.
  int64_t FrozenUntil(const std::string& process) const {
    int64_t last = 0;
    for (const auto& [link, until] : frozen_) {
      if (link.first == process || link.second == process) last = std::max(last, until);
    }
    return last;
  }
  int64_t FrozenUntil(const std::string& one, const std::string& other) const {
    int64_t last = 0;
    for (const Link& link : {Between(one, other), Link("", one), Link("", other)}) {
      const auto found = frozen_.find(link);
      if (found != frozen_.end()) last = std::max(last, found->second);
    }
    return last;
  }

 private:
  friend class SimulatedVan;
  friend class SimulatedConnection;
  using Link = std::pair<std::string, std::string>;
  struct Listener {
    SimulatedVan* van = nullptr;
    ConnectionAcceptor* acceptor = nullptr;
  };

  static Link Between(const std::string& one, const std::string& other) {
    return one < other ? Link(one, other) : Link(other, one);
  }

  // Until when a host is at work with what it has begun.
  struct Host {
    int64_t sends_until_ns = 0, receives_until_ns = 0, computes_until_ns = 0;
  };
  // When a piece has left its sender, and when its receiver has taken it in.
  struct Passage {
    int64_t left_ns = 0, taken_ns = 0;
  };

  // What arrives is received while it is sent, if nothing else is.
  Passage Pass(const std::string& from, const std::string& to, uint64_t bytes) {
    Host &sender = hosts_[from], &receiver = hosts_[to];
    const auto nanos = [&](double per_byte) {
      return static_cast<int64_t>(static_cast<double>(bytes) * per_byte) + speeds_->frame_nanos;
    };
    const int64_t wire_ns = nanos(speeds_->nic_nanos_per_byte);
    const int64_t begin_ns = std::max(schedule_.NowNanos(), sender.sends_until_ns);
    sender.sends_until_ns = begin_ns + wire_ns;
    receiver.receives_until_ns =
        std::max(begin_ns + speeds_->delay_ns, receiver.receives_until_ns) + wire_ns;
    receiver.computes_until_ns = std::max(receiver.receives_until_ns, receiver.computes_until_ns) +
                                 nanos(speeds_->cpu_nanos_per_byte);
    return {sender.sends_until_ns, receiver.computes_until_ns};
  }

  inline uint16_t NewPort();
  // Of an open connection that the first has made.
  static inline bool AreEnds(const std::weak_ptr<SimulatedConnection>& connection,
                             const std::string& one, const std::string& other);

  EventSchedule& schedule_;
  Tamper tamper_;
  bool reuses_ports_ = false;
  std::optional<HostSpeeds> speeds_;
  std::map<std::string, Host> hosts_;  // by process
  std::map<uint16_t, Listener> listeners_;
  uint16_t last_port_ = 0;
  std::set<std::string> dead_;
  std::set<std::string> lost_hosts_;  // of some of these: nobody answers for them
  std::map<Link, int64_t> frozen_;
  std::vector<std::weak_ptr<SimulatedConnection>> connections_;
};

// One end of a connection.
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

  // What was on the way arrives first, or does not.
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

class SimulatedVan final : public Van {
 public:
  SimulatedVan(SimulatedNetwork* network, std::string process)
      : network_(*network), schedule_(network->schedule_), process_(std::move(process)) {}
  ~SimulatedVan() override { Stop(); }

  Status Listen(const std::string&, uint16_t, ConnectionAcceptor* acceptor,
                Endpoint* bound) override {
    *bound = {"10.0.0.1", network_.NewPort()};
    network_.listeners_[bound->port] = {this, acceptor};
    ports_.push_back(bound->port);
    return OkStatus();
  }

  Status Connect(const Endpoint& endpoint, const Hello& hello, const Hello& peer,
                 ConnectionHandler* handler, const ConnectTimeout& timeout,
                 std::shared_ptr<Connection>* connection) override {
    const int64_t deadline_ns = schedule_.NowNanos() + static_cast<int64_t>(timeout.seconds * 1e9);
    while (true) {
      schedule_.Sleep(50000 + static_cast<int64_t>(schedule_.Draw(500000)));
      if (timeout.in_vain) BYTEPS_RETURN_IF_ERROR(timeout.in_vain());
      if (is_stopped_) return Cancelled("the Van has been stopped");
      Status status = Unavailable("nothing comes back from " + endpoint.ToString());
      const auto found = network_.listeners_.find(endpoint.port);
      const bool is_there =
          found != network_.listeners_.end() && !network_.IsDead(found->second.van->process_);
      if (network_.IsDead(process_)) {
        status = Unavailable("this process is dead");
      } else if (!is_there && found != network_.listeners_.end() &&
                 network_.lost_hosts_.count(found->second.van->process_) > 0) {
        status = DeadlineExceeded(status.message());
      } else if (!is_there) {
        status = hello.again ? FailedPrecondition("nobody listens at " + endpoint.ToString())
                             : Unavailable("nobody listens at " + endpoint.ToString());
      } else if (network_.FrozenUntil(process_, found->second.van->process_) <=
                     schedule_.NowNanos() &&
                 !network_.IsSilent(found->second.van->process_)) {
        status = ShakeHands(found->second, hello, peer, handler, connection);
      }
      const bool may_come = status.code() == StatusCode::kUnavailable ||
                            status.code() == StatusCode::kDeadlineExceeded;
      if (!may_come || schedule_.NowNanos() >= deadline_ns) return status;
      schedule_.Sleep(10000000);
    }
  }

  Status Expect(size_t) override { return OkStatus(); }

  void Stop() override {
    if (is_stopped_) return;
    is_stopped_ = true;
    for (const uint16_t port : ports_) {  // a dead process's may have another owner
      const auto found = network_.listeners_.find(port);
      if (found != network_.listeners_.end() && found->second.van == this)
        network_.listeners_.erase(found);
    }
    for (const std::shared_ptr<SimulatedConnection>& connection : connections_) {
      if (connection->handler_ == nullptr) continue;
      ConnectionHandler* const handler = std::exchange(connection->handler_, nullptr);
      if (!connection->is_closed_) {
        connection->End(Cancelled("stopped"));
        connection->EndOther("the peer has ended");
      }
      if (connection->is_open_) handler->OnClosed(*connection, Cancelled("stopped"));
      connection->set_context(nullptr);
    }
  }

  VanCounters counters() const override { return {}; }
  bool IsRefusedAt(const Endpoint& endpoint, double) const override {
    schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(1000000)));
    const auto found = network_.listeners_.find(endpoint.port);
    if (found == network_.listeners_.end()) return true;
    const std::string& owner = found->second.van->process_;
    return network_.IsDead(owner) && network_.lost_hosts_.count(owner) == 0;
  }

 private:
  friend class SimulatedNetwork;

  Status ShakeHands(const SimulatedNetwork::Listener& listener, const Hello& hello,
                    const Hello& peer, ConnectionHandler* handler,
                    std::shared_ptr<Connection>* connection) {
    Hello said = hello;
    said.to_role = peer.role;
    said.to_rank = peer.rank;
    if (network_.tamper_.on_hello) network_.tamper_.on_hello(&said);
    ConnectionHandler* other_handler = nullptr;
    const Status status = listener.acceptor->OnHello(said, "10.0.0.1", &other_handler);
    if (!status.ok()) {
      schedule_.Note(process_ + " is refused by " + listener.van->process_ + ": " +
                     status.message());
      return status;
    }
    Hello addressed = peer;
    addressed.again = hello.again;
    const auto here = std::make_shared<SimulatedConnection>(
        &network_, process_, listener.van->process_, addressed, handler);
    const auto there = std::make_shared<SimulatedConnection>(&network_, listener.van->process_,
                                                             process_, hello, other_handler);
    here->other_ = there;
    there->other_ = here;
    here->delay_ns_ = there->delay_ns_ = 10000 + static_cast<int64_t>(schedule_.Draw(300000));
    here->nanos_per_kib_ = there->nanos_per_kib_ = int64_t{1000} << schedule_.Draw(6);
    connections_.push_back(here);
    listener.van->connections_.push_back(there);
    network_.connections_.push_back(here);
    schedule_.Note(process_ + " connects to " + listener.van->process_ +
                   (hello.again ? " again" : ""));
    // Each end learns of the other at a time of its own.
    schedule_.After(static_cast<int64_t>(schedule_.Draw(200000)), there->number_, [there] {
      if (there->is_closed_ || !there->Sees() || there->handler_ == nullptr) return;
      there->is_open_ = true;
      there->last_heard_ns_ = there->schedule_.NowNanos();
      there->handler_->OnOpen(there);
    });
    schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(200000)));
    if (here->is_closed_ || here->handler_ == nullptr || network_.IsDead(process_))
      return Unavailable("it broke while it was made");
    here->is_open_ = true;
    here->last_heard_ns_ = schedule_.NowNanos();
    handler->OnOpen(here);
    *connection = here;
    return OkStatus();
  }

  SimulatedNetwork& network_;
  EventSchedule& schedule_;
  const std::string process_;
  std::vector<uint16_t> ports_;
  std::vector<std::shared_ptr<SimulatedConnection>> connections_;  // all that were ever made
  bool is_stopped_ = false;
};

inline void SimulatedNetwork::BreakAll(const std::string& one, const std::string& other) {
  for (const std::weak_ptr<SimulatedConnection>& weak : connections_) {
    const std::shared_ptr<SimulatedConnection> connection = weak.lock();
    if (connection == nullptr) continue;
    const std::string &a = connection->process_, &b = connection->peer_process_;
    if ((a == one && (other.empty() || b == other)) || (b == one && (other.empty() || a == other)))
      connection->Break("connection reset");
  }
}

inline uint16_t SimulatedNetwork::NewPort() {
  if (!reuses_ports_) return ++last_port_;
  uint16_t port = 1;
  for (auto each = listeners_.begin(); each != listeners_.end() && each->first == port; ++each) {
    const std::string& owner = each->second.van->process_;
    if (IsDead(owner) && lost_hosts_.count(owner) == 0) break;
    ++port;
  }
  last_port_ = std::max(last_port_, port);
  return port;
}

inline bool SimulatedNetwork::AreEnds(const std::weak_ptr<SimulatedConnection>& connection,
                                      const std::string& one, const std::string& other) {
  const std::shared_ptr<SimulatedConnection> end = connection.lock();
  return end != nullptr && !end->is_closed_ && end->is_open_ && end->process_ == one &&
         end->peer_process_ == other;
}

inline uint64_t SimulatedNetwork::PushedBytes(const std::string& process) const {
  uint64_t bytes = 0;
  for (const std::weak_ptr<SimulatedConnection>& weak : connections_) {
    const std::shared_ptr<SimulatedConnection> connection = weak.lock();
    if (connection != nullptr && connection->process() == process && !connection->is_closed())
      bytes += connection->pushed_bytes();
  }
  return bytes;
}

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SIMULATION_TESTING_SIMULATED_NETWORK_H_
