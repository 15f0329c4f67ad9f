// What the coordinator decides about those who leave or are lost, the end of the job, servers that
// are started again, and stalls.
#include "cc/coordinator/state/departures.h"

#include "cc/coordinator/state/testing/coordinator_under_test.h"

namespace byteps {
namespace {

using Level = CoordinatorEffects::Notice::Level;

// ---- who leaves, who is lost

TEST(DeparturesTest, AllHearOfALossBeforeTheEnd) {
  CoordinatorUnderTest job;
  for (JobPeer* peer : {job.worker(0), job.server(0), job.server(1)}) job.Open(peer);
  job.now_ns += 61 * kTestSecond;  // worker 1 never comes
  for (JobPeer* peer : {job.worker(0), job.server(0), job.server(1)}) job.Say(peer, Heartbeat{});
  CoordinatorEffects effects = job.Beat();
  ASSERT_EQ(effects.notices.size(), 1u);
  EXPECT_EQ(effects.notices[0].level, Level::kError);
  EXPECT_EQ(job.state.phase.failure(), "worker 1 never connected, for 61 s");
  EXPECT_TRUE(job.Hears<PeerLost>(effects, job.worker(0)));
  EXPECT_TRUE(job.Hears<PeerLost>(effects, job.server(1)));
  EXPECT_TRUE(effects.wakes_waiter);
  effects = job.Say(job.worker(0), Goodbye{{0}});
  EXPECT_TRUE((job.Hears<Goodbye, JobEnded>(effects, job.worker(0))));
  EXPECT_TRUE((job.Hears<Goodbye, JobEnded>(effects, job.server(1))));
}

TEST(DeparturesTest, WhoComesAfterALossHearsOfIt) {
  CoordinatorUnderTest job;
  job.Open(job.worker(0));
  job.CloseForGood(job.worker(0));
  EXPECT_TRUE(job.Hears<PeerLost>(job.Open(job.worker(1)), job.worker(1)));
  EXPECT_TRUE(job.Hears<>(job.Open(job.worker(1), /*again=*/true), job.worker(1)));
}

TEST(DeparturesTest, ServersHearTogetherOfThoseWhoLeave) {
  CoordinatorUnderTest job(CoordinatorUnderTest::Job(3, 2));
  job.OpenAll();
  for (int32_t rank : {0, 1}) {
    const CoordinatorEffects effects = job.Say(job.worker(rank), Goodbye{{rank}});
    EXPECT_TRUE(job.Hears<Goodbye>(effects, job.worker(rank)));
    EXPECT_EQ(effects.frames.size(), 1u);
    EXPECT_TRUE(effects.begins_deferred);
  }
  const CoordinatorEffects effects = job.Deferred();
  EXPECT_EQ(effects.frames.size(), 2u) << "each server, once";
  EXPECT_EQ(std::get<Goodbye>(job.Heard(effects, job.server(1))[0]).ranks,
            std::vector<int32_t>({0, 1}));
  EXPECT_TRUE(job.Deferred().frames.empty());
  EXPECT_TRUE(job.Say(job.worker(0), Goodbye{{0}}).frames.empty()) << "it has left already";
}

// Its connection broke, and whether it will come again is not known yet.
TEST(DeparturesTest, WhoseConnectionBreaksIsLookedFor) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.Say(job.worker(0), Reachable{"10.0.0.1", 77});
  CoordinatorEffects effects = job.Close(job.worker(0), Unavailable("it broke"));
  ASSERT_TRUE(effects.absence.has_value());
  EXPECT_EQ(effects.absence->listens_at.port, 77);
  EXPECT_TRUE(effects.frames.empty() && effects.notices.empty());
  job.Open(job.worker(0), /*again=*/true);
  job.Do([&](CoordinatorEffects* of) {
    job.state.connections.OnJoinTimeout(job.worker(0), "too late", of);
  });
  EXPECT_TRUE(job.state.phase.is_running()) << "it is here again";
  job.Close(job.worker(0), Unavailable("it broke"));
  job.Do([&](CoordinatorEffects* of) {
    job.state.connections.OnJoinTimeout(job.worker(0), "nobody listens", of);
  });
  EXPECT_EQ(job.state.phase.failure(),
            "worker 0 at 10.0.0.1:1 ended without a goodbye: it broke; nobody listens");
}

// Elsewhere, another process may refuse for it.
TEST(DeparturesTest, APeerIsLookedForOnlyWhereItComesFrom) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.Say(job.worker(0), Reachable{"192.168.0.1", 77});
  EXPECT_EQ(job.Close(job.worker(0), Unavailable("it broke")).absence->listens_at.port, 0);
}

TEST(DeparturesTest, WhatHasArrivedButIsNotReadIsNoSilence) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.now_ns += 11 * kTestSecond;
  const std::vector<size_t> silent = job.state.connections.SilentPeers(job.now_ns);
  EXPECT_EQ(silent.size(), 4u);
  for (const size_t peer : silent) job.state.peers.NoteHeard(peer, job.now_ns - kTestSecond);
  EXPECT_TRUE(job.Beat().notices.empty());
  EXPECT_TRUE(job.state.connections.SilentPeers(job.now_ns).empty());
}

TEST(DeparturesTest, WorkersHearOfServersThatMissABeat) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.now_ns += 2 * kTestSecond;
  job.Say(job.server(1), Heartbeat{});
  for (const CoordinatorEffects::Outgoing& out : job.Beat().frames) {
    ControlMessage message;
    const std::string bytes(static_cast<const char*>(out.frame.payload),
                            out.frame.header.payload_bytes);
    ASSERT_TRUE(DecodeControl(bytes, &message).ok());
    const bool is_worker = out.peer < 2;
    EXPECT_EQ(std::get<Heartbeat>(message).silent_servers,
              is_worker ? std::vector<int32_t>{0} : std::vector<int32_t>{});
    EXPECT_TRUE(out.is_heartbeat);
  }
}

TEST(DeparturesTest, ASilentPeerIsLost) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.now_ns += 11 * kTestSecond;
  for (JobPeer* peer : {job.worker(1), job.server(0), job.server(1)}) job.Say(peer, Heartbeat{});
  job.Beat();
  EXPECT_EQ(job.state.phase.failure(), "worker 0 at 10.0.0.1:1 has been silent for 11 s");
}

// They were stopped with it, as by Ctrl-Z, or have sent nothing yet since it goes on.
TEST(DeparturesTest, TimeInWhichThisProcessWasStoppedIsNoSilenceOfOthers) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.now_ns += 61 * kTestSecond;
  job.state.peers.ExcuseSilence(60 * kTestSecond, job.now_ns);
  job.Beat();
  EXPECT_TRUE(job.state.phase.is_running());
  job.now_ns += 10 * kTestSecond;
  for (JobPeer* peer : {job.worker(1), job.server(0), job.server(1)}) job.Say(peer, Heartbeat{});
  job.Beat();
  EXPECT_EQ(job.state.phase.failure(), "worker 0 at 10.0.0.1:1 has been silent for 11 s");
}

TEST(DeparturesTest, AnExcusedPeerHasBeenHeardAtTheLatestNow) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.now_ns += kTestSecond;
  job.state.peers.ExcuseSilence(60 * kTestSecond, job.now_ns);
  for (const JobPeer& peer : job.state.peers) EXPECT_EQ(peer.last_seen_ns, job.now_ns);
}

// ---- the end

TEST(DeparturesTest, NobodyWaitsForConnectionsThatStayOpen) {
  CoordinatorUnderTest job;
  job.OpenAll();
  for (int32_t rank : {0, 1}) job.Say(job.worker(rank), Goodbye{{rank}});
  EXPECT_FALSE(job.state.IsFinished(job.now_ns)) << "they have to read the last messages";
  EXPECT_TRUE(job.state.IsFinished(job.now_ns + 6 * kTestSecond));
  for (JobPeer& peer : job.state.peers) job.CloseForGood(&peer);
  EXPECT_TRUE(job.state.IsFinished(job.now_ns));
  EXPECT_EQ(job.state.phase.failure(), "") << "servers end with the job";
}

TEST(DeparturesTest, AfterALossTheOthersHaveTimeToLeave) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.CloseForGood(job.worker(0));
  EXPECT_TRUE(job.state.phase.TakeUnreportedFailure());
  EXPECT_FALSE(job.state.phase.TakeUnreportedFailure());
  EXPECT_FALSE(job.state.IsFinished(job.now_ns + 19 * kTestSecond));
  EXPECT_TRUE(job.state.IsFinished(job.now_ns + 21 * kTestSecond));
}

// A worker that was only stopped is lost, wakes up, and leaves.
TEST(DeparturesTest, ALostWorkerThatLeavesIsWaitedForOnce) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.now_ns += 11 * kTestSecond;
  for (JobPeer* peer : {job.worker(1), job.server(0), job.server(1)}) job.Say(peer, Heartbeat{});
  job.Beat();
  job.Say(job.worker(0), Goodbye{{0}});
  job.Say(job.worker(1), Goodbye{{1}});
  EXPECT_EQ(job.state.peers.connected(), 4);
  for (JobPeer& peer : job.state.peers) job.CloseForGood(&peer);
  EXPECT_EQ(job.state.peers.connected(), 0);
  EXPECT_TRUE(job.state.IsFinished(job.now_ns));
}

// ---- servers that are lost while others remain, or are started again

TEST(DeparturesTest, TrainingGoesOnWithoutAServerIfAnotherRemains) {
  CoordinatorUnderTest job;
  job.OpenAll();
  CoordinatorEffects effects = job.CloseForGood(job.server(0));
  EXPECT_EQ(effects.notices[0].level, Level::kWarning);
  EXPECT_TRUE(job.state.phase.is_running());
  EXPECT_EQ(job.state.losses.LostServers(), std::vector<int32_t>{0});
  effects = job.CloseForGood(job.server(1));
  EXPECT_FALSE(job.state.phase.is_running()) << "none remains";
  EXPECT_TRUE(job.state.losses.LostServers().empty()) << "the job ends";
}

TEST(DeparturesTest, AServerIsNotMissedWhileSomebodyHasNotComeYet) {
  CoordinatorUnderTest job;
  for (JobPeer* peer : {job.worker(0), job.server(0), job.server(1)}) job.Open(peer);
  job.CloseForGood(job.server(0));
  EXPECT_FALSE(job.state.phase.is_running());
}

TEST(DeparturesTest, AServerThatIsBackGetsItsShareOnceTheFailoverHasEnded) {
  CoordinatorUnderTest job;
  job.OpenAll();
  EXPECT_EQ(job.Readmit(0).code(), StatusCode::kFailedPrecondition) << "it is not lost";
  job.CloseForGood(job.server(0));
  ASSERT_TRUE(job.Readmit(0).ok());
  EXPECT_EQ(job.state.job.server_hosts[0], "another host");
  EXPECT_TRUE(job.Hears<>(job.Open(job.server(0)), job.worker(0))) << "parts are moving";
  for (int32_t rank : {0, 1}) job.Say(job.worker(rank), PartProgress{1, {}});
  const CoordinatorEffects effects =
      job.Say(job.server(1), TableAck{job.state.updates.next_id() - 1});
  EXPECT_TRUE((job.Hears<PartsMoved, ServerRejoined>(effects, job.worker(0))));
  EXPECT_EQ(job.server(0)->state, JobPeer::State::kConnected);
}

TEST(DeparturesTest, AServerThatIsLostBeforeItsShareIsMissedByNobody) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.FailOver();
  ASSERT_TRUE(job.Readmit(0).ok());
  job.now_ns += 11 * kTestSecond;
  for (JobPeer* peer : {job.worker(0), job.worker(1), job.server(1)}) job.Say(peer, Heartbeat{});
  const CoordinatorEffects effects = job.Beat();
  ASSERT_EQ(effects.notices.size(), 1u);
  EXPECT_EQ(effects.notices[0].text,
            "server 0 never connected, for 11 s; training goes on without it");
  EXPECT_TRUE(job.Hears<>(effects, job.worker(0)));
  EXPECT_EQ(job.state.failover.state(), Failover::State::kIdle);
  EXPECT_EQ(job.state.losses.LostServers(), std::vector<int32_t>{0});
}

TEST(DeparturesTest, OnceAWorkerHasLeftNoServerComesBack) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.FailOver();
  job.Say(job.worker(0), Goodbye{{0}});
  EXPECT_EQ(job.Readmit(0).code(), StatusCode::kFailedPrecondition);
}

// Reports of the workers may cross the news.
TEST(DeparturesTest, AReportOfALostServerCountsOnce) {
  CoordinatorUnderTest job;
  job.OpenAll();
  const PeerLost report{Role::kServer, 0, "server 0 is lost"};
  EXPECT_EQ(job.Say(job.worker(0), report).notices.size(), 1u);
  EXPECT_TRUE(job.Say(job.worker(1), report).notices.empty());
  EXPECT_EQ(job.state.failover.version(), 1u);
}

// It has lost what only a server had for it, say (protocol rule 21).
TEST(DeparturesTest, AWorkerThatCannotGoOnIsLostForTheOthersAndLeaves) {
  CoordinatorUnderTest job;
  job.OpenAll();
  CoordinatorEffects effects =
      job.Say(job.worker(1), PeerLost{Role::kWorker, 1, "tensor \"t\" is lost"});
  const auto lost = std::get<PeerLost>(job.Heard(effects, job.worker(0))[0]);
  EXPECT_EQ(lost.rank, 1);
  EXPECT_EQ(lost.description, "worker 1 at 10.0.0.1:1 cannot go on: tensor \"t\" is lost");
  EXPECT_TRUE(job.Hears<PeerLost>(effects, job.server(0)));
  effects = job.Say(job.worker(1), PeerLost{Role::kWorker, 1, "once more"});
  EXPECT_TRUE(effects.frames.empty());
  effects = job.Say(job.worker(1), Goodbye{{1}});
  EXPECT_TRUE(job.Hears<Goodbye>(effects, job.worker(1)));
  effects = job.Say(job.worker(0), Goodbye{{0}});
  EXPECT_TRUE((job.Hears<Goodbye, JobEnded>(effects, job.worker(0))));
}

// ---- stalls

TEST(DeparturesTest, AStallIsAskedAboutOnceAndAnsweredToAllWhoWait) {
  CoordinatorUnderTest job(CoordinatorUnderTest::Job(3, 1));
  job.OpenAll();
  for (int32_t rank : {0, 1})
    job.Say(job.worker(rank), StallQuery{0, rank, 0, false, {{"t", 7, "float32[2] sum", 61}}});
  EXPECT_TRUE(job.Deferred().frames.empty()) << "others may wait, too";
  job.now_ns += kTestSecond;
  CoordinatorEffects effects = job.Deferred();
  EXPECT_EQ(effects.frames.size(), 3u);
  for (int32_t rank : {0, 1, 2}) {
    EXPECT_TRUE(job.Hears<StallQuery>(effects, job.worker(rank)));
    EXPECT_TRUE(job.Deferred().frames.empty());
    const bool has_sent = rank != 2;
    job.Say(job.worker(rank), StallAnswer{1, rank, {has_sent}, has_sent ? "waits" : "computes"});
  }
  effects = job.Deferred();
  ASSERT_EQ(effects.frames.size(), 2u) << "those who wait";
  const auto report = std::get<StallNotice>(job.Heard(effects, job.worker(0))[0]);
  EXPECT_NE(report.text.find("rank 2: computes"), std::string::npos) << report.text;
  EXPECT_EQ(std::get<StallNotice>(job.Heard(effects, job.worker(1))[0]).text, "");
}

TEST(DeparturesTest, WhoDoesNotAnswerAboutAStallIsNotWaitedForLong) {
  CoordinatorUnderTest job;
  job.OpenAll();
  job.Say(job.worker(0), StallQuery{0, 0, 0, false, {{"t", 7, "float32[2] sum", 61}}});
  job.now_ns += kTestSecond;
  job.Deferred();
  EXPECT_TRUE(job.Deferred().frames.empty());
  job.now_ns += 2 * kTestSecond;
  EXPECT_TRUE(job.Hears<StallNotice>(job.Deferred(), job.worker(0)));
}

}  // namespace
}  // namespace byteps
