// Rounds that a worker gives up: servers are told, whatever happens meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

const char kReason[] = "it refused the call: no such operation";

TensorDescription Placeholder() { return KeyTable::PlaceholderOf("a"); }

// What withdrawals among some effects say: round, part, over which connection.
using Said = std::vector<std::pair<uint64_t, uint32_t>>;
Said WithdrawalsOf(const Effects& effects) {
  Said said;
  for (const Effects::Outgoing& out : effects.frames) {
    if (out.frame.header.status == StatusCode::kOk) continue;
    EXPECT_EQ(out.frame.header.status, StatusCode::kCancelled);
    const auto* const text = static_cast<const char*>(out.frame.payload);
    EXPECT_EQ(std::string(text, out.frame.header.payload_bytes), kReason);
    said.emplace_back(out.frame.header.round, out.frame.header.part);
  }
  return said;
}

// What is declared among some effects.
std::vector<std::string> DeclaredBy(const Effects& effects) {
  std::vector<std::string> declared;
  for (const ControlMessage& message : effects.messages) {
    if (const auto* request = std::get_if<DeclareRequest>(&message)) {
      for (const TensorDescription& tensor : request->tensors)
        declared.push_back(tensor.ToString());
    }
  }
  return declared;
}

class WithdrawalsTest : public ConnectedStateTest {
 protected:
  Effects GiveUp(const std::string& name = "a") {
    return worker_.Do(
        [&](Effects* effects) { worker_.state.exchanges.GiveUpRounds({name}, kReason, effects); });
  }
  Effects Finish(const std::shared_ptr<Exchange>& exchange, const Status& status) {
    return worker_.Do(
        [&](Effects* effects) { worker_.state.exchanges.Finish(exchange, status, effects); });
  }
  Effects RefuseDeclaration() {
    DeclareReply reply;
    reply.request_id = ++worker_.declarations;
    reply.results.push_back({ResourceExhausted("one too many"), {}});
    return worker_.Do([&](Effects* effects) {
      EXPECT_TRUE(worker_.state.placement.OnDeclareReply(reply, effects).ok());
    });
  }
};

TEST_F(WithdrawalsTest, WaitForAPlaceThatTheyAskFor) {
  const Effects given_up = GiveUp();
  EXPECT_TRUE(given_up.frames.empty());
  EXPECT_EQ(DeclaredBy(given_up), std::vector<std::string>{Placeholder().ToString()});
  EXPECT_TRUE(GiveUp().messages.empty());  // asked for already
  EXPECT_EQ(worker_.state.exchanges.NextRounds().at("a"), 2u);
  EXPECT_EQ(WithdrawalsOf(worker_.Answer({Placeholder()})), (Said{{0, 0}, {1, 0}}));
  EXPECT_EQ(WithdrawalsOf(GiveUp()), (Said{{2, 0}}));
}

TEST_F(WithdrawalsTest, WhatFailsBeforeItIsPlacedIsWithdrawnThen) {
  const auto exchange = worker_.NewExchange(StateUnderTest::Tensor("a"));
  worker_.Begin(exchange);
  EXPECT_TRUE(Finish(exchange, Cancelled(kReason)).frames.empty());
  const auto next = worker_.NewExchange(StateUnderTest::Tensor("a"));
  worker_.Begin(next);
  const Effects placed = worker_.Answer({exchange->request.tensor});
  EXPECT_EQ(WithdrawalsOf(placed), (Said{{0, 0}, {0, 1}}));
  EXPECT_EQ(PartsOf(placed), (std::vector<uint32_t>{0, 1, 0, 1}));  // then the next round's
  EXPECT_EQ(placed.frames[2].frame.header.round, 1u);
}

TEST_F(WithdrawalsTest, ThePlaceOfAnotherDescriptionWillDo) {
  Finish(worker_.Placed("a"), OkStatus());
  const auto longer = worker_.NewExchange(StateUnderTest::Tensor("a", 750));
  worker_.Begin(longer);
  EXPECT_EQ(WithdrawalsOf(Finish(longer, Cancelled(kReason))), (Said{{1, 0}, {1, 1}}));
  EXPECT_TRUE(WithdrawalsOf(worker_.Answer({longer->request.tensor})).empty());
}

TEST_F(WithdrawalsTest, WaitForTheRoundBefore) {
  for (const Status& status : {OkStatus(), Cancelled(kReason)}) {
    const auto exchange = worker_.Placed("a");
    EXPECT_TRUE(WithdrawalsOf(GiveUp()).empty());
    Said expected = {{exchange->round + 1, 0}, {exchange->round + 1, 1}};
    if (!status.ok())
      expected.insert(expected.begin(), {{exchange->round, 0}, {exchange->round, 1}});
    EXPECT_EQ(WithdrawalsOf(Finish(exchange, status)), expected);
    EXPECT_TRUE(worker_.state.keys.Find("a")->has_failed);
    worker_.Credit(0, 1000);
    worker_.Credit(1, 1000);
  }
}

TEST_F(WithdrawalsTest, WaitForNewCuts) {
  Finish(worker_.Placed("a"), OkStatus());
  worker_.Do([&](Effects* at) { worker_.state.placement.OnPauseRounds(at); });
  EXPECT_TRUE(WithdrawalsOf(GiveUp()).empty());
  Retune retune;
  retune.cuts.push_back({StateUnderTest::Entry(StateUnderTest::Tensor("a")), 1});
  retune.cuts[0].entry.variant = 1;
  const Effects resumed = worker_.Do(
      [&](Effects* at) { EXPECT_TRUE(worker_.state.placement.OnRetune(retune, at).ok()); });
  EXPECT_EQ(WithdrawalsOf(resumed), (Said{{1, 0}, {1, 1}}));
  EXPECT_EQ(resumed.frames[0].frame.header.variant, 1u);
}

TEST_F(WithdrawalsTest, ARefusedDeclarationIsWithdrawnUnderAnyThatIsNot) {
  worker_.Begin(worker_.NewExchange(StateUnderTest::Tensor("a")));
  const Effects refused = RefuseDeclaration();
  ASSERT_EQ(refused.finished.size(), 1u);
  EXPECT_EQ(DeclaredBy(refused), std::vector<std::string>{Placeholder().ToString()});
  const Effects placed = worker_.Answer({Placeholder()});
  ASSERT_EQ(placed.frames.size(), 1u);
  EXPECT_EQ(placed.frames[0].frame.header.status, StatusCode::kResourceExhausted);
}

TEST_F(WithdrawalsTest, AreForgottenWhereNothingCanBePlaced) {
  GiveUp();
  EXPECT_TRUE(RefuseDeclaration().messages.empty());
  EXPECT_TRUE(worker_.state.keys.Find("a")->withdrawn.empty());
  // Not a name of an exchange.
  EXPECT_TRUE(GiveUp("").messages.empty());
}

TEST_F(WithdrawalsTest, AreFewUntilTheyAreSent) {
  for (int i = 0; i < 1000; ++i) GiveUp();
  const Said said = WithdrawalsOf(worker_.Answer({Placeholder()}));
  EXPECT_LE(said.size(), 16u);
  EXPECT_EQ(said.back().first, 999u);
}

TEST_F(WithdrawalsTest, NothingIsSaidAfterTheEnd) {
  const auto live = worker_.Placed("live");
  GiveUp("live");
  GiveUp("a");
  const Effects failed = worker_.Do([&](Effects* at) {
    EXPECT_TRUE(worker_.state.Fail(Unavailable("worker 1 is lost"), std::nullopt, at));
  });
  EXPECT_TRUE(failed.frames.empty());
  EXPECT_TRUE(GiveUp("b").messages.empty());
  EXPECT_TRUE(worker_.Answer({Placeholder()}).frames.empty());
}

// Of all tensors of a training, whichever comes first.
TEST_F(WithdrawalsTest, OfATrainingAreSentWithTheNextExchangeOrWhenAsked) {
  for (const char* const name : {"a", "b", "other"}) {
    Finish(worker_.Placed(name), OkStatus());
    worker_.Credit(0, 1000);
    worker_.Credit(1, 1000);
  }
  const auto leave = [&](uint64_t trainings) {
    worker_.state.exchanges.Leave({"a", "b"}, trainings, kReason);
  };
  leave(1);
  EXPECT_EQ(worker_.state.exchanges.NextRounds().at("a"), kRoundsOfTraining);
  EXPECT_EQ(worker_.state.exchanges.NextRounds().at("other"), 1u);
  Said expected;
  for (int name = 0; name < 2; ++name) {
    for (const uint32_t part : {0, 1}) expected.emplace_back(kRoundsOfTraining - 1, part);
  }
  const auto next = worker_.NewExchange(StateUnderTest::Tensor("other"));
  const Effects begun = worker_.Begin(next);
  EXPECT_EQ(WithdrawalsOf(begun), expected);
  EXPECT_EQ(begun.given_up.size(), 2u);
  EXPECT_EQ(begun.frames.back().frame.header.round, 1u);  // of the exchange itself
  Finish(next, OkStatus());
  const auto tell = [&] {
    return WithdrawalsOf(
        worker_.Do([&](Effects* effects) { worker_.state.exchanges.TellLeft(effects); }));
  };
  EXPECT_TRUE(tell().empty());
  // Once more in the same training, which changes nothing, and in another one.
  leave(1);
  EXPECT_EQ(tell(), expected);
  leave(2);
  for (auto& [round, part] : expected) round = 2 * kRoundsOfTraining - 1;
  EXPECT_EQ(tell(), expected);
}

// The step that began it has ended without it, and the name may be used again.
TEST_F(WithdrawalsTest, OfATrainingEndTheRoundInFlight) {
  const auto exchange = worker_.Placed("a");
  worker_.state.exchanges.Leave({"a"}, 1, kReason);
  const auto next = worker_.NewExchange(StateUnderTest::Tensor("a"));
  const Effects begun = worker_.Begin(next);
  EXPECT_EQ(WithdrawalsOf(begun),
            (Said{{0, 0}, {0, 1}, {kRoundsOfTraining - 1, 0}, {kRoundsOfTraining - 1, 1}}));
  ASSERT_EQ(begun.finished.size(), 1u);
  EXPECT_EQ(begun.finished[0].first, exchange);
  EXPECT_EQ(begun.finished[0].second.message(), kReason);
  EXPECT_EQ(next->round, kRoundsOfTraining);
}

// A stream's turn comes late: it must not be summed with what the next training exchanges.
TEST_F(WithdrawalsTest, WhatWasGivenInATrainingDoesNotBeginAfterIt) {
  Finish(worker_.Placed("a"), OkStatus());
  const auto given = [](const std::string& name, uint64_t training) {
    PartedExchangeRequest request;
    request.tensor = StateUnderTest::Tensor(name);
    request.training = training;
    return std::make_shared<Exchange>(std::move(request));
  };
  const auto begin = [&](const std::shared_ptr<Exchange>& exchange) {
    Status status;
    worker_.Do(
        [&](Effects* effects) { status = worker_.state.exchanges.Begin(exchange, 0, effects); });
    return status.code();
  };
  const uint64_t training = worker_.state.exchanges.training();
  worker_.state.exchanges.Leave({"a"}, training + 1, kReason);
  EXPECT_EQ(begin(given("a", training)), StatusCode::kCancelled);
  EXPECT_EQ(begin(given("other", training)), StatusCode::kOk);
  const auto next = given("a", worker_.state.exchanges.training());
  EXPECT_EQ(begin(next), StatusCode::kOk);
  EXPECT_EQ(next->round, kRoundsOfTraining);
}

// Nothing was exchanged.
TEST_F(WithdrawalsTest, DoNotCountAsExchanges) {
  GiveUp();
  worker_.Answer({Placeholder()});
  GiveUp();
  const auto exchange = worker_.Placed("b");
  worker_.now_ns += 1000;
  Finish(exchange, OkStatus());
  worker_.now_ns += 1000;
  const StateCounters counters = worker_.counters();
  EXPECT_EQ(counters.started_exchanges, 1u);
  EXPECT_EQ(counters.exchanges, 1u);
  EXPECT_EQ(counters.failed_exchanges, 0u);
  EXPECT_GE(counters.exchanging_ns, 1000);
  EXPECT_LT(counters.exchanging_ns, 2000);
}

// A letter is an event: the exchange Begins, is Placed, its parts are Ready, a server is Lost, its
// parts have Moved, a round is Withdrawn.
class OrdersTest : public WithdrawalsTest {
 protected:
  Effects Do(char event) {
    switch (event) {
      case 'B': return worker_.Begin(exchange_);
      case 'L': {
        worker_.Do([&](Effects* at) { worker_.state.lost_servers.OnServerLost({1, 0}, at); });
        return worker_.Break(0);
      }
      case 'M':
        has_moved_ = true;
        return worker_.Do([&](Effects* at) {
          PartsMoved moved;
          moved.version = 1;
          moved.entries = {EntryOf(StateUnderTest::Tensor("a")), EntryOf(Placeholder())};
          moved.entries[1].variant = 1;
          EXPECT_TRUE(worker_.state.moved_parts.OnPartsMoved(moved, at).ok());
        });
      case 'P': return Place();
      case 'R':
        return worker_.Do([&](Effects* at) {
          for (const uint32_t part : {0u, 1u}) {
            PartRequest request;
            request.part = part;
            request.input = request.output = exchange_.get();
            request.done = [](bool) {};
            worker_.state.exchanges.OnPartReady(exchange_, std::move(request), nullptr, at);
          }
        });
      default: return GiveUp();
    }
  }

  // The coordinator's table: the exchange's parts are servers 0's and 1's, and then all server 1's.
  TableEntry EntryOf(const TensorDescription& tensor) const {
    TableEntry entry = StateUnderTest::Entry(tensor);
    if (has_moved_) entry.parts[0] = {entry.parts[0].element_count, 1, 1};
    return entry;
  }
  // The coordinator answers all that has been asked.
  Effects Place() {
    Effects all;
    while (!asked_.empty()) {
      DeclareReply reply;
      reply.request_id = asked_.front().request_id;
      for (const TensorDescription& tensor : asked_.front().tensors) {
        reply.results.push_back({OkStatus(), EntryOf(tensor)});
        reply.results.back().entry.variant = tensor.SameExchangeAs(Placeholder()) ? 1 : 0;
      }
      asked_.erase(asked_.begin());
      Effects effects = worker_.Do([&](Effects* at) {
        EXPECT_TRUE(worker_.state.placement.OnDeclareReply(reply, at).ok());
      });
      Note(effects);
      std::move(effects.frames.begin(), effects.frames.end(), std::back_inserter(all.frames));
    }
    return all;
  }
  void Note(const Effects& effects) {
    for (const ControlMessage& message : effects.messages) {
      if (const auto* request = std::get_if<DeclareRequest>(&message)) asked_.push_back(*request);
    }
  }

  std::shared_ptr<Exchange> exchange_;
  std::vector<DeclareRequest> asked_;
  bool has_moved_ = false;
};

// Whatever the order, the owner of the first part hears of the withdrawal, and before it gets the
// push of a later round.
TEST_F(OrdersTest, InEachOrderTheOwnerHearsOfIt) {
  std::string order = "BLMPRW";
  int orders = 0;
  do {
    const auto at = [&](char event) { return order.find(event); };
    if (at('L') > at('M') || at('R') < at('B') || at('R') < at('P')) continue;
    if (at('P') < std::min(at('B'), at('W'))) continue;  // nothing is asked for
    SCOPED_TRACE(order);
    ++orders;
    worker_.~StateUnderTest();  // anew
    new (&worker_) StateUnderTest();
    worker_.OpenAll();
    has_moved_ = false;
    asked_.clear();
    PartedExchangeRequest request;
    request.tensor = StateUnderTest::Tensor("a");
    request.done = [](const Status&) {};
    exchange_ = std::make_shared<Exchange>(std::move(request));
    std::vector<Effects::Outgoing> frames;
    const auto collect = [&](Effects effects) {
      std::move(effects.frames.begin(), effects.frames.end(), std::back_inserter(frames));
    };
    for (const char event : order) {
      // Parts are ready once the exchange is placed.
      if (event == 'R' && exchange_->entry == nullptr) collect(Place());
      Effects effects = Do(event);
      Note(effects);
      collect(std::move(effects));
    }
    collect(Place());
    collect(Finish(exchange_, OkStatus()));
    const uint64_t withdrawn = at('W') < at('B') ? 0 : 1;
    bool is_told = false, owner_is_told = false;
    for (const Effects::Outgoing& out : frames) {
      const FrameHeader& header = out.frame.header;
      if (header.part > 0) continue;
      if (header.status == StatusCode::kOk) {
        EXPECT_TRUE(header.round < withdrawn ||
                    (header.placement_version == 1 ? owner_is_told : is_told));
        continue;
      }
      EXPECT_EQ(header.round, withdrawn);
      is_told = true;
      owner_is_told = owner_is_told ||
                      (header.placement_version == 1 && out.connection == worker_.connection(1));
    }
    EXPECT_TRUE(owner_is_told);
    EXPECT_TRUE(worker_.state.keys.Find("a")->withdrawn.empty());
    if (HasFailure()) return;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_GT(orders, 50);
}

}  // namespace
}  // namespace byteps
