// RoundsUnderTest: a RoundsState with what a server has around it: names of connections, a sum that
// only counts, a time and departures that the test sets.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/server/state/rounds.h"

namespace byteps {

// Any contribution is one byte, and so is the result.
class CountingSum : public PartSum {
 public:
  explicit CountingSum(int32_t contributions) : contributions_(contributions) {}

  // There is nothing behind the sink's name.
  Status Begin(const Push& push, Incoming* incoming) override {
    received[push.header.worker] = {push.header.payload_bytes, 0};
    incoming->sink = {name_, reinterpret_cast<PayloadSink*>(name_.get())};
    incoming->received = &received[push.header.worker];
    return begins;
  }
  Status End(int32_t) override { return ends; }
  bool IsComplete(int32_t contributions) const override { return contributions >= contributions_; }
  Status Finish(uint64_t round, AggregationResult* result) override {
    finished.push_back(round);
    *result = {name_, name_.get(), 1, 1};
    return OkStatus();
  }
  bool SendsResultTo(int32_t) const override { return true; }
  void Reset() override { ++resets; }
  void Release() override { is_released = true; }

  Status begins, ends;             // what the next calls return
  std::vector<uint64_t> finished;  // rounds
  int resets = 0;
  bool is_released = false;
  std::map<int32_t, ReceivedBytes> received;  // by worker

 private:
  const int32_t contributions_;
  const std::shared_ptr<int> name_ = std::make_shared<int>(0);
};

class RoundsUnderTest {
 public:
  static constexpr int32_t kWorkers = 3;

  // `name` says who takes part.
  explicit RoundsUnderTest(int32_t contributions = kWorkers, int32_t backup_workers = 0,
                           const std::string& name = "t")
      : hosts(std::vector<std::string>(kWorkers)),
        options(OptionsFor(&hosts, name)),
        sum(contributions),
        state(options, &sum) {
    entry.key = 17;
    entry.tensor.name = name;
    entry.tensor.shape = {1};
    entry.tensor.average = backup_workers > 0;
    entry.tensor.backup_workers = backup_workers;
    entry.parts = {{1, 0, 0}};
    other_entry = entry;
    other_entry.variant = 1;
    other_entry.tensor.shape = {2};
    for (int32_t worker = 0; worker < kWorkers; ++worker) {
      const auto name = std::make_shared<int>(worker);
      connections.emplace_back(name, reinterpret_cast<WorkerConnection*>(name.get()));
    }
  }

  // Its rounds are those in which a quorum comes together.
  void SetGrace(int32_t grace_ms) {
    entry.tensor.average = false;
    entry.tensor.grace_ms = grace_ms;
  }

  Push PushOf(int32_t worker, uint64_t round, const TableEntry* of = nullptr) const {
    Push push;
    push.header.worker = worker;
    push.header.round = round;
    push.header.payload_bytes = 4;
    push.entry = of != nullptr ? of : &entry;
    push.from = connections[worker];
    push.generation = generation;
    return push;
  }
  RoundsState::Event Now() { return {is_departed ? &departed : nullptr, ++now_ns, ++steady_ns}; }

  Status Begin(const Push& push) {
    sink = nullptr;
    return state.Begin(push, Now(), &sink, &replies);
  }
  Status Begin(int32_t worker, uint64_t round) { return Begin(PushOf(worker, round)); }
  PushOutcome End(const Push& push) { return state.End(push, Now(), &replies); }
  PushOutcome End(int32_t worker, uint64_t round) { return End(PushOf(worker, round)); }
  PushOutcome Contribute(int32_t worker, uint64_t round) {
    EXPECT_TRUE(Begin(worker, round).ok());
    return End(worker, round);
  }
  // `worker` has come again, over its connection of the next generation. How much of its push is
  // here, if not all.
  Status Resume(int32_t worker, uint64_t round, std::optional<uint64_t>* received) {
    return state.Resume(connections[worker], worker, ++generation, round, received, &replies);
  }
  void Leave(int32_t worker, const Status& why = OkStatus(), bool cut_off = false) {
    is_departed = true;
    departed.workers[worker] = why;
    state.OnDeparted({{worker, cut_off}}, Now(), &replies);
  }
  // These have no more data; nobody: all have again.
  PushOutcome Join(std::set<int32_t> ranks) {
    is_departed = true;
    departed.joined = std::move(ranks);
    return state.OnJoined(Now(), &replies);
  }
  void Lose(const Status& reason) {
    is_departed = true;
    departed.lost = reason;
    state.OnLost(Now(), &replies);
  }

  // What is handed out, as "worker: round code".
  std::vector<std::string> Take() {
    std::vector<std::string> taken;
    for (const Reply& reply : std::exchange(replies, {})) {
      const FrameHeader& header = reply.frame.header;
      taken.push_back(std::to_string(header.worker) + ": " + std::to_string(header.round) +
                      (header.status == StatusCode::kOk ? " ok" : " error"));
      if (header.status == StatusCode::kOk) continue;
      text.assign(static_cast<const char*>(reply.frame.payload), header.payload_bytes);
    }
    return taken;
  }

  const HostMap hosts;
  const PartOptions options;
  TableEntry entry, other_entry;
  std::vector<std::shared_ptr<WorkerConnection>> connections;
  CountingSum sum;
  RoundsState state;
  Departed departed;
  bool is_departed = false;
  uint64_t generation = 1;
  int64_t now_ns = 1000, steady_ns = 2000;
  std::vector<Reply> replies;
  std::shared_ptr<PayloadSink> sink;  // of the last push that began
  std::string text;                   // of the last error that was taken

 private:
  static PartOptions OptionsFor(const HostMap* hosts, const std::string& name) {
    PartOptions options;
    options.tensor_name = name;
    options.num_workers = kWorkers;
    options.max_lag = 2;
    options.asks = true;
    options.hosts = hosts;
    return options;
  }
};

}  // namespace byteps
