// Jobs of the engine alone, for measuring: the coordinator and all servers are a process each,
// whose processor time is theirs alone, and all workers are in the process that measures. Errors
// end the program.
#pragma once

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/native/sockets.h"
#include "cc/base/clock.h"
#include "cc/coordinator/coordinator.h"
#include "cc/server/server.h"
#include "cc/worker/worker.h"

namespace byteps {

inline void CheckOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(1);  // threads of engines may be running
}

// Of this process.
inline double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// What a child is told: say how much processor time it has used; wait until the job is over.
enum class Command : char { kCpu = 'c', kWait = 'w' };

// A process that does `body` and ends. Make all of them before the first thread.
class Child {
 public:
  explicit Child(const std::function<void(int channel)>& body) {
    int ends[2];
    Check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    pid_ = fork();
    Check(pid_ >= 0, "fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      for (const int other : Channels()) close(other);  // those learn of their end by it
      body(ends[1]);
      std::_Exit(0);
    }
    close(ends[1]);
    channel_ = ends[0];
    Channels().insert(channel_);
  }
  ~Child() {
    Channels().erase(channel_);
    close(channel_);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  template <typename T>
  void Tell(const T& value) {
    SendAll(channel_, &value, sizeof(value));
  }
  template <typename T>
  T Hear() {
    T value;
    ReceiveAll(channel_, &value, sizeof(value));
    return value;
  }
  double CpuSeconds() {
    Tell(Command::kCpu);
    return Hear<double>();
  }

 private:
  // Of all children.
  static std::set<int>& Channels() {
    static std::set<int> channels;
    return channels;
  }

  pid_t pid_;
  int channel_;
};

struct JobSize {
  int32_t workers = 1;
  int32_t servers = 1;
  rlim_t server_descriptors = 0;  // that the servers' process may have; 0: as many as this one
};

// Each worker on a host of its own, as far as the engine knows.
class EngineJob {
 public:
  // Forks.
  EngineJob(JobSize size, const EngineOptions& options)
      : size_(size),
        options_(options),
        coordinator_([this](int channel) { Coordinate(channel); }),
        servers_([this](int channel) { Serve(channel); }) {}
  // Workers say goodbye first, one after the other.
  ~EngineJob() {
    for (const auto& worker : workers_) worker->Stop();
  }

  // After all jobs have been made. Workers start one after the other.
  void Start() {
    const auto coordinator = coordinator_.Hear<uint16_t>();
    std::vector<uint16_t> ports(size_.servers);
    for (uint16_t& port : ports) port = servers_.Hear<uint16_t>();
    for (Child* child : {&coordinator_, &servers_}) {
      child->Tell(coordinator);
      for (const uint16_t port : ports) child->Tell(port);
    }
    const JobDescription job = Describe(coordinator, ports);
    server_endpoints_ = job.server_endpoints;
    coordinator_.Hear<char>();  // it takes the others in
    for (int32_t rank = 0; rank < size_.workers; ++rank) {
      workers_.push_back(std::make_unique<Worker>(job, rank));
      CheckOk(workers_.back()->Start());
    }
  }

  Worker& worker(int32_t rank) { return *workers_[rank]; }
  const Endpoint& server_endpoint(int32_t rank) const { return server_endpoints_[rank]; }
  int32_t num_workers() const { return size_.workers; }
  double CoordinatorCpu() { return coordinator_.CpuSeconds(); }
  double ServersCpu() { return servers_.CpuSeconds(); }
  double AllCpu() { return CpuSeconds() + CoordinatorCpu() + ServersCpu(); }

  // All workers leave at once, each on a thread of its own. Returns when the coordinator says that
  // the job is over: whether it ended well.
  bool EndWell() {
    for (Child* child : {&coordinator_, &servers_}) child->Tell(Command::kWait);
    std::vector<std::thread> threads;
    for (const auto& worker : workers_) threads.emplace_back([&worker] { worker->Stop(); });
    for (std::thread& thread : threads) thread.join();
    return coordinator_.Hear<bool>();
  }

  // One thread of each worker moves bytes: the default is for one worker in a process.
  static EngineOptions ForManyWorkers() {
    EngineOptions options;
    options.network.io_threads = 1;
    return options;
  }

 private:
  JobDescription Describe(uint16_t coordinator, const std::vector<uint16_t>& ports) const {
    JobDescription job;
    job.job_id = "engine_jobs";
    job.options = options_;
    job.coordinator_endpoint = {"127.0.0.1", coordinator};
    for (int32_t rank = 0; rank < size_.workers; ++rank)
      job.worker_hosts.push_back("host " + std::to_string(rank));
    for (const uint16_t port : ports) {
      job.server_hosts.push_back("host of server " + std::to_string(job.server_hosts.size()));
      job.server_endpoints.push_back({"127.0.0.1", port});
    }
    return job;
  }

  JobDescription HearOfJob(int channel) const {
    std::vector<uint16_t> ports(1 + size_.servers);
    for (uint16_t& port : ports) ReceiveAll(channel, &port, sizeof(port));
    return Describe(ports[0], {ports.begin() + 1, ports.end()});
  }

  void Coordinate(int channel) {
    Coordinator coordinator(options_);
    CheckOk(coordinator.Listen("127.0.0.1", 0));
    SendAll(channel, &coordinator.endpoint().port, sizeof(uint16_t));
    CheckOk(coordinator.Start(HearOfJob(channel)));
    SendAll(channel, "s", 1);
    Obey(channel, [&] {
      while (!coordinator.Wait(1)) {
      }
      const bool is_well = coordinator.failure().empty();
      SendAll(channel, &is_well, sizeof(is_well));
    });
  }

  void Serve(int channel) {
    const rlimit limit{size_.server_descriptors, size_.server_descriptors};
    if (limit.rlim_max > 0) Check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    std::vector<std::unique_ptr<Server>> servers;
    for (int32_t rank = 0; rank < size_.servers; ++rank) {
      servers.push_back(std::make_unique<Server>(options_));
      CheckOk(servers.back()->Listen("127.0.0.1", 0));
      SendAll(channel, &servers.back()->endpoint().port, sizeof(uint16_t));
    }
    const JobDescription job = HearOfJob(channel);
    for (int32_t rank = 0; rank < size_.servers; ++rank) CheckOk(servers[rank]->Start(job, rank));
    Obey(channel, [&] {
      for (const auto& server : servers) {
        while (!server->Wait(1)) {
        }
        server->Stop();
      }
    });
  }

  // Until the other end is closed.
  static void Obey(int channel, const std::function<void()>& wait) {
    Command command;
    while (recv(channel, &command, 1, 0) == 1) {
      if (command == Command::kWait) wait();
      if (command != Command::kCpu) continue;
      const double seconds = CpuSeconds();
      SendAll(channel, &seconds, sizeof(seconds));
    }
  }

  const JobSize size_;
  const EngineOptions options_;
  Child coordinator_;
  Child servers_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Endpoint> server_endpoints_;
};

// Tensors that are exchanged again and again, all at once.
class TimedExchanges {
 public:
  // Rows of float32; of a gather, those of each worker.
  void Add(Worker* worker, const std::string& name, size_t elements, ExchangeKind kind,
           int32_t priority = kBackwardOrder) {
    auto tensor = std::make_unique<Tensor>();
    tensor->worker = worker;
    tensor->input.assign(elements, 1);
    tensor->output.resize(elements);
    ExchangeRequest& request = tensor->request;
    request.tensor.name = name;
    request.tensor.kind = kind;
    request.tensor.shape = {static_cast<int64_t>(elements)};
    request.priority = priority;
    request.input = tensor->input.data();
    request.output = tensor->output.data();
    if (kind == ExchangeKind::kGather) {
      request.tensor.shape = {-1};
      request.gather_rows = static_cast<int64_t>(elements);
      request.allocate_output = [raw = tensor.get()](const std::vector<int64_t>& rows) -> void* {
        size_t total = 1;
        for (const int64_t count : rows) total += count;
        raw->output.resize(total);
        return raw->output.data();
      };
    }
    request.done = [this](const Status& status) { Finish(status); };
    tensors_.push_back(std::move(tensor));
  }

  void Begin() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      left_ = tensors_.size();
    }
    for (const auto& tensor : tensors_) tensor->worker->Enqueue(tensor->request);
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return left_ == 0; });
  }
  void Step() {
    Begin();
    Wait();
  }

 private:
  struct Tensor {
    Worker* worker = nullptr;
    std::vector<float> input, output;
    ExchangeRequest request;
  };

  void Finish(const Status& status) {
    CheckOk(status);
    std::lock_guard<std::mutex> lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
  }

  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t left_ = 0;  // guarded
};

}  // namespace byteps
