// The least CPU time that a server needs for the bytes pushed to it: to receive, to add, to send.
//
//   cpu_cost tcp|memory MEGABYTES    prints JSON: CPU seconds per GB of each
//
// Only this process's time counts, as the engine's server's does; a child is the peer. "tcp" is the
// loopback interface; "memory" reads the peer's memory (process_vm_readv), where sending costs the
// sender nothing. Bytes are received in pieces that fit the cache, as the server does.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/native/sockets.h"
#include "cc/sum/sum.h"

namespace byteps {
namespace {

constexpr size_t kPieceBytes = 128 * 1024;
constexpr size_t kModelBytes = 64 * 1024 * 1024;  // more than the caches hold

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// CPU seconds per GB of work that handles `bytes` bytes.
double CostPerGigabyte(size_t bytes, const std::function<void()>& work) {
  const double begin = CpuSeconds();
  work();
  return (CpuSeconds() - begin) / (1e-9 * bytes);
}

// Calls `handle` with the places of a model, piece by piece, until `bytes` bytes are done.
void ForEachPiece(size_t bytes, const std::function<void(size_t place)>& handle) {
  for (size_t done = 0; done < bytes; done += kPieceBytes) handle(done % kModelBytes);
}

class Model {
 public:
  Model() : bytes_(kModelBytes, 1) {}
  uint8_t* At(size_t place) { return bytes_.data() + place; }

 private:
  std::vector<uint8_t> bytes_;
};

double SumCost(size_t bytes) {
  Model model;
  std::vector<uint8_t> piece(kPieceBytes, 0);
  return CostPerGigabyte(bytes, [&] {
    ForEachPiece(bytes, [&](size_t place) {
      ActiveSumKernels().add(DType::kFloat32, model.At(place), piece.data(),
                             kPieceBytes / sizeof(float));
    });
  });
}

void MeasureTcp(size_t bytes, double* receive, double* send) {
  sockaddr_in address;
  const int listener = Listen(&address);
  const pid_t child = fork();
  Check(child >= 0, "fork");
  if (child == 0) {
    const int connection = Connect(address);
    Model model;
    ForEachPiece(bytes, [&](size_t place) { SendAll(connection, model.At(place), kPieceBytes); });
    ForEachPiece(bytes,
                 [&](size_t place) { ReceiveAll(connection, model.At(place), kPieceBytes); });
    _exit(0);
  }
  const int connection = Accept(listener);
  Model model;
  std::vector<uint8_t> piece(kPieceBytes);
  *receive = CostPerGigabyte(bytes, [&] {
    ForEachPiece(bytes, [&](size_t) { ReceiveAll(connection, piece.data(), kPieceBytes); });
  });
  *send = CostPerGigabyte(bytes, [&] {
    ForEachPiece(bytes, [&](size_t place) { SendAll(connection, model.At(place), kPieceBytes); });
  });
  int status;
  Check(waitpid(child, &status, 0) == child && status == 0, "the peer");
}

void MeasureMemory(size_t bytes, double* receive, double* send) {
  // In the child, memory of its own: the first write there has copied it.
  Model model;
  int ready[2];
  Check(pipe(ready) == 0, "pipe");
  const pid_t child = fork();
  Check(child >= 0, "fork");
  if (child == 0) {
    std::memset(model.At(0), 2, kModelBytes);
    Check(write(ready[1], "x", 1) == 1, "write");
    pause();
    _exit(0);
  }
  char byte;
  Check(read(ready[0], &byte, 1) == 1, "read");
  std::vector<uint8_t> piece(kPieceBytes);
  *receive = CostPerGigabyte(bytes, [&] {
    ForEachPiece(bytes, [&](size_t place) {
      iovec local{piece.data(), kPieceBytes}, remote{model.At(place), kPieceBytes};
      Check(process_vm_readv(child, &local, 1, &remote, 1, 0) == kPieceBytes, "process_vm_readv");
    });
  });
  *send = 0;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

int Main(int argc, char** argv) {
  const std::string path = argc == 3 ? argv[1] : "";
  if (path != "tcp" && path != "memory") {
    std::fprintf(stderr, "usage: cpu_cost tcp|memory MEGABYTES\n");
    return 2;
  }
  const size_t bytes = std::strtoull(argv[2], nullptr, 10) * 1000000 / kPieceBytes * kPieceBytes;
  double receive, send;
  (path == "tcp" ? MeasureTcp : MeasureMemory)(bytes, &receive, &send);
  std::printf("{\"receive\": %.4f, \"sum\": %.4f, \"send\": %.4f}\n", receive, SumCost(bytes),
              send);
  return 0;
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) { return byteps::Main(argc, argv); }
