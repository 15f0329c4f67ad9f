// For tests: whole jobs of workers with GPUs. A coordinator, servers and the workers of several
// hosts are in this process, over real sockets. Everything runs twice: with GPUs, skipped where
// there are not enough, and with arithmetic for GPUs and NCCL, so that order and bookkeeping are
// tested everywhere.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/testing/on_threads.h"
#include "cc/coordinator/coordinator.h"
#include "cc/gpu/gpu_rank_device.h"
#include "cc/gpu/testing/test_gpus.h"
#include "cc/server/server.h"
#include "cc/staging/local_group.h"
#include "cc/staging/testing/cpu_rank_device.h"
#include "cc/van/rdma/testing/loopback_verbs.h"

namespace byteps {

inline constexpr auto kTestTimeout = std::chrono::seconds(30);

// Floats on a device.
class Values {
 public:
  Values(std::shared_ptr<GpuDevice> gpu, CudaStream* stream, size_t count)
      : stream_(stream), on_cpu_(gpu == nullptr ? count : 0) {
    if (gpu != nullptr) on_gpu_ = NewDeviceBuffer(gpu, std::max<size_t>(count * sizeof(float), 1));
    count_ = count;
  }
  void Set(const std::vector<float>& values) {
    ASSERT_EQ(values.size(), count_);
    if (on_gpu_ == nullptr) {
      on_cpu_ = values;
    } else if (count_ > 0) {
      std::vector<uint8_t> bytes(count_ * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      Upload(bytes, *on_gpu_, stream_);
    }
  }
  std::vector<float> Get() const {
    if (on_gpu_ == nullptr) return on_cpu_;
    std::vector<float> values(count_);
    const std::vector<uint8_t> bytes = Download(*on_gpu_, stream_);
    if (count_ > 0) std::memcpy(values.data(), bytes.data(), count_ * sizeof(float));
    return values;
  }
  void* pointer() { return on_gpu_ != nullptr ? on_gpu_->pointer() : on_cpu_.data(); }

 private:
  CudaStream* const stream_;
  std::vector<float> on_cpu_;
  std::unique_ptr<DeviceBuffer> on_gpu_;
  size_t count_ = 0;
};

struct Sent {
  std::unique_ptr<Values> input;
  std::unique_ptr<Values> output;
  std::promise<Status> ended;
  std::promise<DeviceEvent> on_submitted;

  DeviceEvent event;  // that has come

  // Null if it does not come.
  DeviceEvent WaitForEvent() {
    std::future<DeviceEvent> come = on_submitted.get_future();
    if (come.wait_for(kTestTimeout) == std::future_status::ready) event = come.get();
    return event;
  }
  Status Wait() {
    std::future<Status> end = ended.get_future();
    if (end.wait_for(kTestTimeout) != std::future_status::ready) return Internal("did not end");
    return end.get();
  }
};

struct Rank {
  std::shared_ptr<GpuDevice> gpu;  // null: arithmetic
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<Worker> worker;
  std::shared_ptr<LocalGroup> group;
  CpuRankDevice* cpu_device = nullptr;

  CudaStreamHandle stream_handle() const { return stream != nullptr ? stream->handle() : nullptr; }
  std::unique_ptr<Values> NewValues(size_t count) const {
    return std::make_unique<Values>(gpu, stream.get(), count);
  }

  std::shared_ptr<Sent> Send(const TensorDescription& tensor, const std::vector<float>& values) {
    auto sent = std::make_shared<Sent>();
    sent->input = NewValues(values.size());
    sent->output = NewValues(values.size());
    sent->input->Set(values);
    Send(tensor, sent);
    return sent;
  }
  void Send(const TensorDescription& tensor, const std::shared_ptr<Sent>& sent) {
    ExchangeRequest request;
    request.tensor = tensor;
    request.input = sent->input->pointer();
    request.output = sent->output->pointer();
    request.done = [sent](const Status& status) { sent->ended.set_value(status); };
    group->Enqueue(stream_handle(), std::move(request));
  }

  // In place; reports when it is submitted.
  std::shared_ptr<Sent> SendAhead(const TensorDescription& tensor,
                                  const std::vector<float>& values) {
    auto sent = std::make_shared<Sent>();
    sent->input = NewValues(values.size());
    sent->input->Set(values);
    ExchangeRequest request;
    request.tensor = tensor;
    request.input = request.output = sent->input->pointer();
    request.done = [sent](const Status& status) { sent->ended.set_value(status); };
    group->Enqueue(stream_handle(), std::move(request),
                   [sent](const DeviceEvent& end) { sent->on_submitted.set_value(end); });
    return sent;
  }
};

inline TensorDescription Tensor(const std::string& name, int64_t count,
                                ExchangeKind kind = ExchangeKind::kSum) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.shape = {count};
  tensor.kind = kind;
  return tensor;
}

// A job whose workers have GPUs, or arithmetic for them.
class LocalGroupJob : public ::testing::Test {
 protected:
  explicit LocalGroupJob(bool uses_gpus) : uses_gpus_(uses_gpus) {
    verbs::ReplaceSystemVerbs(verbs_.table());
  }
  ~LocalGroupJob() override { verbs::ReplaceSystemVerbs(nullptr); }

  void StartJob(const std::vector<std::string>& hosts, EngineOptions options = {},
                bool gpus_share_hosts = true) {
    if (uses_gpus_) {
      // NCCL wants a GPU for each rank of a host.
      std::map<std::string, int> ranks;
      int most = 0;
      for (const std::string& host : hosts) most = std::max(most, ++ranks[host]);
      const std::string missing = MissingGpus(most);
      if (!missing.empty()) GTEST_SKIP() << missing;
      const Nccl* nccl = nullptr;
      const Status status = Nccl::Get(&nccl);
      if (!status.ok()) GTEST_SKIP() << status.message();
    }
    if (options.flow.part_bytes == 0) options.flow.part_bytes = 4096;
    options.timeouts.heartbeat_interval = 0.2;
    job_.job_id = "group-test";
    job_.options = options;
    job_.worker_hosts = hosts;
    job_.gpus_share_hosts = gpus_share_hosts;
    job_.server_hosts.assign(1 + others_.size(), "server");
    coordinator_ = std::make_unique<Coordinator>(options);
    Check(coordinator_->Listen("127.0.0.1", 0));
    job_.coordinator_endpoint = coordinator_->endpoint();
    server_ = std::make_unique<Server>(options);
    for (std::unique_ptr<Server>& other : others_) other = std::make_unique<Server>(options);
    std::vector<Server*> servers = {server_.get()};
    for (const std::unique_ptr<Server>& other : others_) servers.push_back(other.get());
    for (Server* server : servers) {
      Check(server->Listen("127.0.0.1", 0));
      job_.server_endpoints.push_back(server->endpoint());
    }
    Check(coordinator_->Start(job_));
    for (size_t rank = 0; rank < servers.size(); ++rank)
      Check(servers[rank]->Start(job_, static_cast<int32_t>(rank)));
    ranks_.resize(hosts.size());
    for (int32_t rank = 0; rank < size(); ++rank) StartRank(rank);
  }

  void StartRank(int32_t rank) {
    Rank& mine = ranks_[rank];
    mine.worker = std::make_unique<Worker>(job_, rank);
    Check(mine.worker->Start());
    if (rank != without_group_) StartGroup(rank);
  }

  void StartGroup(int32_t rank) {
    Rank& mine = ranks_[rank];
    std::shared_ptr<RankDevice> device;
    if (uses_gpus_) {
      const auto& hosts = job_.worker_hosts;
      const auto local_rank = std::count(hosts.begin(), hosts.begin() + rank, hosts[rank]);
      const bool are_enough = GpuDevice::Count() >= size();
      mine.gpu = OpenGpu(are_enough ? rank : static_cast<int32_t>(local_rank));
      mine.stream = NewStream(mine.gpu);
      Check(GpuRankDevice::Create(mine.gpu, PinnedPool::Create(PinnedMemoryOf(mine.gpu)), {},
                                  &device));
    } else {
      const auto cpu_device = std::make_shared<CpuRankDevice>();
      mine.cpu_device = cpu_device.get();
      if (!devices_encode_) cpu_device->EncodeNothing();
      if (rank == waits_for_nothing_) cpu_device->WaitForNothing();
      device = cpu_device;
    }
    Check(LocalGroup::Create(mine.worker.get(), std::move(device), &mine.group));
  }

  // Workers leave together, as in a real job.
  void TearDown() override {
    OnEachRank([](Rank& mine, int32_t) {
      if (mine.worker != nullptr) mine.worker->Stop();
    });
    for (Rank& rank : ranks_) rank.worker.reset();
    ranks_.clear();
  }

  // The devices that are arithmetic are busy until then.
  void ComputeUntil(const std::shared_future<void>& end) {
    if (uses_gpus_) return;
    for (Rank& rank : ranks_) rank.cpu_device->Compute([end] { end.wait(); });
  }

  // Each of 20 tensors, which all ranks send for ExpectSums.
  std::vector<std::shared_ptr<Sent>> SendTwenty(size_t count) {
    std::vector<std::shared_ptr<Sent>> sent;
    for (int tensor = 0; tensor < 20; ++tensor) {
      for (Rank& rank : ranks_) {
        const float value = static_cast<float>(tensor + (&rank - ranks_.data()));
        sent.push_back(
            rank.SendAhead(Tensor("ahead/" + std::to_string(tensor), static_cast<int64_t>(count)),
                           std::vector<float>(count, value)));
      }
    }
    return sent;
  }

  // The ranks' streams wait for the results from here on.
  void MakeStreamsWait(const std::vector<std::shared_ptr<Sent>>& sent) {
    for (size_t i = 0; i < sent.size(); ++i) MakeStreamWait(ranks_[i % ranks_.size()], *sent[i]);
  }
  static void MakeStreamWait(const Rank& rank, Sent& sent) {
    const DeviceEvent event = sent.WaitForEvent();
    ASSERT_NE(event, nullptr);
    Check(event->MakeStreamWait(rank.stream_handle()));
  }

  // Ranks have sent n, n + 1 and so on, for n = 0, 1 and so on.
  void ExpectSums(const std::vector<std::shared_ptr<Sent>>& sent, size_t count = 1000) {
    for (size_t i = 0; i < sent.size(); ++i) {
      const Status status = sent[i]->Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
      const size_t n = ranks_.size();
      const auto sum = static_cast<float>(n * (i / n) + n * (n - 1) / 2);
      EXPECT_EQ(sent[i]->input->Get(), std::vector<float>(count, sum));
    }
  }

  template <typename Body>
  void OnEachRank(Body body) {
    OnThreads(size(), [&](int32_t rank) { body(ranks_[rank], rank); });
  }

  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }
  static void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

  const bool uses_gpus_;
  LoopbackVerbs verbs_;         // where a job goes by RDMA
  int32_t without_group_ = -1;  // a worker that uses no GPU yet
  JobDescription job_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Server> server_;
  bool devices_encode_ = true;                   // of arithmetic
  int32_t waits_for_nothing_ = -1;               // a rank of arithmetic whose stream cannot wait
  std::vector<std::unique_ptr<Server>> others_;  // as many as there are to be besides that one
  std::vector<Rank> ranks_;
};

}  // namespace byteps
