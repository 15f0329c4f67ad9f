// StateUnderTest: a WorkerState with what a Worker has around it: names of connections, a time that
// the test sets, and the coordinator's answers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/worker/state/worker_state.h"

namespace byteps {

class StateUnderTest {
 public:
  static constexpr int32_t kRank = 0;
  static constexpr int32_t kServers = 2;

  // Two workers and two servers on hosts of their own; credit for four parts of 1000 bytes.
  static JobDescription Job() {
    JobDescription job;
    job.epoch = 3;
    job.worker_hosts = {"host0", "host1"};
    job.server_hosts = {"host2", "host3"};
    job.server_endpoints = {{"10.0.0.2", 2}, {"10.0.0.3", 3}};
    job.options.flow.part_bytes = 1000;
    job.options.flow.credit_bytes = 4000;
    return job;
  }
  explicit StateUnderTest(const JobDescription& of_job = Job())
      : job(of_job), state(job, kRank, {false, job.MayLoseServers(), nullptr}) {
    state.servers.Prepare(job);
  }

  // Has something happen, a nanosecond after what was before.
  template <class Event>
  Effects Do(const Event& event) {
    Effects effects;
    effects.now = {++now_ns, 0};
    event(&effects);
    return effects;
  }

  // ---- connections, by name: there is nothing behind them

  std::shared_ptr<Connection> NewConnection(int32_t server) {
    const auto name = std::make_shared<int>(server);
    return {name, reinterpret_cast<Connection*>(name.get())};
  }
  Source From(int32_t server) const { return {server, 0, connection(server).get(), names[server]}; }
  std::shared_ptr<Connection> connection(int32_t server) const {
    return state.servers[server].paths[0].connection;
  }
  Effects Open(int32_t server, bool again = false) {
    return Do([&](Effects* effects) {
      state.path_events.BeginAttempt(server, 0);
      const std::shared_ptr<Connection> opened = NewConnection(server);
      state.path_events.OnOpen(opened, {server, 0, opened.get(), names[server]}, again, effects);
    });
  }
  void OpenAll() {
    for (int32_t server = 0; server < kServers; ++server) Open(server);
  }
  Effects Break(int32_t server) {
    return Do([&](Effects* effects) {
      int life = 0;
      EXPECT_TRUE(state.path_events.OnClosed(From(server), &life, effects));
    });
  }

  // ---- a server is lost

  Effects Lose(int32_t server, uint32_t version) {
    return Do(
        [&](Effects* effects) { state.lost_servers.OnServerLost({version, server}, effects); });
  }
  // All parts of an exchange get one owner.
  Effects Move(const Exchange& exchange, int32_t server, uint32_t version,
               std::vector<PartsMoved::Part> parts = {}, Status* status = nullptr) {
    PartsMoved moved;
    moved.version = version;
    moved.parts = std::move(parts);
    TableEntry entry = *exchange.entry;
    for (size_t part = 0; part < entry.parts.size(); ++part) {
      PartPlacement& place = entry.parts[part];
      place.version = exchange.places[part].version;
      if (exchange.places[part].server != server) place = {place.element_count, server, version};
    }
    moved.entries.push_back(entry);
    return Do([&](Effects* effects) {
      const Status end = state.moved_parts.OnPartsMoved(moved, effects);
      if (status != nullptr)
        *status = end;
      else
        EXPECT_TRUE(end.ok()) << end.ToString();
    });
  }

  // ---- exchanges

  static TensorDescription Tensor(const std::string& name, int64_t elements = 500) {
    TensorDescription tensor;
    tensor.name = name;
    tensor.shape = {elements};
    return tensor;
  }
  // Parts of 250 elements, at the servers in turn.
  static TableEntry Entry(const TensorDescription& tensor) {
    TableEntry entry;
    entry.tensor = tensor;
    entry.key = KeyOfName(tensor.name);
    for (int64_t left = tensor.ElementCount(), part = 0; left > 0; left -= 250, ++part)
      entry.parts.push_back({std::min<uint64_t>(left, 250), static_cast<int32_t>(part % kServers)});
    return entry;
  }

  // Its input and output are memory of this object.
  std::shared_ptr<Exchange> NewExchange(const TensorDescription& tensor) {
    ExchangeRequest request;
    request.tensor = tensor;
    memory.emplace_back(2 * tensor.ElementCount());
    request.input = memory.back().data();
    request.output = memory.back().data() + tensor.ElementCount();
    request.done = [](const Status&) {};
    return std::make_shared<Exchange>(std::move(request));
  }
  Effects Begin(const std::shared_ptr<Exchange>& exchange, Status* status = nullptr) {
    return Do([&](Effects* effects) {
      const Status begun = state.exchanges.Begin(exchange, 0, effects);
      if (status != nullptr)
        *status = begun;
      else
        EXPECT_TRUE(begun.ok()) << begun.ToString();
    });
  }
  // The coordinator answers the declaration that is in flight.
  Effects Answer(const std::vector<TensorDescription>& tensors) {
    DeclareReply reply;
    reply.request_id = ++declarations;
    for (const TensorDescription& tensor : tensors)
      reply.results.push_back({OkStatus(), Entry(tensor)});
    return Do([&](Effects* effects) {
      EXPECT_TRUE(state.placement.OnDeclareReply(reply, effects).ok());
    });
  }
  // Begun and placed; `effects` gets what is pushed.
  std::shared_ptr<Exchange> Placed(const std::string& name, int64_t elements = 500,
                                   Effects* effects = nullptr) {
    const auto exchange = NewExchange(Tensor(name, elements));
    Effects begun = Begin(exchange);
    if (!begun.messages.empty()) begun = Answer({exchange->request.tensor});
    if (effects != nullptr) *effects = std::move(begun);
    return exchange;
  }

  static FrameHeader Reply(const Exchange& exchange, uint32_t part) {
    FrameHeader header;
    header.type = FrameType::kReply;
    header.epoch = 3;
    header.key = exchange.entry->key;
    header.part = part;
    header.round = exchange.round;
    header.worker = kRank;
    header.placement_version = exchange.places[part].version;
    header.payload_bytes = exchange.PartBytes(part);
    return header;
  }
  // The whole reply arrives.
  Effects Receive(int32_t server, const FrameHeader& header, Status* status = nullptr) {
    return Do([&](Effects* effects) {
      std::shared_ptr<Exchange> receiver;
      Status received = OkStatus();
      if (header.type == FrameType::kReply && header.payload_bytes > 0)
        received = state.replies.OnHeader(From(server), header, effects->now, &receiver);
      if (received.ok()) {
        received =
            state.replies.OnFrame(From(server), header, {receiver != nullptr, {}, "why"}, effects);
      }
      if (status != nullptr)
        *status = received;
      else
        EXPECT_TRUE(received.ok()) << received.ToString();
    });
  }
  // A server has taken in so many bytes.
  Effects Credit(int32_t server, uint64_t bytes) {
    FrameHeader header;
    header.type = FrameType::kCredit;
    header.credit_bytes = bytes;
    return Receive(server, header);
  }

  StateCounters counters() const { return state.counters(now_ns); }

  const JobDescription job;
  WorkerState state;
  int64_t now_ns = int64_t{100} * 1000000000;
  std::vector<std::string> names = {"server 0", "server 1"};
  std::vector<std::vector<float>> memory;
  uint64_t declarations = 0;
};

// With connections to all servers.
class ConnectedStateTest : public testing::Test {
 protected:
  ConnectedStateTest() { worker_.OpenAll(); }

  StateUnderTest worker_;
};

using Parts = std::vector<uint32_t>;

// Which parts the pushes among some effects are of, in order.
inline Parts PartsOf(const Effects& effects) {
  Parts parts;
  for (const Effects::Outgoing& out : effects.frames) {
    if (out.frame.header.type == FrameType::kPush) parts.push_back(out.frame.header.part);
  }
  return parts;
}

}  // namespace byteps
