#include "cc/xla/stream_exchanges.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "cc/staging/device_request.h"

namespace byteps {
namespace {

// Handles are compared, never used.
int the_streams[2];
const auto kStream = reinterpret_cast<CudaStreamHandle>(&the_streams[0]);
const auto kOther = reinterpret_cast<CudaStreamHandle>(&the_streams[1]);

class FakeEvent : public StreamEvent {
 public:
  explicit FakeEvent(bool of_host) : of_host_(of_host) {}
  Status MakeStreamWait(CudaStreamHandle) override { return OkStatus(); }
  bool IsOfHost() const override { return of_host_; }
  void EndByItself() override { ++releases_; }

  int releases() const { return releases_; }

 private:
  const bool of_host_;
  std::atomic<int> releases_{0};
};

std::shared_ptr<FakeEvent> OfDevice() { return std::make_shared<FakeEvent>(false); }
std::shared_ptr<FakeEvent> OfHost() { return std::make_shared<FakeEvent>(true); }

// An exchange that has begun, and what the engine says of it.
class Begun {
 public:
  explicit Begun(StreamExchanges* all, bool in_programs_memory = true,
                 CudaStreamHandle stream = kStream)
      : all_(all), exchange_(std::make_shared<StreamExchange>("t", stream, in_programs_memory)) {
    all_->Begin(exchange_, &request_);
  }

  void Submit(const DeviceEvent& end) { request_.on_submitted(end); }
  void End(const Status& status = OkStatus()) { all_->End(exchange_, status); }

  // What a done does: the stream waits from now on.
  Status Wait(DeviceEvent* end = nullptr) {
    DeviceEvent unused;
    return all_->WaitUntilSubmitted(exchange_, end == nullptr ? &unused : end);
  }

  const StreamExchangePointer& exchange() const { return exchange_; }

 private:
  StreamExchanges* const all_;
  const StreamExchangePointer exchange_;
  DeviceRequest request_;
};

TEST(StreamExchangesTest, TheStreamWaitsForWhatIsSubmitted) {
  StreamExchanges all;
  Begun one(&all), another(&all);
  const DeviceEvent end = OfDevice();
  one.Submit(end);  // the other one is nowhere: work of the GPU waits for nobody
  DeviceEvent found;
  ASSERT_TRUE(one.Wait(&found).ok());
  EXPECT_EQ(found, end);
  one.End();
  another.End();
  EXPECT_TRUE(all.WaitUntilAllEnded().ok());
}

// Else a GPU could wait for a server, which waits for what that GPU is to compute (see the header).
TEST(StreamExchangesTest, NoStreamWaitsForTheHostBeforeAllIsOnItsWay) {
  StreamExchanges all;
  Begun one(&all), another(&all);
  one.Submit(OfHost());
  std::atomic<bool> is_on_its_way{false};
  std::future<bool> waited = std::async(std::launch::async, [&] {
    const bool ok = one.Wait().ok();
    return ok && is_on_its_way;
  });
  // A fault shows unless the thread starts later than that.
  EXPECT_EQ(waited.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  is_on_its_way = true;
  another.Submit(OfHost());
  EXPECT_TRUE(waited.get());
  one.End();
  another.End();
}

TEST(StreamExchangesTest, OneThatHasEndedIsOnItsWay) {
  StreamExchanges all;
  Begun one(&all), another(&all);
  one.Submit(OfHost());
  another.End(Unavailable("lost"));
  EXPECT_TRUE(one.Wait().ok());
  one.End();
}

TEST(StreamExchangesTest, WithoutAnEventTheHostWaitsForTheEnd) {
  StreamExchanges all;
  Begun one(&all);
  one.Submit(nullptr);
  std::thread ends([&] { one.End(Unavailable("server 2 is lost")); });
  DeviceEvent end;
  EXPECT_EQ(one.Wait(&end).message(), "server 2 is lost");
  EXPECT_EQ(end, nullptr);
  ends.join();
  // Who waited has been told.
  EXPECT_TRUE(all.WaitUntilAllEnded().ok());
}

TEST(StreamExchangesTest, AFailureAfterTheStreamWaitsIsToldOnce) {
  StreamExchanges all;
  Begun failing(&all), next(&all), other(&all, true, kOther);
  failing.Submit(OfDevice());
  ASSERT_TRUE(failing.Wait().ok());
  failing.End(Unavailable("worker 1 is lost"));
  next.Submit(OfDevice());
  other.Submit(OfDevice());
  EXPECT_TRUE(other.Wait().ok());
  EXPECT_EQ(next.Wait().message(), "worker 1 is lost");
  EXPECT_TRUE(next.Wait().ok());
  next.End();
  other.End();
  EXPECT_TRUE(all.WaitUntilAllEnded().ok());
}

TEST(StreamExchangesTest, WhoHasWaitedOnTheHostLearnsOfALateFailure) {
  StreamExchanges all;
  Begun failing(&all), other(&all, true, kOther);
  failing.Submit(OfDevice());
  ASSERT_TRUE(failing.Wait().ok());
  failing.End(Unavailable("worker 1 is lost"));
  EXPECT_TRUE(all.TakeLate(other.exchange()).ok());
  EXPECT_EQ(all.TakeLate(failing.exchange()).message(), "worker 1 is lost");
  EXPECT_TRUE(all.TakeLate(failing.exchange()).ok());
  other.End();
}

TEST(StreamExchangesTest, AllEndsTellTheLateFailure) {
  StreamExchanges all;
  Begun failing(&all);
  failing.Submit(OfDevice());
  ASSERT_TRUE(failing.Wait().ok());
  std::thread ends([&] { failing.End(Unavailable("worker 1 is lost")); });
  EXPECT_EQ(all.WaitUntilAllEnded().message(), "worker 1 is lost");
  ends.join();
  EXPECT_TRUE(all.WaitUntilAllEnded().ok());
}

// XLA frees that memory when a program fails.
TEST(StreamExchangesTest, OnlyMemoryOfProgramsIsWaitedFor) {
  StreamExchanges all;
  Begun detached(&all, false), in_program(&all);
  std::thread ends([&] { in_program.End(Unavailable("lost")); });
  all.WaitForProgramsMemory(kStream);
  ends.join();
  EXPECT_TRUE(all.WaitUntilAllEnded().ok());
  detached.End();
}

TEST(StreamExchangesTest, WhatIsLetGoEndsByItself) {
  StreamExchanges all;
  Begun before(&all), after(&all), never(&all);
  const auto early = OfHost(), late = OfHost(), ended = OfHost();
  before.Submit(early);
  all.Release({before.exchange(), after.exchange()});
  EXPECT_EQ(early->releases(), 1);
  after.Submit(late);
  EXPECT_EQ(late->releases(), 1);
  never.End();
  never.Submit(ended);  // too late to matter
  EXPECT_EQ(ended->releases(), 0);
  before.End();
  after.End();
}

TEST(StreamExchangesTest, AProgramThatFailsEndsWhatItHasBegun) {
  StreamExchanges all;
  all.EndGivenUp({});  // nothing to wait for
  Begun one(&all), another(&all);
  const auto end = OfHost();
  one.Submit(end);
  std::thread ends([&] {
    one.End();
    another.End();
  });
  all.EndGivenUp({one.exchange(), another.exchange()});
  ends.join();
  EXPECT_EQ(end->releases(), 1);
  EXPECT_TRUE(one.exchange()->ended && another.exchange()->ended);
}

TEST(StreamExchangesTest, ThoseThatHaveEndedAreTakenOut) {
  StreamExchanges all;
  Begun one(&all), another(&all);
  one.End();
  std::vector<StreamExchangePointer> exchanges = {one.exchange(), another.exchange()};
  all.RemoveEnded(&exchanges);
  EXPECT_EQ(exchanges, std::vector<StreamExchangePointer>{another.exchange()});
  another.End();
  all.WaitUntilEnded(exchanges);
}

}  // namespace
}  // namespace byteps
