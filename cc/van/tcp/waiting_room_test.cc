#include "cc/van/tcp/waiting_room.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <vector>

#include "cc/base/clock.h"

namespace byteps {
namespace {

// A listener whose connections go through a waiting room; `Turn` is what the loop does.
class WaitingRoomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ListenOn("127.0.0.1", 0, &listener_, &endpoint_).ok());
    ASSERT_TRUE(room_.Open().ok());
  }

  void HaveItFail() {
    for (int i = 0; i < 100; ++i) strangers_.Failed("127.0.0.1", "refused", MonotonicNanos());
  }
  void SpendTime() { strangers_.Spend(1, MonotonicNanos()); }

  Socket Come() {
    Socket socket;
    EXPECT_TRUE(ConnectTo(endpoint_, {MonotonicNanos() + SecondsToNanos(60)}, &socket).ok());
    pollfd entry{listener_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 60000), 1);
    if (has_to_wait_) HaveItFail();
    if (has_to_wait_) SpendTime();
    room_.Enter(Socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    return socket;
  }

  void Turn() {
    pollfd entry{room_.descriptor(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 60000), 1) << "nobody waits";
    room_.OnEvents(POLLIN);
  }

  // Whether the listener has closed the connection.
  static bool IsClosed(const Socket& socket) {
    char byte;
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  bool has_to_wait_ = false;  // this host has failed so often, and there is no time
  UnauthenticatedConnections strangers_;
  Endpoint endpoint_;
  Socket listener_;
  std::vector<Socket> heard_;
  WaitingRoom room_{&strangers_, [this](Socket socket) { heard_.push_back(std::move(socket)); }};
};

TEST_F(WaitingRoomTest, WhoHasNotFailedIsHeardAtOnce) {
  SpendTime();
  Come();
  EXPECT_EQ(heard_.size(), 1u);
}

TEST_F(WaitingRoomTest, WhoHasFailedIsHeardAtOnceWhileThereIsTime) {
  HaveItFail();
  Come();
  EXPECT_EQ(heard_.size(), 1u);
}

TEST_F(WaitingRoomTest, OthersWaitAndAreHeard) {
  has_to_wait_ = true;
  std::vector<Socket> here;
  for (int i = 0; i < 20; ++i) here.push_back(Come());
  EXPECT_EQ(heard_.size(), 0u);
  SpendTime();
  Turn();
  EXPECT_EQ(heard_.size(), 1u) << "one in each turn, though there is no time";
  while (heard_.size() < 20) Turn();
  for (const Socket& one : here) EXPECT_FALSE(IsClosed(one));
}

TEST_F(WaitingRoomTest, WhoHasGoneHoldsNobodyUp) {
  has_to_wait_ = true;
  std::vector<Socket> here;
  here.push_back(Come());
  for (size_t i = 0; i < 3 * WaitingRoom::kMost; ++i) Come();
  here.push_back(Come());
  for (int i = 0; i < 2; ++i) Turn();
  EXPECT_EQ(heard_.size(), 2u) << "those that are there";
  for (const Socket& one : here) EXPECT_FALSE(IsClosed(one));
}

TEST_F(WaitingRoomTest, SoManyWaitAtMost) {
  has_to_wait_ = true;
  std::vector<Socket> here;
  for (size_t i = 0; i < WaitingRoom::kMost + 3; ++i) here.push_back(Come());
  for (size_t i = 0; i < here.size(); ++i) EXPECT_EQ(IsClosed(here[i]), i < 3) << i;
  room_.MakeRoom();
  size_t closed = 0;
  for (const Socket& one : here) closed += IsClosed(one);
  EXPECT_EQ(closed, 3 + WaitingRoom::kMost / 2);
}

}  // namespace
}  // namespace byteps
