// Sums that travel compressed, in whole jobs over real sockets.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cc/codec/part_forms.h"
#include "cc/coordinator/state/placement.h"
#include "cc/engine/testing/compressed_sums.h"
#include "cc/engine/testing/killable_job.h"

namespace byteps {
namespace {

// The result of Gradient of all workers, part by part.
std::vector<float> Expected(const std::string& name, const std::string& codec, int workers,
                            uint64_t round, bool average) {
  TensorDescription tensor;
  tensor.shape = {static_cast<int64_t>(kElements)};
  std::vector<float> result;
  PartSeed seed;
  seed.key = KeyOfName(name);
  seed.round = round;
  for (const uint64_t elements : CutTensor(tensor, kTestPartBytes)) {
    std::vector<std::vector<float>> part;
    for (int rank = 0; rank < workers; ++rank) {
      const std::vector<float> values = Gradient(rank, round);
      const auto first = values.begin() + static_cast<int64_t>(result.size());
      part.emplace_back(first, first + static_cast<int64_t>(elements));
    }
    const std::vector<float> sum = ExpectedSum(InJob(codec, workers, average), part, seed, average);
    result.insert(result.end(), sum.begin(), sum.end());
    ++seed.part;
  }
  return result;
}

template <typename AnyJob>
void ExpectRound(AnyJob& job, const std::string& name, const std::string& codec, uint64_t round,
                 bool average = false) {
  std::vector<std::shared_ptr<Pending>> sent;
  for (int rank = 0; rank < job.num_workers(); ++rank)
    sent.push_back(SendAs(job.worker(rank), name, codec, Gradient(rank, round), average));
  ExpectAllTheSame(sent);
  const std::vector<float> expected = Expected(name, codec, job.num_workers(), round, average);
  ASSERT_EQ(std::memcmp(sent[0]->output.data(), expected.data(), kElements * sizeof(float)), 0)
      << codec << ", round " << round << ": " << sent[0]->output[0] << " instead of "
      << expected[0];
}

struct Form {
  int workers;
  int servers;
  bool on_one_host;  // payloads are read from the workers' memory
};

class CompressionTest : public ::testing::TestWithParam<Form> {};

TEST_P(CompressionTest, EveryWorkerHasTheBitsOfTheOracle) {
  const Form form = GetParam();
  Job job(form.workers, form.servers, Options(), form.on_one_host);
  for (const std::string& codec : SentCodecs()) {
    for (uint64_t round = 0; round < 3; ++round) {
      ExpectRound(job, "sum " + codec, codec, round);
      ExpectRound(job, "average " + codec, codec, round, /*average=*/true);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, CompressionTest,
                         ::testing::Values(Form{1, 1, false}, Form{2, 2, false}, Form{3, 2, false},
                                           Form{3, 2, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.workers) + "Workers" +
                                  std::to_string(info.param.servers) + "Servers" +
                                  (info.param.on_one_host ? "OnOneHost" : "");
                         });

TEST(CompressionTest, OnlyTheCompressedBytesTravel) {
  Job job(2, 1, Options(), /*on_one_host=*/false);
  struct Bytes {
    const char* codec;
    double up, down;
  };
  const std::vector<Bytes> codecs = {{"", 4, 4},
                                     {"bf16", 2, 2},
                                     {"int8", 1.0625, 1.0625},
                                     {"int4", 0.5625, 1.0625},
                                     {"onebit", 0.126, 1.0625},
                                     {"topk", 0.0507, 1.0625},
                                     {"randomk:ratio=0.1", 0.4, 1.0625},
                                     {"thc", 0.5085, 0.6484}};
  for (const auto& [codec, up, down] : codecs) {
    const uint64_t before = job.server(0).counters().pushed_bytes;
    const uint64_t replied_before = job.server(0).counters().replied_bytes;
    for (const auto& sent :
         {SendAs(job.worker(0), std::string("t") + codec, codec, Gradient(0, 0)),
          SendAs(job.worker(1), std::string("t") + codec, codec, Gradient(1, 0))})
      ASSERT_TRUE(sent->Wait().ok());
    const double pushed = static_cast<double>(job.server(0).counters().pushed_bytes - before);
    EXPECT_NEAR(pushed / (2 * kElements), up, 0.001) << codec;
    const double replied =
        static_cast<double>(job.server(0).counters().replied_bytes - replied_before);
    EXPECT_NEAR(replied / (2 * kElements), down, 0.001) << codec;
  }
}

// A server that dies takes sums with it; they are made again from the same bytes (protocol rule
// 15).
void LoseAServer(const EngineOptions& options, const std::string& codec) {
  for (const int rounds_before : {0, 1}) {
    KillableJob job(3, 2, options);
    uint64_t round = 0;
    for (; round < static_cast<uint64_t>(rounds_before); ++round)
      ExpectRound(job, "t", codec, round);
    const uint64_t reply = kFrameHeaderBytes + kTestPartBytes / 8;
    job.gate(0, 0).Admit(kAll, reply + reply / 2);  // in the middle of a reply
    job.gate(0, 1).Admit(20000, kAll);              // in the middle of a push
    job.gate(0, 2).Admit(kAll, 0);
    std::thread killer([&] {
      while (!job.gate(0, 1).is_shut()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      job.Kill(0);
    });
    ExpectRound(job, "t", codec, round++);
    killer.join();
    ExpectRound(job, "t", codec, round++);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
  }
}

TEST(CompressionTest, ALostServerChangesNoBit) { LoseAServer(Options(), "int4"); }

// Nor does the order in which contributions arrive, in a job that does not fix it.
TEST(CompressionTest, ALostServerAndAnyOrderChangeNoBitOfWholeNumbers) {
  EngineOptions options = Options();
  options.deterministic = false;
  LoseAServer(options, "thc");
}

TEST(CompressionTest, ShortTensorsAreSentAsTheyAre) {
  EngineOptions options;
  ASSERT_EQ(options.compression.min_compress_bytes, 64u * 1024);
  Job job(
      2, 1, Options(), /*on_one_host=*/false, [](const Endpoint& endpoint) { return endpoint; },
      /*min_compress_bytes=*/64 * 1024);
  for (const size_t elements : {size_t{16383}, size_t{16384}}) {
    std::vector<float> values(elements, 1.0f / 3);
    std::vector<std::shared_ptr<Pending>> sent;
    for (int rank = 0; rank < 2; ++rank)
      sent.push_back(SendAs(job.worker(rank), "t" + std::to_string(elements), "int4", values));
    ExpectAllTheSame(sent);
    EXPECT_EQ(sent[0]->output[0] == values[0] + values[0], elements == 16383);
  }
}

// Nothing is sent, so nothing is lost.
TEST(CompressionTest, AJobOfOneWorkerWithoutServersCompressesNothing) {
  JobDescription job;
  job.worker_hosts = {"host"};
  Worker worker(job, 0);
  ASSERT_TRUE(worker.Start().ok());
  const auto sent = SendAs(worker, "t", "int4", Gradient(0, 0));
  ASSERT_TRUE(sent->Wait().ok());
  EXPECT_EQ(sent->output, sent->input);
}

TEST(CompressionTest, WorkersThatDisagreeAllLearnWhoSentWhat) {
  Job job(3, 2, Options());
  const std::vector<std::string> codecs = {"int8", "int8", "fp8"};
  std::vector<std::shared_ptr<Pending>> sent;
  for (int rank = 0; rank < 3; ++rank)
    sent.push_back(SendAs(job.worker(rank), "dense/kernel", codecs[rank], Gradient(rank, 0)));
  for (const auto& pending : sent) {
    const Status status = pending->Wait();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    for (const char* expected :
         {"\"dense/kernel\"", "int8:block=32,stochastic=0", "fp8:block=128", "worker 2"})
      EXPECT_NE(status.message().find(expected), std::string::npos) << status.message();
  }
  // The next round goes on.
  ExpectRound(job, "dense/kernel", "int8", 1);
}

TEST(CompressionTest, WhatCannotBeCompressedIsRefused) {
  Job job(1, 1, Options());
  const auto refused = [&](const std::string& codec, DType dtype, ExchangeKind kind,
                           const std::string& expected) {
    auto pending = std::make_shared<Pending>(std::vector<float>(4));
    ExchangeRequest request = Request("t", pending, kind);
    request.tensor.codec = codec;
    request.tensor.dtype = dtype;
    job.worker(0).Enqueue(std::move(request));
    const Status status = pending->Wait();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    for (const std::string& text : {std::string("tensor \"t\""), codec, expected})
      EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  refused("zip", DType::kFloat32, ExchangeKind::kSum, "known: raw");
  refused("int8:block=7", DType::kFloat32, ExchangeKind::kSum, "a power of two");
  refused("int8", DType::kInt32, ExchangeKind::kSum, "int32[4] sum");
  refused("int8", DType::kFloat64, ExchangeKind::kSum, "float64[4] sum");
  refused("int8", DType::kFloat32, ExchangeKind::kMax, "float32[4] max");
  refused("int8", DType::kFloat32, ExchangeKind::kBroadcast, "broadcast");
  refused("int8", DType::kFloat32, ExchangeKind::kGather, "gather");
}

}  // namespace
}  // namespace byteps
