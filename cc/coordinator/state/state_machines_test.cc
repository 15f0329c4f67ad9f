// Each state machine of the coordinator that docs/states.md draws: what each event does in each
// state. An event that leads nowhere from a state, by its table, changes nothing there.
#include "cc/base/testing/state_machine.h"
#include "cc/coordinator/state/testing/coordinator_under_test.h"

namespace byteps {
namespace {

const PeerLost kLoss{Role::kWorker, 1, "worker 1 is lost"};

TEST(CoordinatorMachinesTest, Phase) {
  using State = JobPhase::State;
  ForEachEvent(JobPhase::kTransitions,
               {State::kRunning, State::kFailed, State::kOver, State::kStopped},
               [](State from, const std::string& event) {
                 JobPhase phase;
                 if (from == State::kFailed) phase.Fail(kLoss, 1);
                 if (from == State::kOver) phase.End(1);
                 if (from == State::kStopped) phase.Stop();
                 if (event == "Loss") phase.Fail(kLoss, 2);
                 if (event == "last worker has left") phase.End(2);
                 if (event == "Stop") phase.Stop();
                 EXPECT_EQ(phase.state(), StateAfter(JobPhase::kTransitions, from, event)) << event;
               });
}

// Server 0 of two; a worker knows neither how to return nor how to rejoin.
TEST(CoordinatorMachinesTest, Peer) {
  using State = JobPeer::State;
  ForEachEvent(JobPeer::kTransitions,
               {State::kExpected, State::kConnected, State::kLeft, State::kLost, State::kReturning,
                State::kRejoining},
               [](State from, const std::string& event) {
                 TableUpdates updates(2);
                 PeerTable peers(CoordinatorUnderTest::Job(), &updates, 1);
                 JobPeer* const peer = peers.Find(Role::kServer, 0);
                 if (from != State::kExpected) peers.Connect(peer);
                 if (from == State::kLeft) peers.Leave(peer);
                 if (from == State::kLost || from == State::kReturning || from == State::kRejoining)
                   peers.Lose(peer);
                 if (from == State::kReturning || from == State::kRejoining) peers.Readmit(peer, 2);
                 if (from == State::kRejoining) peers.Connect(peer);
                 ASSERT_EQ(peer->state, from);
                 if (event == "connects") peers.Connect(peer);
                 if (event == "Goodbye") peers.Leave(peer);
                 if (event == "lost") peers.Lose(peer);
                 if (event == "Readmit") peers.Readmit(peer, 3);
                 if (event == "ServerRejoined") peers.Announce(peer);
                 EXPECT_EQ(peer->state, StateAfter(JobPeer::kTransitions, from, event)) << event;
               });
}

TEST(CoordinatorMachinesTest, Failover) {
  using State = Failover::State;
  ForEachEvent(
      Failover::kTransitions, {State::kIdle, State::kAsking, State::kMoving},
      [](State from, const std::string& event) {
        CoordinatorUnderTest job(CoordinatorUnderTest::Job(2, 4));
        job.OpenAll();
        const auto hold = [&] {
          for (int32_t rank : {0, 1})
            job.Say(job.worker(rank), PartProgress{job.state.failover.version(), {}});
        };
        const auto acknowledge = [&] {
          for (int32_t rank : {1, 2, 3}) {
            if (job.server(rank)->state == JobPeer::State::kConnected)
              job.Say(job.server(rank), TableAck{job.state.updates.next_id() - 1});
          }
        };
        // Server 0 can then come back at any time.
        job.CloseForGood(job.server(0));
        hold();
        acknowledge();
        ASSERT_EQ(job.state.failover.state(), State::kIdle);
        if (from != State::kIdle) job.CloseForGood(job.server(1));
        if (from == State::kMoving) hold();
        ASSERT_EQ(job.state.failover.state(), from);
        if (event == "ServerLost") job.CloseForGood(job.server(2));
        if (event == "ServerRejoined") {
          EXPECT_TRUE(job.Readmit(0).ok());
          job.Open(job.server(0));
        }
        if (event == "PartProgress") hold();
        if (event == "TableAck") acknowledge();
        EXPECT_EQ(job.state.failover.state(), StateAfter(Failover::kTransitions, from, event))
            << event << " in state " << static_cast<int>(from);
      });
}

TEST(CoordinatorMachinesTest, Retuning) {
  using State = Retuning::State;
  ForEachEvent(
      Retuning::kTransitions, {State::kMeasuring, State::kPausing, State::kTuned},
      [](State from, const std::string& event) {
        JobDescription description = CoordinatorUnderTest::Job();
        description.options.flow.part_bytes = description.options.flow.credit_bytes = 0;
        CoordinatorUnderTest job(description);
        job.OpenAll();
        const auto report = [&] {
          for (int32_t rank : {0, 1}) job.Say(job.worker(rank), LinkReport{1000000, 1, 1});
        };
        const auto declare = [&] {
          job.Say(job.worker(0), CoordinatorUnderTest::Declaration("a", 10000000));
        };
        const auto hold = [&] {
          for (int32_t rank : {0, 1}) job.Say(job.worker(rank), RoundProgress{});
          for (int32_t rank : {0, 1})
            job.Say(job.server(rank), TableAck{job.state.updates.next_id() - 1});
        };
        if (from == State::kPausing) declare();
        if (from != State::kMeasuring) report();
        ASSERT_EQ(job.state.retuning.state(), from);
        if (event == "cuts" && from == State::kMeasuring) declare();
        if (event == "cuts" || event == "sizes") report();
        if (event == "all paused") hold();
        EXPECT_EQ(job.state.retuning.state(), StateAfter(Retuning::kTransitions, from, event))
            << event << " in state " << static_cast<int>(from);
      });
}

TEST(CoordinatorMachinesTest, Stalls) {
  using State = Stalls::State;
  ForEachEvent(Stalls::kTransitions, {State::kNone, State::kCollecting, State::kAsked},
               [](State from, const std::string& event) {
                 CoordinatorUnderTest job;
                 job.OpenAll();
                 const auto ask = [&] {
                   job.Say(job.worker(0), StallQuery{0, 0, 0, false, {{"t", 7, "float32[2]", 61}}});
                 };
                 const auto collect = [&] {
                   if (job.state.stalls.state() == State::kCollecting) job.now_ns += kTestSecond;
                   job.Deferred();
                 };
                 if (from != State::kNone) ask();
                 if (from == State::kAsked) collect();
                 ASSERT_EQ(job.state.stalls.state(), from);
                 if (event == "StallQuery") ask();
                 if (event == "collected") collect();
                 if (event == "answered") {
                   for (int32_t rank : {0, 1})
                     job.Say(job.worker(rank), StallAnswer{1, rank, {false}, "computes"});
                   job.Deferred();
                 }
                 EXPECT_EQ(job.state.stalls.state(), StateAfter(Stalls::kTransitions, from, event))
                     << event << " in state " << static_cast<int>(from);
               });
}

}  // namespace
}  // namespace byteps
