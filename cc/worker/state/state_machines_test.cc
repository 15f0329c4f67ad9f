// Each state machine that docs/states.md draws: what each event does in each state. An event that
// leads nowhere from a state, by its table, changes nothing there.
#include "cc/base/testing/state_machine.h"
#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

TEST(StateMachinesTest, Lifecycle) {
  using State = Lifecycle::State;
  ForEachEvent(Lifecycle::kTransitions, {State::kRunning, State::kFailed, State::kStopped},
               [](State from, const std::string& event) {
                 Lifecycle lifecycle;
                 if (from == State::kFailed) lifecycle.Fail(Internal("first"), std::nullopt);
                 if (from == State::kStopped) lifecycle.Stop();
                 if (event == "Fail") lifecycle.Fail(Internal("second"), std::nullopt);
                 if (event == "Stop") lifecycle.Stop();
                 EXPECT_EQ(lifecycle.state(), StateAfter(Lifecycle::kTransitions, from, event))
                     << event;
               });
}

TEST(StateMachinesTest, Failover) {
  using State = WorkerFailover::State;
  ForEachEvent(WorkerFailover::kTransitions, {State::kNormal, State::kDraining, State::kMoving},
               [](State from, const std::string& event) {
                 WorkerFailover failover;
                 ServerRejoined back;
                 back.version = 1;
                 PartsMoved moved;
                 moved.version = 1;
                 if (from != State::kNormal) failover.Begin(ServerLost{1, 0});
                 if (from == State::kMoving) failover.EndDraining();
                 if (event == "ServerLost") failover.Begin(ServerLost{1, 0});
                 if (event == "ServerRejoined") failover.Begin(back);
                 if (event == "drained") failover.EndDraining();
                 if (event == "PartsMoved") (void)failover.End(moved);
                 EXPECT_EQ(failover.state(), StateAfter(WorkerFailover::kTransitions, from, event))
                     << event;
               });
}

TEST(StateMachinesTest, Path) {
  using State = ServerPath::State;
  ForEachEvent(ServerPath::kTransitions, {State::kClosed, State::kAsking, State::kReady},
               [](State from, const std::string& event) {
                 StateUnderTest worker;
                 const ServerPath& path = worker.state.servers[0].paths[0];
                 const bool was_open = from == State::kAsking || event == "connection again";
                 if (was_open || from == State::kReady) worker.Open(0);
                 if (was_open && from != State::kReady) worker.Break(0);
                 if (from == State::kAsking) worker.Open(0, /*again=*/true);
                 ASSERT_EQ(path.state(), from);
                 worker.Do([&](Effects* effects) {
                   int life = 0;
                   if (event == "first connection") worker.Open(0);
                   if (event == "connection again") worker.Open(0, /*again=*/true);
                   if (event == "ResumeAnswer" && from != State::kClosed)
                     (void)worker.state.path_events.OnResumeAnswer(worker.From(0), {}, effects);
                   if (event == "closed" && from != State::kClosed)
                     worker.state.path_events.OnClosed(worker.From(0), &life, effects);
                 });
                 EXPECT_EQ(path.state(), StateAfter(ServerPath::kTransitions, from, event))
                     << event;
               });
}

TEST(StateMachinesTest, Exchange) {
  using State = Exchange::State;
  ForEachEvent(
      Exchange::kTransitions, {State::kBegun, State::kPlaced, State::kEnded},
      [](State from, const std::string& event) {
        StateUnderTest worker;
        worker.OpenAll();
        const auto exchange = worker.NewExchange(StateUnderTest::Tensor("a", 250));
        worker.Begin(exchange);
        if (from != State::kBegun) worker.Answer({exchange->request.tensor});
        const auto finish = [&](const Status& status) {
          worker.Do(
              [&](Effects* effects) { worker.state.exchanges.Finish(exchange, status, effects); });
        };
        if (from == State::kEnded) finish(OkStatus());
        ASSERT_EQ(exchange->state(), from);
        DeclareReply reply;
        reply.request_id = 1;
        reply.results.push_back({OkStatus(), StateUnderTest::Entry(exchange->request.tensor)});
        if (event == "refusal") reply.results[0].status = InvalidArgument("workers disagree");
        if (event == "placement" || event == "refusal") {
          worker.Do([&](Effects* effects) {
            (void)worker.state.placement.OnDeclareReply(reply, effects);
          });
        }
        Status status;
        if (event == "error") finish(Internal("it fails"));
        if (event == "last reply" && from != State::kBegun)
          worker.Receive(0, StateUnderTest::Reply(*exchange, 0), &status);
        EXPECT_EQ(exchange->state(), StateAfter(Exchange::kTransitions, from, event)) << event;
      });
}

// Of server 0, where a part of its own is; what waits finds no credit.
class PartMachine {
 public:
  using State = Exchange::PartState;

  explicit PartMachine(State from, const std::string& event) {
    // For ServerRejoined: server 0 is lost before, and its part is at server 1 meanwhile.
    if (event == "ServerRejoined") {
      server_ = 1;
      worker_.OpenAll();
      Lose();
      Move({});
    } else if (from != State::kWaiting) {
      worker_.OpenAll();
    }
    exchange_ = worker_.NewExchange(StateUnderTest::Tensor("a", 250));
    worker_.Begin(exchange_);
    TableEntry entry = StateUnderTest::Entry(exchange_->request.tensor);
    entry.parts[0].server = server_;
    DeclareReply reply;
    reply.request_id = 1;
    reply.results.push_back({OkStatus(), entry});
    if (event == "ServerRejoined" && from == State::kWaiting) worker_.Break(1);
    worker_.Do([&](Effects* effects) {
      EXPECT_TRUE(worker_.state.placement.OnDeclareReply(reply, effects).ok());
    });
    // Its exchange does not end by that: another part has no result.
    ++exchange_->parts_left;
    if (from == State::kAnswered) Receive();
  }

  State state() const { return exchange_->part_state(0); }

  void Do(const std::string& event) {
    if (event == "credit") return (void)(server_ == 0 && worker_.Open(0).frames.empty());
    if (event == "reply" && state() == State::kWaiting) return;  // it cannot come
    if (event == "reply") return Receive();
    if (event == "ServerRejoined") return Return();
    const bool was_open = worker_.connection(0) != nullptr;
    if (event == "ResumeAnswer" && was_open) {
      worker_.Break(0);
      worker_.Open(0, /*again=*/true);
      UseUpCredit();
      ResumeAnswer answer;
      answer.incomplete.push_back({exchange_->entry->key, 0, exchange_->round, 0});
      worker_.Do([&](Effects* effects) {
        (void)worker_.state.path_events.OnResumeAnswer(worker_.From(0), answer, effects);
      });
    }
    if (event == "PartsMoved") {
      if (!was_open) worker_.Open(1);
      Lose();
      UseUpCredit();
      Move({*exchange_->entry});
    }
  }

 private:
  void Receive() {
    Status status;
    worker_.Receive(server_, StateUnderTest::Reply(*exchange_, 0), &status);
  }
  void Lose() {
    worker_.Do([&](Effects* effects) { worker_.state.lost_servers.OnServerLost({1, 0}, effects); });
    if (worker_.connection(0) != nullptr) worker_.Break(0);
  }
  // To server 1.
  void Move(std::vector<TableEntry> entries) {
    PartsMoved moved;
    moved.version = 1;
    for (TableEntry& entry : entries) entry.parts[0] = {entry.parts[0].element_count, 1, 1};
    moved.entries = std::move(entries);
    worker_.Do([&](Effects* effects) {
      EXPECT_TRUE(worker_.state.moved_parts.OnPartsMoved(moved, effects).ok());
    });
  }
  void Return() {
    ServerRejoined back;
    back.version = 2;
    back.server = 0;
    back.parts.push_back({exchange_->entry->key, 0, 0});
    worker_.Do([&](Effects* effects) {
      EXPECT_TRUE(worker_.state.lost_servers.OnServerRejoined(back, effects).ok());
    });
  }
  void UseUpCredit() {
    const auto other = worker_.NewExchange(StateUnderTest::Tensor("b", 5 * 250));
    worker_.Begin(other);
    DeclareReply reply;
    reply.request_id = 2;
    reply.results.push_back({OkStatus(), StateUnderTest::Entry(other->request.tensor)});
    for (PartPlacement& part : reply.results[0].entry.parts) part.server = 1;
    worker_.Do([&](Effects* effects) {
      EXPECT_TRUE(worker_.state.placement.OnDeclareReply(reply, effects).ok());
    });
  }

  StateUnderTest worker_;
  int32_t server_ = 0;
  std::shared_ptr<Exchange> exchange_;
};

TEST(StateMachinesTest, Part) {
  using State = Exchange::PartState;
  ForEachEvent(Exchange::kPartTransitions, {State::kWaiting, State::kInFlight, State::kAnswered},
               [](State from, const std::string& event) {
                 PartMachine machine(from, event);
                 ASSERT_EQ(machine.state(), from) << event;
                 machine.Do(event);
                 const State after = StateAfter(Exchange::kPartTransitions, from, event);
                 EXPECT_EQ(machine.state(), after)
                     << event << " in state " << static_cast<int>(from);
               });
}

}  // namespace
}  // namespace byteps
