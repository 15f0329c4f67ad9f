// DrawnJob: who is in a SimulatedJob, what its workers exchange, and what is to come of it.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "cc/base/coded_rows.h"
#include "cc/base/job.h"
#include "cc/base/tensor_description.h"
#include "cc/simulation/testing/event_schedule.h"

namespace byteps {

struct DrawnJob {
  static constexpr int64_t kMillisecond = 1000000;

  struct Tensor {
    std::string name;
    ExchangeKind kind = ExchangeKind::kSum;
    int64_t elements = 0;
    int32_t root = 0;
    bool is_on_gpu = false;
    DType dtype = DType::kFloat32;
    std::string codec;
    int32_t backup_workers = 0;  // of an average
  };

  DrawnJob(uint64_t seed, bool has_gpus, EventSchedule* schedule)
      : overlaps(has_gpus && seed % 4 == 1), schedule_(*schedule) {
    DrawEngine();
    if (has_gpus) DrawHosts();
    DrawTensors(seed, has_gpus);
    DrawRounds(seed);
    if (seed % 11 == 6 && !has_gpus) DrawForms();
    pause_ns = static_cast<int64_t>(Draw(Chance(0.3) ? 20000 : 500)) * (kMillisecond / 1000);
  }
  static EngineOptions DrawOptions(EventSchedule* schedule) {
    EngineOptions options;
    options.flow.part_bytes = 1024 << schedule->Draw(3);
    options.flow.credit_bytes = options.flow.part_bytes * (1 + schedule->Draw(8));
    options.timeouts.heartbeat_interval = 0.5;
    options.timeouts.heartbeat_timeout = 5;
    options.timeouts.connect_timeout = 20;
    options.timeouts.operation_timeout = 120;
    options.timeouts.shutdown_timeout = 10;
    options.network.connections_per_server = 1 + static_cast<int32_t>(schedule->Draw(3));
    options.deterministic = schedule->Chance(0.3);
    return options;
  }

  // The first of `rows` rows that go to worker `to` in an alltoall.
  int64_t SplitBegin(int64_t rows, int to) const {
    return rows * to * to / (job.num_workers() * job.num_workers());
  }

  static float Value(int rank, int round, const Tensor& tensor, size_t i) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 101 + 1) + 1000 * round +
                              static_cast<int>(tensor.name.back()));
  }

  // Of one round of all tensors.
  uint64_t ResultBytes() const {
    uint64_t bytes = 0;
    for (const Tensor& tensor : tensors) {
      const bool is_of_all = tensor.kind == ExchangeKind::kGather ||
                             tensor.kind == ExchangeKind::kAllToAll ||
                             tensor.kind == ExchangeKind::kRowSum;
      const int64_t elements =
          is_of_all ? job.num_workers() * (tensor.elements + job.num_workers()) : tensor.elements;
      bytes += elements * (tensor.dtype == DType::kFloat32 ? sizeof(float) : sizeof(int64_t));
    }
    return bytes;
  }

  // Which row of a sum of rows a worker's row is. Some are of several workers.
  static int64_t RowIndex(int rank, int64_t row) { return row * (rank + 1); }

  static std::vector<uint8_t> Coded(const std::map<int64_t, float>& values) {
    std::vector<int64_t> indices;
    std::vector<float> rows;
    for (const auto& [index, value] : values) {
      indices.push_back(index);
      rows.push_back(value);
    }
    std::vector<uint8_t> coded = EncodeRowIndices(indices);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(rows.data());
    coded.insert(coded.end(), bytes, bytes + rows.size() * sizeof(float));
    return coded;
  }

  std::vector<uint8_t> ExpectedSum(const Tensor& tensor, int round) const {
    std::map<int64_t, float> sums;
    for (int from = 0; from < job.num_workers(); ++from) {
      for (int64_t i = 0; i < tensor.elements + from; ++i)
        sums[RowIndex(from, i)] += Value(from, round, tensor, i);
    }
    return Coded(sums);
  }

  std::vector<float> Expected(const Tensor& tensor, int round, int rank) const {
    std::vector<float> expected;
    if (tensor.kind == ExchangeKind::kAllToAll) {
      for (int from = 0; from < job.num_workers(); ++from) {
        const int64_t rows = tensor.elements + from;
        for (int64_t i = SplitBegin(rows, rank); i < SplitBegin(rows, rank + 1); ++i)
          expected.push_back(Value(from, round, tensor, i));
      }
      return expected;
    }
    if (tensor.kind == ExchangeKind::kGather) {
      for (int from = 0; from < job.num_workers(); ++from) {
        for (int64_t i = 0; i < tensor.elements + from; ++i)
          expected.push_back(Value(from, round, tensor, i));
      }
      return expected;
    }
    expected.assign(tensor.elements, 0);
    for (int from = 0; from < job.num_workers(); ++from) {
      if (tensor.kind == ExchangeKind::kBroadcast && from != tensor.root) continue;
      for (int64_t i = 0; i < tensor.elements; ++i) expected[i] += Value(from, round, tensor, i);
    }
    return expected;
  }

  JobDescription job;
  std::vector<Tensor> tensors;
  int rounds = 0;
  std::vector<std::vector<int>> giver_up;  // by round and tensor; -1: nobody
  int leaver = -1, left_round = -1;        // nobody leaves
  int64_t pause_ns = 0;
  // Three rounds at a time: the GPUs are at work with the first when the others begin.
  const bool overlaps = false;

 private:
  uint64_t Draw(uint64_t most) { return schedule_.Draw(most); }
  bool Chance(double probability) { return schedule_.Chance(probability); }

  void DrawEngine() {
    job.job_id = "simulation";
    job.options = DrawOptions(&schedule_);
    job.worker_hosts.assign(2 + Draw(1), "host");
    job.server_hosts.assign(1 + Draw(2), "host");
    if (Chance(0.5)) job.server_hosts.assign(job.server_hosts.size(), "servers");
  }

  void DrawTensors(uint64_t seed, bool has_gpus) {
    const size_t count = 1 + Draw(3);
    for (size_t i = 0; i < count; ++i) {
      Tensor tensor;
      tensor.name = "t" + std::to_string(i);
      if (Chance(0.2)) tensor.kind = ExchangeKind::kBroadcast;
      // One part, which may be longer than all credit.
      else if (Chance(0.2))
        tensor.kind = seed % 7 == 2 ? ExchangeKind::kRowSum : ExchangeKind::kGather;
      else if (seed % 3 == 1 && Chance(0.3))
        tensor.kind = ExchangeKind::kAllToAll;
      tensor.elements = static_cast<int64_t>(Draw(Chance(0.3) ? 20000 : 2000));
      tensor.root = static_cast<int32_t>(Draw(job.worker_hosts.size() - 1));
      const bool is_of_host =
          tensor.kind == ExchangeKind::kAllToAll || tensor.kind == ExchangeKind::kRowSum;
      tensor.is_on_gpu = has_gpus && !is_of_host && Chance(0.9);
      if (overlaps) MakeOverlap(&tensor);
      tensors.push_back(tensor);
    }
  }

  void DrawRounds(uint64_t seed) {
    const size_t count = tensors.size();
    rounds = 3 + static_cast<int>(Draw(7));
    giver_up.assign(rounds, std::vector<int>(count, -1));
    for (int round = 1; round < rounds; ++round) {
      for (size_t i = 0; i < count; ++i) {
        if (tensors[i].kind == ExchangeKind::kSum && Chance(round + 1 == rounds ? 0.25 : 0.1))
          giver_up[round][i] = static_cast<int>(Draw(job.worker_hosts.size() - 1));
      }
    }
    if (seed % 5 == 2) GiveUpFirstRounds();
    if (seed % 7 == 4 && !overlaps) DrawLeaver();
  }

  // In some seeds only: what is drawn in the others stays what it was.
  void DrawForms() {
    static const std::string kCodecs[] = {"bf16", "int8", "fp8",     "int4",
                                          "auto", "topk", "randomk", "onebit"};
    static const DType kDTypes[] = {DType::kFloat64, DType::kInt32, DType::kInt64};
    job.options.compression.min_compress_bytes = 0;
    const bool may_have_backups = leaver < 0 && Chance(0.5);
    if (may_have_backups) job.options.deterministic = false;
    for (size_t i = 0; i < tensors.size(); ++i) {
      Tensor& tensor = tensors[i];
      const bool is_sum = tensor.kind == ExchangeKind::kSum;
      if (is_sum && may_have_backups && Chance(0.5)) {
        tensor.backup_workers = 1;
        for (std::vector<int>& round : giver_up) round[i] = -1;  // it may have ended without that
      } else if (is_sum && Chance(0.6)) {
        tensor.codec = kCodecs[Draw(std::size(kCodecs) - 1)];
      } else if (is_sum || tensor.kind == ExchangeKind::kBroadcast) {
        tensor.dtype = kDTypes[Draw(std::size(kDTypes) - 1)];
      }
    }
  }

  // Several workers on a host, or one, each with a GPU.
  void DrawHosts() {
    static const std::vector<std::string> kHosts[] = {
        {"a", "a"}, {"a", "a", "a"}, {"a", "a", "b"},      {"a", "b", "b"},
        {"a", "b"}, {"a", "b", "a"}, {"a", "b", "a", "b"}, {"a", "a", "a", "b"}};
    job.worker_hosts = kHosts[Draw(std::size(kHosts) - 1)];
    job.gpus_share_hosts = Chance(0.9);
    if (!overlaps) return;
    job.worker_hosts.assign(2 + Draw(1), "a");
    job.gpus_share_hosts = true;
  }

  // A stream can wait for what comes of it.
  static void MakeOverlap(Tensor* tensor) {
    tensor->is_on_gpu = true;
    if (tensor->kind != ExchangeKind::kBroadcast) tensor->kind = ExchangeKind::kSum;
  }

  // One worker leaves in the middle of a round, the others by what they get then; all go on.
  void DrawLeaver() {
    leaver = static_cast<int>(Draw(job.worker_hosts.size() - 1));
    left_round = static_cast<int>(Draw(rounds - 1));
    giver_up[left_round].assign(tensors.size(), -1);
  }

  // Before anything is placed under the names, for all that their worker knows. In some seeds only:
  // what is drawn in the others stays what it was.
  void GiveUpFirstRounds() {
    for (int round = 0; round < 2; ++round) {
      for (int& rank : giver_up[round]) {
        if (Chance(0.4)) rank = static_cast<int>(Draw(job.worker_hosts.size() - 1));
      }
    }
  }

  EventSchedule& schedule_;
};

}  // namespace byteps
