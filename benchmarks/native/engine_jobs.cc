// What jobs of the engine alone cost and take, each line of JSON a measurement. benchmarks/scale.py
// runs them.
//
//   engine_jobs step WORKERS SERVERS STEPS   a step of 160 tensors of 4 KB: the least CPU time
//   engine_jobs end WORKERS SERVERS          all workers leave after one step
//   engine_jobs wait WORKERS SECONDS         all wait for the last one; the log says for whom
//   engine_jobs urgent MEGABYTES ROUNDS      40 bytes beside a long sum and a long gather, in turns
//   engine_jobs tls MEGABYTES ROUNDS         CPU time for a GB in clear and in TLS, in turns
//   engine_jobs strangers COUNT ROUNDS       a step while so many strangers are connected to the
//                                            server, which may have fewer descriptors, and say
//                                            nothing; and while there are none, in turns
#include "benchmarks/native/engine_jobs.h"

#include <algorithm>
#include <chrono>

namespace byteps {
namespace {

constexpr int kTensors = 160;
constexpr size_t kElements = 1024;

double Seconds(int64_t begin_ns) { return 1e-9 * static_cast<double>(MonotonicNanos() - begin_ns); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void AddTensors(EngineJob* job, TimedExchanges* exchanges) {
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    for (int32_t rank = 0; rank < job->num_workers(); ++rank)
      exchanges->Add(&job->worker(rank), "t" + std::to_string(tensor), kElements,
                     ExchangeKind::kSum);
  }
}

void MeasureStep(JobSize size, int steps) {
  EngineJob job(size, EngineJob::ForManyWorkers());
  job.Start();
  TimedExchanges exchanges;
  AddTensors(&job, &exchanges);
  exchanges.Step();
  std::vector<double> wall, servers, workers;
  for (int step = 0; step < steps; ++step) {
    const int64_t begin = MonotonicNanos();
    const double servers_begin = job.ServersCpu(), workers_begin = CpuSeconds();
    exchanges.Step();
    wall.push_back(Seconds(begin));
    workers.push_back(CpuSeconds() - workers_begin);
    servers.push_back(job.ServersCpu() - servers_begin);
  }
  std::printf(
      "{\"workers\": %d, \"servers\": %d, \"servers_cpu\": %.5f, \"workers_cpu\": %.5f, "
      "\"wall\": %.5f}\n",
      size.workers, size.servers, *std::min_element(servers.begin(), servers.end()),
      *std::min_element(workers.begin(), workers.end()),
      *std::min_element(wall.begin(), wall.end()));
}

void MeasureEnd(JobSize size) {
  EngineJob job(size, EngineJob::ForManyWorkers());
  job.Start();
  TimedExchanges exchanges;
  for (int32_t rank = 0; rank < size.workers; ++rank)
    exchanges.Add(&job.worker(rank), "t", kElements, ExchangeKind::kSum);
  exchanges.Step();
  const int64_t begin = MonotonicNanos();
  const double coordinator = job.CoordinatorCpu();
  const bool is_well = job.EndWell();
  std::printf(
      "{\"workers\": %d, \"servers\": %d, \"wall\": %.3f, \"coordinator_cpu\": %.4f, "
      "\"ended_well\": %s}\n",
      size.workers, size.servers, Seconds(begin), job.CoordinatorCpu() - coordinator,
      is_well ? "true" : "false");
}

void MeasureWait(int32_t workers, int seconds) {
  EngineJob job({workers, 1}, EngineJob::ForManyWorkers());
  job.Start();
  TimedExchanges all, straggler;
  for (int32_t rank = 0; rank < workers; ++rank)
    (rank + 1 < workers ? all : straggler)
        .Add(&job.worker(rank), "t", kElements, ExchangeKind::kSum);
  all.Begin();
  const double coordinator = job.CoordinatorCpu();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const double cpu = job.CoordinatorCpu() - coordinator;
  straggler.Step();
  all.Wait();
  const bool is_well = job.EndWell();
  std::printf("{\"workers\": %d, \"seconds\": %d, \"coordinator_cpu\": %.4f, \"ended_well\": %s}\n",
              workers, seconds, cpu, is_well ? "true" : "false");
}

constexpr int32_t kTwoWorkers = 2;

// Of the urgent exchange, which begins when the long one has.
double UrgentSeconds(TimedExchanges* urgent, TimedExchanges* other) {
  constexpr auto kAfter = std::chrono::milliseconds(20);
  other->Begin();
  std::this_thread::sleep_for(kAfter);
  const int64_t begin = MonotonicNanos();
  urgent->Step();
  const double seconds = Seconds(begin);
  other->Wait();
  return seconds;
}

EngineOptions OverSockets() {
  EngineOptions options;
  options.security.secret = "a secret of at least sixteen bytes";
  options.network.read_peer_memory = false;
  return options;
}

void MeasureUrgent(size_t bytes, int rounds) {
  EngineJob job({kTwoWorkers, 1}, OverSockets());
  job.Start();
  TimedExchanges urgent, sum, gather;
  constexpr int32_t kLow = 0, kHigh = 10;
  for (int32_t rank = 0; rank < kTwoWorkers; ++rank) {
    Worker* const worker = &job.worker(rank);
    urgent.Add(worker, "urgent", 10, ExchangeKind::kSum, kHigh);
    sum.Add(worker, "sum", bytes / sizeof(float), ExchangeKind::kSum, kLow);
    gather.Add(worker, "gather", bytes / sizeof(float), ExchangeKind::kGather, kLow);
  }
  urgent.Step();
  UrgentSeconds(&urgent, &sum);
  UrgentSeconds(&urgent, &gather);
  std::vector<double> beside_sum, beside_gather, ratios, sums, gathers;
  for (int round = 0; round < rounds; ++round) {
    int64_t begin = MonotonicNanos();
    beside_sum.push_back(UrgentSeconds(&urgent, &sum));
    sums.push_back(Seconds(begin));
    begin = MonotonicNanos();
    beside_gather.push_back(UrgentSeconds(&urgent, &gather));
    gathers.push_back(Seconds(begin));
    ratios.push_back(beside_gather.back() / beside_sum.back());
  }
  std::printf(
      "{\"beside_sum\": %.5f, \"beside_gather\": %.5f, \"ratio\": %.3f, \"sum\": %.4f, "
      "\"gather\": %.4f}\n",
      Median(beside_sum), Median(beside_gather), Median(ratios), Median(sums), Median(gathers));
}

void MeasureTls(size_t bytes, int rounds) {
  std::vector<std::unique_ptr<EngineJob>> jobs;
  for (const bool tls : {false, true}) {
    EngineOptions options = OverSockets();
    options.security.tls = tls;
    jobs.push_back(std::make_unique<EngineJob>(JobSize{kTwoWorkers, 1}, options));
  }
  std::vector<std::unique_ptr<TimedExchanges>> exchanges;
  for (const auto& job : jobs) {
    job->Start();
    exchanges.push_back(std::make_unique<TimedExchanges>());
    for (int32_t rank = 0; rank < kTwoWorkers; ++rank)
      exchanges.back()->Add(&job->worker(rank), "t", bytes / sizeof(float), ExchangeKind::kSum);
    exchanges.back()->Step();
  }
  // A GB that is moved one way: each worker's bytes go there and back.
  const double gigabytes = 1e-9 * 2 * kTwoWorkers * static_cast<double>(bytes);
  std::vector<double> costs[2], ratios;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      const double begin = jobs[i]->AllCpu();
      exchanges[i]->Step();
      costs[i].push_back((jobs[i]->AllCpu() - begin) / gigabytes);
    }
    ratios.push_back(costs[1].back() / costs[0].back());
  }
  std::printf("{\"plain\": %.3f, \"tls\": %.3f, \"ratio\": %.3f}\n", Median(costs[0]),
              Median(costs[1]), Median(ratios));
}

// A process that connects, says nothing, and connects again where it is shut out.
class Strangers {
 public:
  // Forks.
  explicit Strangers(int count) : count_(count), child_([this](int channel) { Run(channel); }) {}

  void Connect(uint16_t port) { Ask(port); }
  void Leave() { Ask(0); }

 private:
  void Ask(uint16_t port) {
    child_.Tell(port);
    child_.Hear<char>();
  }

  void Run(int channel) const {
    std::vector<int> sockets;
    uint16_t port = 0;
    while (true) {
      uint16_t asked = 0;
      const ssize_t heard = recv(channel, &asked, sizeof(asked), port == 0 ? 0 : MSG_DONTWAIT);
      if (heard == 0) return;
      if (heard > 0) {
        for (const int socket : sockets) close(socket);
        port = asked;
        sockets.assign(port == 0 ? 0 : count_, -1);
      }
      for (int& socket : sockets) ConnectIfClosed(&socket, port);
      if (heard > 0) SendAll(channel, "d", 1);
      usleep(10000);
    }
  }

  static void ConnectIfClosed(int* stranger, uint16_t port) {
    char byte;
    if (*stranger >= 0) {
      if (recv(*stranger, &byte, 1, MSG_DONTWAIT) != 0) return;
      close(*stranger);
    }
    *stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    Check(*stranger >= 0, "socket");
    const sockaddr_in address = Loopback(htons(port));
    // Where it waits for its turn, it does so without this thread.
    (void)connect(*stranger, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }

  const int count_;
  Child child_;
};

void MeasureStrangers(int count, int rounds) {
  constexpr int kSteps = 20;
  Strangers strangers(count);
  EngineJob job({kTwoWorkers, 1, static_cast<rlim_t>(count) / 2}, OverSockets());
  job.Start();
  TimedExchanges exchanges;
  AddTensors(&job, &exchanges);
  exchanges.Step();
  const auto step = [&] {
    std::vector<double> seconds;
    for (int i = 0; i < kSteps; ++i) {
      const int64_t begin = MonotonicNanos();
      exchanges.Step();
      seconds.push_back(Seconds(begin));
    }
    return Median(seconds);
  };
  std::vector<double> quiet, besieged, ratios;
  for (int round = 0; round < rounds; ++round) {
    quiet.push_back(step());
    strangers.Connect(job.server_endpoint(0).port);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // they are as many as may be
    besieged.push_back(step());
    strangers.Leave();
    std::this_thread::sleep_for(std::chrono::seconds(2));  // and the server has seen them go
    ratios.push_back(besieged.back() / quiet.back());
  }
  std::printf("{\"quiet\": %.5f, \"besieged\": %.5f, \"ratio\": %.3f}\n", Median(quiet),
              Median(besieged), Median(ratios));
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  std::vector<int> numbers;
  for (int i = 2; i < argc; ++i) numbers.push_back(std::atoi(argv[i]));
  const auto megabytes = [&] { return size_t(numbers[0]) * 1000000; };
  SetLogLevel(LogLevel::kWarning);
  if (what == "step" && numbers.size() == 3) {
    MeasureStep({numbers[0], numbers[1]}, numbers[2]);
  } else if (what == "end" && numbers.size() == 2) {
    MeasureEnd({numbers[0], numbers[1]});
  } else if (what == "wait" && numbers.size() == 2) {
    MeasureWait(numbers[0], numbers[1]);
  } else if (what == "urgent" && numbers.size() == 2) {
    MeasureUrgent(megabytes(), numbers[1]);
  } else if (what == "tls" && numbers.size() == 2) {
    MeasureTls(megabytes(), numbers[1]);
  } else if (what == "strangers" && numbers.size() == 2) {
    MeasureStrangers(numbers[0], numbers[1]);
  } else {
    std::fprintf(stderr, "usage: engine_jobs step|end|wait|urgent|tls|strangers NUMBER...\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) { return byteps::Main(argc, argv); }
