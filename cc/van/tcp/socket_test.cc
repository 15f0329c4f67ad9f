#include "cc/van/tcp/socket.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <unistd.h>

#include <atomic>

#include "cc/base/clock.h"

namespace {

std::atomic<bool> g_answer{false};

}  // namespace

// A name server that does not answer, for one name: the engine's call comes here.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** result) {
  const bool is_asked = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (is_asked && host != nullptr && std::string(host) == "slow.test") {
    while (!g_answer) usleep(1000);
    return EAI_AGAIN;
  }
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(host, port, hints, result);
}

namespace byteps {
namespace {

TEST(SocketTest, ANameServerThatDoesNotAnswerIsNotWaitedForLonger) {
  Socket socket;
  const Status status =
      ConnectTo({"slow.test", 1}, {MonotonicNanos() + SecondsToNanos(0.2)}, &socket);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("\"slow.test\": the name server does not answer"),
            std::string::npos)
      << status.message();
  g_answer = true;
}

TEST(SocketTest, WhoStopsNeedNotWaitForANameServer) {
  g_answer = false;
  Socket socket;
  SocketWait wait{MonotonicNanos() + SecondsToNanos(600)};
  wait.in_vain = [] { return Cancelled("this side is shutting down"); };
  EXPECT_EQ(ConnectTo({"slow.test", 1}, wait, &socket).code(), StatusCode::kCancelled);
  g_answer = true;
}

TEST(SocketTest, TheFirstFreePortOfSeveralIsListenedAt) {
  Socket taken, free_one, other;
  Endpoint first, second, bound;
  ASSERT_TRUE(ListenOn("127.0.0.1", 0, &taken, &first).ok());
  ASSERT_TRUE(ListenOn("127.0.0.1", 0, &free_one, &second).ok());
  free_one.Reset();
  const std::vector<uint16_t> ports = {first.port, second.port};
  ASSERT_TRUE(ListenOnOneOf("127.0.0.1", ports, &free_one, &bound).ok());
  EXPECT_EQ(bound.port, second.port);
  const Status status = ListenOnOneOf("127.0.0.1", ports, &other, &bound);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("none of the 2 ports from "), std::string::npos)
      << status.message();
}

TEST(SocketTest, NamesAndDigitsAreFound) {
  Socket listener;
  Endpoint bound;
  ASSERT_TRUE(ListenOn("127.0.0.1", 0, &listener, &bound).ok());
  for (const char* const host : {"127.0.0.1", "localhost"}) {
    Socket socket;
    const Status status =
        ConnectTo({host, bound.port}, {MonotonicNanos() + SecondsToNanos(30)}, &socket);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

}  // namespace
}  // namespace byteps
