// For tests: whole jobs over real sockets, a coordinator, servers and workers, all in this process
// so that the sanitizers see every side of a race.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/testing/on_threads.h"
#include "cc/codec/testing/expected_sum.h"
#include "cc/coordinator/coordinator.h"
#include "cc/server/server.h"
#include "cc/worker/worker.h"

namespace byteps {

inline constexpr auto kTestTimeout = std::chrono::seconds(60);

// An exchange of floats that a test waits for.
class Pending {
 public:
  explicit Pending(std::vector<float> values)
      : input(std::move(values)), output(input.size(), -1) {}

  Status Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, kTestTimeout, [this] { return calls_ > 0; })) {
      return Internal("the exchange did not end");
    }
    return status_;
  }
  void Finish(const Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    ++calls_;
    changed_.notify_all();
  }
  int calls() {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }

  const std::vector<float> input;
  std::vector<float> output;
  std::vector<int64_t> rows;  // of a gather or alltoall

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  Status status_;
};

inline ExchangeRequest Request(const std::string& name, const std::shared_ptr<Pending>& pending,
                               ExchangeKind kind = ExchangeKind::kSum) {
  ExchangeRequest request;
  request.tensor.name = name;
  request.tensor.kind = kind;
  request.tensor.shape = {static_cast<int64_t>(pending->input.size())};
  request.input = pending->input.data();
  request.output = pending->output.data();
  if (request.tensor.HasOwnRows()) {
    request.tensor.shape = {-1};
    request.gather_rows = pending->input.size();
    request.allocate_output = [raw = pending.get()](const std::vector<int64_t>& rows) -> void* {
      raw->rows = rows;
      size_t total = 1;  // never null, also for no rows
      for (const int64_t count : rows) total += count;
      raw->output.resize(total);
      return raw->output.data();
    };
  }
  request.keep_alive = pending;
  request.done = [raw = pending.get()](const Status& status) { raw->Finish(status); };
  return request;
}

inline std::shared_ptr<Pending> Send(Worker& worker, const std::string& name,
                                     std::vector<float> values,
                                     ExchangeKind kind = ExchangeKind::kSum) {
  auto pending = std::make_shared<Pending>(std::move(values));
  worker.Enqueue(Request(name, pending, kind));
  return pending;
}

class Job {
 public:
  // `by_way_of`: where processes find the one that listens at an endpoint; empty: there.
  using ByWayOf = std::function<Endpoint(const Endpoint&)>;

  Job(
      int32_t workers, int32_t servers, EngineOptions options = {}, bool on_one_host = true,
      const ByWayOf& by_way_of = [](const Endpoint& endpoint) { return endpoint; },
      uint64_t min_compress_bytes = 0) {
    options.timeouts.heartbeat_interval = 0.1;
    options.compression.min_compress_bytes = min_compress_bytes;
    coordinator_ = std::make_unique<Coordinator>(options);
    Check(coordinator_->Listen("127.0.0.1", 0));
    description_.job_id = "job-test";
    description_.options = options;
    description_.coordinator_endpoint = by_way_of(coordinator_->endpoint());
    for (int32_t rank = 0; rank < workers; ++rank)
      description_.worker_hosts.push_back(on_one_host ? "host" : "host" + std::to_string(rank));
    description_.server_hosts.assign(servers, "host");
    for (int32_t rank = 0; rank < servers; ++rank) {
      servers_.push_back(std::make_unique<Server>(options));
      Check(servers_.back()->Listen("127.0.0.1", 0));
      description_.server_endpoints.push_back(by_way_of(servers_.back()->endpoint()));
    }
    Check(coordinator_->Start(description_));
    for (int32_t rank = 0; rank < servers; ++rank) Check(servers_[rank]->Start(description_, rank));
    for (int32_t rank = 0; rank < workers; ++rank) {
      workers_.push_back(std::make_unique<Worker>(description_, rank));
      Check(workers_.back()->Start());
    }
  }

  // Runs `body` once per worker, each on a thread of its own.
  template <typename Body>
  void OnEachWorker(Body body) {
    OnThreads(num_workers(), [&](int32_t rank) { body(*workers_[rank], rank); });
  }

  Worker& worker(int32_t rank) { return *workers_[rank]; }
  Server& server(int32_t rank) { return *servers_[rank]; }
  Coordinator& coordinator() { return *coordinator_; }
  int32_t num_workers() const { return static_cast<int32_t>(workers_.size()); }

 private:
  static void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

  // Workers end first, as in a real job.
  JobDescription description_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// What worker `rank` sends as element `i`: exact in f32 for all that is summed here.
inline float Value(int rank, size_t i) {
  return static_cast<float>((rank + 1) * static_cast<int>(i % 101 + 1));
}

inline std::vector<float> Values(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = Value(rank, i);
  return values;
}

inline void ExpectSum(const std::vector<float>& result, int workers, size_t count) {
  ASSERT_EQ(result.size(), count);
  for (size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int rank = 0; rank < workers; ++rank) expected += Value(rank, i);
    ASSERT_EQ(result[i], expected) << "element " << i;
  }
}

// Drawn, printed, and taken from the environment to replay it.
inline uint64_t Seed() {
  const char* const given = std::getenv("BYTEPS_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device()();
  std::cout << "BYTEPS_TEST_SEED=" << seed << std::endl;
  return seed;
}

// Draws whole numbers from 0 to `most`, from Seed(). Not thread-safe.
class Draw {
 public:
  uint64_t operator()(uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(0, most)(random_);
  }

 private:
  std::mt19937_64 random_{Seed()};
};

// How often a test is to do something, if this variable says so.
inline std::optional<int> Asked(const char* variable) {
  const char* const asked = std::getenv(variable);
  if (asked == nullptr) return std::nullopt;
  return std::atoi(asked);
}

// The request of a tensor that is compressed, whose name is also its codec's.
inline std::shared_ptr<Pending> SendCompressed(Worker& worker, const std::string& codec,
                                               std::vector<float> values) {
  auto pending = std::make_shared<Pending>(std::move(values));
  ExchangeRequest request = Request(codec, pending);
  request.tensor.codec = codec;
  worker.Enqueue(std::move(request));
  return pending;
}

// Of one part. The elements that these codecs make of Values are few bits long, so that no order of
// contributions rounds their sum.
inline void ExpectCompressedSum(Pending* sum, const std::string& codec, int workers,
                                uint64_t round) {
  const Status status = sum->Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  std::vector<std::vector<float>> values;
  for (int from = 0; from < workers; ++from) values.push_back(Values(from, sum->input.size()));
  PartSeed seed;
  seed.key = KeyOfName(codec);
  seed.round = round;
  ASSERT_EQ(sum->output, ExpectedSum(codec, values, seed)) << codec << ", round " << round;
}

// Sums, some of them compressed, a broadcast and a gather in each round, exactly, and a tensor that
// nobody knew, so that the coordinator has something to say.
inline void ExchangeRound(Worker& worker, int rank, int workers, int round) {
  const std::vector<size_t> counts = {0, 1, 8192, 8193, 60000};
  std::vector<std::shared_ptr<Pending>> sums;
  for (size_t i = 0; i < counts.size(); ++i)
    sums.push_back(Send(worker, "sum" + std::to_string(i), Values(rank + round % 3, counts[i])));
  const std::vector<std::string> codecs = {"int4", "int8", "int8:stochastic=1"};
  std::vector<std::shared_ptr<Pending>> compressed;
  for (const std::string& codec : codecs)
    compressed.push_back(SendCompressed(worker, codec, Values(rank, 4000)));
  const auto fresh = Send(worker, "round" + std::to_string(round % 500), Values(rank, 100));
  auto weights =
      std::make_shared<Pending>(rank == 1 ? Values(round % 7, 20000) : std::vector<float>(20000));
  ExchangeRequest broadcast = Request("weights", weights, ExchangeKind::kBroadcast);
  broadcast.tensor.root_rank = 1;
  worker.Enqueue(std::move(broadcast));
  const auto rows = Send(worker, "rows", Values(rank, 3000 + rank), ExchangeKind::kGather);
  for (size_t i = 0; i < counts.size(); ++i) {
    const Status status = sums[i]->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t k = 0; k < counts[i]; ++k) {
      float expected = 0;
      for (int from = 0; from < workers; ++from) expected += Value(from + round % 3, k);
      ASSERT_EQ(sums[i]->output[k], expected) << "round " << round << ", element " << k;
    }
  }
  for (size_t i = 0; i < codecs.size(); ++i)
    ExpectCompressedSum(compressed[i].get(), codecs[i], workers, round);
  ASSERT_TRUE(fresh->Wait().ok());
  ExpectSum(fresh->output, workers, 100);
  ASSERT_TRUE(weights->Wait().ok());
  ASSERT_EQ(weights->output, Values(round % 7, 20000));
  const Status status = rows->Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  std::vector<float> expected;
  for (int from = 0; from < workers; ++from) {
    const std::vector<float> values = Values(from, 3000 + from);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  rows->output.resize(expected.size());
  ASSERT_EQ(rows->output, expected);
}

}  // namespace byteps
