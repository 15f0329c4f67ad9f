// The least that a sum of two small tensors costs on this machine: two processes send it over TCP
// to a third, which waits with epoll, adds, and answers both when both are in.
//
//   bare_exchange BYTES COUNT    prints the microseconds of one exchange
#include <sys/epoll.h>
#include <sys/wait.h>

#include <chrono>
#include <vector>

#include "benchmarks/native/sockets.h"

namespace byteps {
namespace {

constexpr int kSenders = 2;

int WaitFor(int epoll) {
  epoll_event event;
  Check(epoll_wait(epoll, &event, 1, -1) == 1, "epoll_wait");
  return event.data.fd;
}

int Watch(const std::vector<int>& connections) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  Check(epoll >= 0, "epoll_create1");
  for (const int connection : connections) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = connection;
    Check(epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &event) == 0, "epoll_ctl");
  }
  return epoll;
}

// Returns the seconds of `count` exchanges, one after the other.
double Send(const sockaddr_in& address, size_t elements, int count) {
  const int connection = Connect(address);
  const int epoll = Watch({connection});
  std::vector<float> values(elements, 1);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    SendAll(connection, values.data(), elements * sizeof(float));
    WaitFor(epoll);
    ReceiveAll(connection, values.data(), elements * sizeof(float));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Sum(int listener, size_t elements, int count) {
  std::vector<int> connections;
  for (int i = 0; i < kSenders; ++i) connections.push_back(Accept(listener));
  const int epoll = Watch(connections);
  std::vector<float> sum(elements), received(elements);
  for (int i = 0; i < count; ++i) {
    for (int arrived = 0; arrived < kSenders; ++arrived) {
      float* const target = arrived == 0 ? sum.data() : received.data();
      ReceiveAll(WaitFor(epoll), target, elements * sizeof(float));
      if (arrived == 0) continue;
      for (size_t element = 0; element < elements; ++element) sum[element] += received[element];
    }
    for (float& element : sum) element /= kSenders;
    for (const int connection : connections)
      SendAll(connection, sum.data(), elements * sizeof(float));
  }
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bare_exchange BYTES COUNT\n");
    return 2;
  }
  const size_t elements = std::strtoull(argv[1], nullptr, 10) / sizeof(float);
  const int count = std::atoi(argv[2]);
  sockaddr_in address;
  const int listener = Listen(&address);
  for (int sender = 0; sender < kSenders; ++sender) {
    const pid_t child = fork();
    Check(child >= 0, "fork");
    if (child > 0) continue;
    const double seconds = Send(address, elements, count);
    if (sender == 0) std::printf("%.3f\n", 1e6 * seconds / count);
    std::fflush(stdout);
    _exit(0);
  }
  Sum(listener, elements, count);
  bool good = true;
  for (int status; wait(&status) > 0;) good = good && status == 0;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) { return byteps::Main(argc, argv); }
