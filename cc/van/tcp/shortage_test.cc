// A listener whose process may have no more descriptors.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/van/open_acceptor.h"
#include "cc/van/tcp/socket.h"
#include "cc/van/van.h"

namespace byteps {
namespace {

constexpr int kStrangers = 300;
constexpr rlim_t kDescriptors = 80;
constexpr int kRoundTrips = 100;

class Echo : public ConnectionHandler {
 public:
  Status OnHeader(Connection&, const FrameHeader&, std::shared_ptr<PayloadSink>*) override {
    return OkStatus();
  }
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink>) override {
    ++frames;
    if (header.part == 0) return OkStatus();
    OutgoingFrame frame;
    frame.header.type = FrameType::kPush;
    connection.Send(std::move(frame));
    return OkStatus();
  }
  void OnClosed(Connection&, const Status&) override {}
  std::atomic<int> frames{0};
};

// In a process of their own: connect, say nothing, and come again when they are shut out.
[[noreturn]] void BeStrangers(int port_pipe, int ready_pipe) {
  Endpoint endpoint{"127.0.0.1", 0};
  if (read(port_pipe, &endpoint.port, sizeof(endpoint.port)) != sizeof(endpoint.port)) _exit(1);
  std::vector<Socket> strangers(kStrangers);
  for (bool is_first = true;; is_first = false) {
    for (Socket& stranger : strangers) {
      char byte;
      if (stranger.valid() && recv(stranger.get(), &byte, 1, MSG_DONTWAIT) != 0) continue;
      stranger.Reset();
      ConnectTo(endpoint, {MonotonicNanos() + SecondsToNanos(5)}, &stranger).ok();
    }
    if (is_first && write(ready_pipe, "x", 1) != 1) _exit(1);
    usleep(10000);
  }
}

// Nanoseconds for so many frames there and back, one after the other.
int64_t RoundTrips(Connection* connection, const Echo& client) {
  const int64_t begin = MonotonicNanos();
  for (int i = 0; i < kRoundTrips; ++i) {
    const int before = client.frames;
    OutgoingFrame frame;
    frame.header.type = FrameType::kPush;
    frame.header.part = 1;
    connection->Send(std::move(frame));
    while (client.frames == before && MonotonicNanos() - begin < SecondsToNanos(60))
      std::this_thread::yield();
  }
  return MonotonicNanos() - begin;
}

TEST(ShortageTest, DataGoesOnAndTheJobGetsInWhereStrangersTakeAllDescriptors) {
  int port_pipe[2], ready_pipe[2];
  ASSERT_EQ(pipe(port_pipe), 0);
  ASSERT_EQ(pipe(ready_pipe), 0);
  const pid_t child = fork();
  if (child == 0) BeStrangers(port_pipe[0], ready_pipe[1]);
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = kDescriptors;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Echo server, client;
  OpenAcceptor acceptor(&server);
  VanOptions options;
  options.secret = "secret";
  options.io_threads = 1;  // which accepts and moves data
  const std::unique_ptr<Van> server_van = NewTcpVan(options), client_van = NewTcpVan(options);
  Endpoint endpoint;
  ASSERT_TRUE(server_van->Listen("127.0.0.1", 0, &acceptor, &endpoint).ok());
  std::shared_ptr<Connection> connection, later;
  ASSERT_TRUE(client_van->Connect(endpoint, Hello(), Hello(), &client, 10, &connection).ok());
  const int64_t quiet_ns = RoundTrips(connection.get(), client);
  ASSERT_EQ(write(port_pipe[1], &endpoint.port, sizeof(endpoint.port)),
            static_cast<ssize_t>(sizeof(endpoint.port)));
  char byte;
  ASSERT_EQ(read(ready_pipe[0], &byte, 1), 1);
  const int64_t besieged_ns = RoundTrips(connection.get(), client);
  // A pause of the thread for each connection would make it 10 s and more.
  EXPECT_LT(besieged_ns, 20 * quiet_ns + SecondsToNanos(2));
  EXPECT_EQ(client.frames, 2 * kRoundTrips);
  const Status status = client_van->Connect(endpoint, Hello(), Hello(), &client, 30, &later);
  EXPECT_TRUE(status.ok()) << status.ToString();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  client_van->Stop();
  server_van->Stop();
}

}  // namespace
}  // namespace byteps
