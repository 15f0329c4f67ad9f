// What the coordinator decides, event by event: who may come, who may say what, tensors.
// Who leaves or is lost is in departures_test.cc, the machines are in state_machines_test.cc.
#include "cc/coordinator/state/coordinator_state.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "cc/coordinator/state/senders.h"
#include "cc/coordinator/state/testing/coordinator_under_test.h"

namespace byteps {
namespace {

Hello HelloOf(const JobPeer& peer, bool again = false) {
  Hello hello;
  hello.role = peer.role;
  hello.rank = peer.rank;
  hello.again = again;
  return hello;
}

// ---- who may come

TEST(CoordinatorStateTest, WhoHasNotHeardThatItWasLetInMayComeAnew) {
  CoordinatorUnderTest job;
  const auto may_come = [&](bool again, bool has_heard) {
    const JobPeer& worker = *job.worker(0);
    return job.state.connections.CheckMayConnect(HelloOf(worker, again), worker, has_heard).ok();
  };
  EXPECT_TRUE(may_come(false, false));
  EXPECT_FALSE(may_come(true, false)) << "it was never here";
  job.Open(job.worker(0));
  EXPECT_TRUE(may_come(false, false)) << "it may not have heard the answer";
  EXPECT_TRUE(may_come(true, true));
  EXPECT_FALSE(may_come(false, true)) << "another process";
  job.Say(job.worker(0), Goodbye{{0}});
  EXPECT_TRUE(may_come(true, true)) << "for the answer to its goodbye";
  EXPECT_FALSE(may_come(false, true));
}

TEST(CoordinatorStateTest, WhoIsLostMayNotComeBack) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.CloseForGood(job.worker(0));
  const JobPeer& worker = *job.worker(0);
  for (const bool again : {false, true}) {
    EXPECT_EQ(job.state.connections.CheckMayConnect(HelloOf(worker, again), worker, true).code(),
              StatusCode::kFailedPrecondition);
  }
}

// ---- who may say what

template <size_t... kIndex>
std::vector<ControlMessage> AllMessages(std::index_sequence<kIndex...>) {
  return {ControlMessage(std::in_place_index<kIndex>)...};
}

TEST(CoordinatorStateTest, WhoMayNotSendAMessageIsTold) {
  CoordinatorUnderTest job;
  job.OpenAll();
  int taken_of_worker = 0, taken_of_server = 0;
  for (const ControlMessage& message :
       AllMessages(std::make_index_sequence<std::variant_size_v<ControlMessage>>())) {
    const MessageRule rule = std::visit(
        [](const auto& each) { return kMessageRule<std::decay_t<decltype(each)>>; }, message);
    const std::string refusal = std::string("may not ") + rule.what;
    const auto is_taken = [&](JobPeer* peer) {
      return job.Refusal(peer, message).find(refusal) == std::string::npos;
    };
    const bool of_server = is_taken(job.server(0)), of_worker = is_taken(job.worker(0));
    EXPECT_EQ(of_server, MaySend(Role::kServer, rule.senders)) << refusal;
    EXPECT_EQ(of_worker, MaySend(Role::kWorker, rule.senders)) << refusal;
    taken_of_server += of_server;
    taken_of_worker += of_worker;
  }
  EXPECT_EQ(taken_of_server, 3) << "signs of life, where it listens, acknowledgements";
  EXPECT_EQ(taken_of_worker, 13);
}

TEST(CoordinatorStateTest, WhatCannotBeIsRefusedWithItsReason) {
  CoordinatorUnderTest job;
  job.Open(job.worker(0));
  job.Open(job.server(0));
  const std::string worker = "worker 0 at 10.0.0.1:1 ", server = "server 0 at 10.0.0.1:1 ";
  EXPECT_EQ(job.Refusal(job.server(0), TableAck{7}), server + "acknowledged update 7 of 0");
  EXPECT_EQ(job.Refusal(job.worker(0), Relay{1, 0, ""}), worker + "wrote as worker 1");
  EXPECT_EQ(job.Refusal(job.worker(0), Relay{0, 2, ""}), worker + "wrote to worker 2 of 2");
  EXPECT_EQ(job.Refusal(job.worker(0), PeerLost{Role::kWorker, 1, "lost"}),
            worker + "reported the loss of worker 1, to which it has no connection");
  StallQuery query;
  query.from = 1;
  EXPECT_EQ(job.Refusal(job.worker(0), query), worker + "asked about a stall as worker 1");
  job.Say(job.worker(0), CoordinatorUnderTest::Declaration("a"));
  EXPECT_EQ(job.Refusal(job.worker(0), CoordinatorUnderTest::Declaration("b")),
            worker + "declared without waiting for the answer");
}

TEST(CoordinatorStateTest, AWorkerThatIsNotThereYetGetsWhatWasRelayedUpToALimit) {
  CoordinatorUnderTest job;
  job.Open(job.worker(0));
  for (int sent = 0; sent < 4096; ++sent) job.Say(job.worker(0), Relay{0, 1, "x"});
  EXPECT_EQ(job.Refusal(job.worker(0), Relay{0, 1, "x"}),
            "worker 0 at 10.0.0.1:1 wrote more than 4096 messages to worker 1, which has not "
            "connected yet");
  const CoordinatorEffects effects = job.Open(job.worker(1));
  EXPECT_EQ(job.Heard(effects, job.worker(1)).size(), 4096u);
  EXPECT_EQ(job.Heard(job.Say(job.worker(0), Relay{0, 1, "x"}), job.worker(1)).size(), 1u);
}

// ---- tensors

TEST(CoordinatorStateTest, ATensorIsAnsweredOnceAllServersKnow) {
  CoordinatorUnderTest job;
  job.OpenAll();
  CoordinatorEffects effects = job.Say(job.worker(0), CoordinatorUnderTest::Declaration("a"));
  for (int32_t rank : {0, 1}) EXPECT_TRUE(job.Hears<TableUpdate>(effects, job.server(rank)));
  EXPECT_TRUE(job.Hears<>(effects, job.worker(0)));
  EXPECT_TRUE(job.Say(job.worker(1), CoordinatorUnderTest::Declaration("a")).frames.empty());
  EXPECT_TRUE(job.Say(job.server(1), TableAck{1}).frames.empty());
  effects = job.Say(job.server(0), TableAck{1});
  ASSERT_EQ(effects.frames.size(), 2u);
  EXPECT_TRUE(job.Hears<DeclareReply>(effects, job.worker(0)));
  EXPECT_EQ(effects.frames[0].frame.payload, effects.frames[1].frame.payload) << "encoded once";
}

TEST(CoordinatorStateTest, NobodyHearsWhereTensorsAreWhilePartsMove) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.Say(job.worker(0), CoordinatorUnderTest::Declaration("a"));
  job.Say(job.server(1), TableAck{1});
  CoordinatorEffects effects = job.CloseForGood(job.server(0));
  EXPECT_TRUE(job.Hears<ServerLost>(effects, job.worker(0))) << "no reply, though all know now";
  job.Say(job.worker(0), PartProgress{1, {}});
  effects = job.Say(job.worker(1), PartProgress{1, {}});
  EXPECT_TRUE(job.Hears<PartsMoved>(effects, job.server(1)));
  EXPECT_TRUE(job.Hears<>(effects, job.worker(0))) << "the servers come first";
  effects = job.Say(job.server(1), TableAck{2});
  EXPECT_TRUE((job.Hears<PartsMoved, DeclareReply>(effects, job.worker(0))));
  EXPECT_TRUE(job.Hears<PartsMoved>(effects, job.worker(1)));
  const std::vector<ControlMessage> heard = job.Heard(effects, job.worker(0));
  for (const PartPlacement& part : std::get<DeclareReply>(heard[1]).results[0].entry.parts)
    EXPECT_EQ(part.server, 1);
}

TEST(CoordinatorStateTest, SizesWaitForTheEndOfAFailover) {
  JobDescription description = CoordinatorUnderTest::Job();
  description.options.flow.part_bytes = description.options.flow.credit_bytes = 0;
  CoordinatorUnderTest job(description);
  job.OpenAll();
  job.Say(job.worker(0), CoordinatorUnderTest::Declaration("a", 10000000));
  for (int32_t rank : {0, 1}) job.Say(job.server(rank), TableAck{1});
  job.Say(job.worker(0), LinkReport{1000000, 1, 1});
  CoordinatorEffects effects = job.Say(job.worker(1), LinkReport{1000000, 1, 1});
  EXPECT_TRUE((job.Hears<Retune, TableUpdate>(effects, job.server(0))));
  EXPECT_TRUE(job.Hears<PauseRounds>(effects, job.worker(0)));
  job.CloseForGood(job.server(0));
  for (int32_t rank : {0, 1}) job.Say(job.worker(rank), RoundProgress{});
  for (int32_t rank : {0, 1}) job.Say(job.worker(rank), PartProgress{1, {}});
  EXPECT_EQ(job.state.retuning.state(), Retuning::State::kPausing);
  effects = job.Say(job.server(1), TableAck{3});
  EXPECT_TRUE((job.Hears<PartsMoved, Retune>(effects, job.worker(0))));
}

}  // namespace
}  // namespace byteps
