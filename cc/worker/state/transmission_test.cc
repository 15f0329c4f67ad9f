#include "cc/worker/state/transmission.h"

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

class TransmissionTest : public testing::Test {
 protected:
  StateUnderTest worker_;
};

TEST_F(TransmissionTest, PushesAsFarAsTheCreditAdmits) {
  worker_.OpenAll();
  Effects effects;
  const auto exchange = worker_.Placed("a", 6 * 250, &effects);
  EXPECT_EQ(PartsOf(effects), (Parts{0, 1, 2, 3}));
  EXPECT_EQ(worker_.counters().in_flight_bytes, 4000u);
  EXPECT_EQ(worker_.counters().queued_parts, 2u);
  EXPECT_EQ(PartsOf(worker_.Credit(0, 1000)), (Parts{4}));
  EXPECT_EQ(PartsOf(worker_.Credit(1, 1000)), (Parts{5}));
  worker_.Credit(0, 2000);
  worker_.Credit(1, 2000);
  EXPECT_EQ(worker_.counters().in_flight_bytes, 0u);
  EXPECT_EQ(worker_.counters().unanswered_bytes, 6000u);
}

TEST_F(TransmissionTest, EachPartGoesToItsServer) {
  worker_.OpenAll();
  Effects effects;
  const auto exchange = worker_.Placed("a", 2 * 250, &effects);
  ASSERT_EQ(effects.frames.size(), 2u);
  for (uint32_t part : {0u, 1u}) {
    EXPECT_EQ(effects.frames[part].connection, worker_.connection(part));
    EXPECT_EQ(effects.frames[part].frame.payload, exchange->PartInput(part));
  }
}

TEST_F(TransmissionTest, WhatHasNoPathWaitsForOneWithoutCredit) {
  worker_.Open(0);
  Effects effects;
  worker_.Placed("a", 2 * 250, &effects);
  EXPECT_EQ(PartsOf(effects), (Parts{0}));
  EXPECT_EQ(worker_.counters().in_flight_bytes, 1000u);
  EXPECT_EQ(PartsOf(worker_.Open(1)), (Parts{1}));
}

TEST_F(TransmissionTest, ABrokenConnectionGivesItsCreditBack) {
  worker_.OpenAll();
  worker_.Placed("a", 4 * 250);
  EXPECT_EQ(worker_.counters().in_flight_bytes, 4000u);
  worker_.Break(1);
  EXPECT_EQ(worker_.counters().in_flight_bytes, 2000u);
}

TEST_F(TransmissionTest, CreditOfAConnectionThatHasBrokenIsNobodys) {
  worker_.OpenAll();
  worker_.Placed("a", 4 * 250);
  const std::shared_ptr<Connection> before = worker_.connection(1);
  worker_.Break(1);
  worker_.state.transmission.ReturnCredit({1, 0, before.get(), "server 1"}, 2000);
  EXPECT_EQ(worker_.counters().in_flight_bytes, 2000u);
}

TEST_F(TransmissionTest, AFailedExchangeIsTakenBackOncePerConnection) {
  worker_.OpenAll();
  const auto exchange = worker_.Placed("a", 4 * 250);
  const Effects effects = worker_.Do(
      [&](Effects* at) { worker_.state.exchanges.Finish(exchange, Internal("it fails"), at); });
  ASSERT_EQ(effects.revocations.size(), 2u);
  EXPECT_NE(effects.revocations[0].connection, effects.revocations[1].connection);
  EXPECT_EQ(PartsOf(effects).size(), 4u);  // the withdrawals
  EXPECT_EQ(worker_.counters().unanswered_bytes, 0u);
  // What the Van has taken back makes room.
  const auto next = worker_.Placed("b", 2 * 250);
  EXPECT_EQ(worker_.counters().queued_parts, 2u);
  const Effects revoked = worker_.Do(
      [&](Effects* at) { worker_.state.path_events.OnRevoked(worker_.From(0), 2000, at); });
  EXPECT_EQ(PartsOf(revoked), (Parts{0, 1}));
  EXPECT_EQ(next->sent_on[0], 0);
}

TEST_F(TransmissionTest, AWithdrawalIsMadeAgainOverTheNextPath) {
  worker_.Open(0);
  const auto exchange = worker_.Placed("a", 2 * 250);
  const Effects failed = worker_.Do(
      [&](Effects* at) { worker_.state.exchanges.Finish(exchange, Internal("it fails"), at); });
  EXPECT_EQ(PartsOf(failed), (Parts{0}));
  const Effects opened = worker_.Open(1);
  ASSERT_EQ(PartsOf(opened), (Parts{1}));
  EXPECT_EQ(opened.frames[0].frame.header.status, StatusCode::kInternal);
}

TEST_F(TransmissionTest, TheLinkIsReportedOnceWhereItsRateIsGiven) {
  JobDescription job = StateUnderTest::Job();
  job.options.flow.part_bytes = 0;
  job.options.flow.link_bytes_per_second = 1000;
  StateUnderTest worker(job);
  worker.OpenAll();
  Effects effects;
  worker.Placed("a", 250, &effects);
  ASSERT_TRUE(effects.link.has_value());
  EXPECT_EQ(effects.link->bytes_per_second, 1000u);
  EXPECT_EQ(effects.link->connections.size(), 2u);
  worker.Placed("b", 250, &effects);
  EXPECT_FALSE(effects.link.has_value());
}

TEST_F(TransmissionTest, ATunedCreditAdmitsWhatWaits) {
  worker_.OpenAll();
  worker_.Placed("a", 6 * 250);
  Retune retune;
  retune.credit_bytes = 6000;
  retune.unsent_bytes = 100;
  const Effects effects = worker_.Do(
      [&](Effects* at) { EXPECT_TRUE(worker_.state.placement.OnRetune(retune, at).ok()); });
  EXPECT_EQ(PartsOf(effects), (Parts{4, 5}));
  EXPECT_EQ(effects.limits.size(), 2u);
}

}  // namespace
}  // namespace byteps
