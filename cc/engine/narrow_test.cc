// Gradients that fit in 16 bits, in whole jobs over real sockets: fewer bytes, the same bits.
#include "cc/codec/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cc/engine/testing/compressed_sums.h"
#include "cc/engine/testing/cutting_proxy.h"
#include "cc/engine/testing/killable_job.h"

namespace byteps {
namespace {

// What a worker's float32 gradients have been cast up from; kRaw: nothing.
std::vector<float> CastUp(CodecId from, std::vector<float> values) {
  if (from == CodecId::kRaw) return values;
  const BlockCodec& codec = *NarrowForm(from);
  std::vector<uint8_t> bytes(codec.EncodedBytes(values.size()));
  codec.EncodeBlocks(values.data(), values.size(), 0, CounterRandom(0), bytes.data());
  codec.DecodeBlocks(bytes.data(), values.size(), DecodeMode::kStore, values.data());
  return values;
}

// With one of each kind of number that is special.
std::vector<float> Special(int rank, uint64_t round) {
  std::vector<float> values = Gradient(rank, round);
  if (round == 1) values[10] = std::numeric_limits<float>::quiet_NaN();  // travels as float32
  values[20] = std::numeric_limits<float>::infinity();
  values[30] = rank == 0 ? -std::numeric_limits<float>::infinity() : 1.0f;
  values[40] = -0.0f;
  values[50] = std::ldexp(1.0f, -133);  // the smallest of bfloat16
  return values;
}

// As over links of 1 Gbit/s; what sockets really carry here would end it.
EngineOptions NarrowOptions() {
  EngineOptions options = Options();
  options.compression.narrow = true;
  options.flow.link_bytes_per_second = 125'000'000;
  return options;
}

Job NewJob(int workers, int servers, EngineOptions options, bool narrow) {
  options.compression.narrow = narrow;
  return Job(workers, servers, options, /*on_one_host=*/false);
}

using Forms = std::vector<CodecId>;

constexpr CodecId kRaw = CodecId::kRaw, kBf16 = CodecId::kBFloat16, kFp16 = CodecId::kFloat16;

// The sum of a round, to which each worker contributes what fits in one of `forms`.
std::vector<float> Round(Job& job, const std::string& name, const Forms& forms, uint64_t round,
                         bool average) {
  std::vector<std::shared_ptr<Pending>> sent;
  for (int rank = 0; rank < job.num_workers(); ++rank) {
    auto pending = std::make_shared<Pending>(CastUp(forms[rank], Special(rank, round)));
    ExchangeRequest request = Request(name, pending);
    request.tensor.average = average;
    job.worker(rank).Enqueue(std::move(request));
    sent.push_back(pending);
  }
  ExpectAllTheSame(sent);
  return sent[0]->output;
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST(NarrowTest, SumsHaveTheSameBits) {
  // In rank order three contributions give the same bits each time; two do so in any order.
  for (const bool in_rank_order : {true, false}) {
    EngineOptions options = NarrowOptions();
    options.deterministic = in_rank_order;
    const int workers = in_rank_order ? 3 : 2;
    Job with = NewJob(workers, 2, options, true), without = NewJob(workers, 2, options, false);
    for (const Forms& forms : {Forms{kBf16, kBf16, kBf16}, Forms{kFp16, kFp16, kFp16},
                               Forms{kBf16, kRaw, kFp16}, Forms{kRaw, kFp16, kBf16}}) {
      for (const bool average : {false, true}) {
        const std::string name = average ? "average" : "sum";
        for (uint64_t round = 0; round < 2; ++round) {
          SCOPED_TRACE(name + ", round " + std::to_string(round));
          ExpectSameBits(Round(with, name, forms, round, average),
                         Round(without, name, forms, round, average));
        }
      }
    }
  }
}

TEST(NarrowTest, OnlyWhatFitsTravelsInHalfTheBytes) {
  for (const bool narrow : {true, false}) {
    Job job = NewJob(2, 1, NarrowOptions(), narrow);
    for (const CodecId from : {kBf16, kFp16, kRaw}) {
      const uint64_t pushed = job.server(0).counters().pushed_bytes;
      const uint64_t replied = job.server(0).counters().replied_bytes;
      Round(job, "t", {from, from}, 0, false);
      const bool is_narrow = narrow && from != kRaw;
      EXPECT_EQ(job.server(0).counters().pushed_bytes - pushed,
                2 * kElements * (is_narrow ? 2 : 4));
      EXPECT_EQ(job.server(0).counters().replied_bytes - replied, 2 * kElements * 4);
    }
  }
}

// What has arrived of a push stays there; it goes on in the middle.
TEST(NarrowTest, ABrokenConnectionChangesNoBit) {
  constexpr int kCuts = 20;
  std::vector<std::unique_ptr<CuttingProxy>> proxies;
  const EngineOptions options = NarrowOptions();
  Job job(2, 2, options, /*on_one_host=*/false, [&](const Endpoint& endpoint) {
    proxies.push_back(std::make_unique<CuttingProxy>(endpoint, Seed() + proxies.size()));
    return proxies.back()->endpoint();
  });
  Job without = NewJob(2, 2, Options(), false);
  // The first one is the coordinator's.
  for (size_t i = 1; i < proxies.size(); ++i) proxies[i]->CutWithin(100 * 1000);
  const auto cuts = [&] {
    int sum = 0;
    for (const auto& proxy : proxies) sum += proxy->cuts();
    return sum;
  };
  for (uint64_t round = 0; cuts() < kCuts; ++round) {
    const Forms forms = round % 2 == 0 ? Forms{kBf16, kFp16} : Forms{kRaw, kBf16};
    ExpectSameBits(Round(job, "t", forms, round, false), Round(without, "t", forms, round, false));
    ASSERT_FALSE(HasFatalFailure());
  }
}

// Contributions are received whole, and added or dropped at once (protocol rule 13).
TEST(NarrowTest, WithBackupWorkers) {
  EngineOptions options = NarrowOptions();
  options.deterministic = false;
  Job job = NewJob(2, 1, options, true);
  const std::vector<float> both = CastUp(kBf16, Gradient(0, 0));
  for (uint64_t round = 0; round < 5; ++round) {
    std::vector<std::shared_ptr<Pending>> sent;
    for (int rank = 0; rank < 2; ++rank) {
      auto pending = std::make_shared<Pending>(both);
      ExchangeRequest request = Request("t", pending);
      request.tensor.average = true;
      request.tensor.backup_workers = 1;
      job.worker(rank).Enqueue(std::move(request));
      sent.push_back(pending);
    }
    ExpectAllTheSame(sent);
    ExpectSameBits(sent[0]->output, both);  // of one or of two
  }
}

TEST(NarrowTest, NotOverFastLinks) {
  EngineOptions options = NarrowOptions();
  options.flow.link_bytes_per_second = 1'250'000'000;
  Job job = NewJob(2, 1, options, true);
  Round(job, "t", {kBf16, kBf16}, 0, false);
  EXPECT_EQ(job.server(0).counters().pushed_bytes, 2 * kElements * 4);
}

TEST(NarrowTest, NotWithinAHost) {
  const EngineOptions options = NarrowOptions();
  Job job(2, 1, options, /*on_one_host=*/true);
  Round(job, "t", {kBf16, kBf16}, 0, false);
  EXPECT_EQ(job.server(0).counters().pushed_bytes, 2 * kElements * 4);
}

TEST(NarrowTest, ShortTensorsAreSentAsTheyAre) {
  const EngineOptions options = NarrowOptions();
  Job job(
      2, 1, options, /*on_one_host=*/false, [](const Endpoint& endpoint) { return endpoint; },
      /*min_compress_bytes=*/4 * kElements + 1);
  Round(job, "t", {kBf16, kBf16}, 0, false);
  EXPECT_EQ(job.server(0).counters().pushed_bytes, 2 * kElements * 4);
}

}  // namespace
}  // namespace byteps
