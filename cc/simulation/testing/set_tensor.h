// SetTensor: a tensor that some workers of a SimulatedJob exchange, a process set (base/members.h)
// or all: what each of them gives in a round, and what is to come of it.
//
// All kinds that have rounds, dtypes and codecs. The numbers are small and whole, so that sums of
// any order have the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/coded_rows.h"
#include "cc/base/members.h"
#include "cc/base/tensor_description.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/tensor_values.h"

namespace byteps {

struct SetTensor {
  using Ranks = std::vector<int32_t>;  // ascending

  // "workers{0,2-3}/" of these.
  static std::string PrefixOf(const Ranks& ranks) {
    std::string list;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const size_t first = i;
      while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
      list += (list.empty() ? "" : ",") + std::to_string(ranks[first]);
      if (i > first) list += "-" + std::to_string(ranks[i]);
    }
    return "workers{" + list + "}/";
  }

  // `number`: of all tensors of its program.
  static SetTensor Drawn(EventSchedule* schedule, size_t number, int32_t num_workers,
                         double is_of_set) {
    SetTensor tensor;
    tensor.number = number;
    tensor.description.name = "t" + std::to_string(number);
    if (schedule->Chance(is_of_set)) tensor.DrawMembers(schedule, num_workers);
    const Members members = Members::Of(tensor.description.name);
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      if (members.Contain(rank)) tensor.members.push_back(rank);
    }
    tensor.DrawKind(schedule);
    return tensor;
  }

  // The same of all workers of another job.
  SetTensor OfJob(int32_t num_workers) const {
    SetTensor tensor = *this;
    tensor.members.clear();
    for (int32_t rank = 0; rank < num_workers; ++rank) tensor.members.push_back(rank);
    return tensor;
  }

  const std::string& name() const { return description.name; }
  bool is_of(int32_t rank) const {
    return std::binary_search(members.begin(), members.end(), rank);
  }
  // Whether rounds end without those who have joined.
  bool IsSum() const {
    return description.kind == ExchangeKind::kSum || description.kind == ExchangeKind::kRowSum;
  }

  bool CanBeOnGpu() const {
    return description.dtype == DType::kFloat32 && description.kind != ExchangeKind::kAllToAll &&
           description.kind != ExchangeKind::kRowSum;
  }

  // What a worker gives, each with other numbers in each round; of a sum of rows without indices.
  std::vector<float> Given(int64_t round, int32_t rank) const {
    std::vector<float> given(RowsOf(round, rank) * width);
    for (size_t i = 0; i < given.size(); ++i) given[i] = Value(round, rank, i);
    return given;
  }
  int64_t RowsOf(int64_t round, int32_t rank) const {
    if (!description.HasOwnRows()) return rows;
    const uint64_t drawn = Mixed({static_cast<uint64_t>(round), static_cast<uint64_t>(rank), 1});
    return drawn % 5 == 0 ? 0 : static_cast<int64_t>(drawn / 5 % (rows + 1));
  }
  std::vector<int64_t> Splits(int64_t round, int32_t rank) const {
    std::vector<int64_t> splits;
    const int64_t own = RowsOf(round, rank);
    for (size_t to = 0; to < members.size(); ++to)
      splits.push_back(SplitBegin(own, to + 1) - SplitBegin(own, to));
    return splits;
  }

  std::vector<uint8_t> ToBytes(const std::vector<float>& values) const {
    switch (description.dtype) {
      case DType::kFloat32: return BytesAs<float>(values);
      case DType::kUInt8: return BytesAs<uint8_t>(values);
      default: return BytesOf(description.dtype, values);
    }
  }
  // What a worker's exchange begins with.
  std::vector<uint8_t> Input(int64_t round, int32_t rank) const {
    const std::vector<float> given = Given(round, rank);
    if (description.kind != ExchangeKind::kRowSum) return ToBytes(given);
    Rows own;
    AddRows(round, rank, &own);
    return Coded(own, 1);
  }

  // What a worker gets, if these give something; with `row_counts` of a gather or an alltoall.
  std::vector<uint8_t> Expected(int64_t round, const Ranks& from, int32_t rank,
                                std::vector<int64_t>* row_counts) const {
    switch (description.kind) {
      case ExchangeKind::kRowSum: {
        Rows sum;
        for (const int32_t each : from) AddRows(round, each, &sum);
        return Coded(sum, Divisor());
      }
      case ExchangeKind::kGather:
      case ExchangeKind::kAllToAll: return ToBytes(Concatenated(round, rank, row_counts));
      case ExchangeKind::kBroadcast: return ToBytes(Given(round, description.root_rank));
      default: return ToBytes(Reduced(round, from));
    }
  }
  // Before it is rounded, if it is.
  std::vector<float> Reduced(int64_t round, const Ranks& from) const {
    std::vector<float> reduced = Given(round, from[0]);
    for (size_t i = 1; i < from.size(); ++i) {
      const std::vector<float> given = Given(round, from[i]);
      for (size_t at = 0; at < reduced.size(); ++at) reduced[at] = Combined(reduced[at], given[at]);
    }
    for (float& each : reduced) each /= static_cast<float>(Divisor());
    return reduced;
  }

  // Of one round, that of each worker if they are not the same.
  uint64_t ResultBytes() const {
    return description.HasOwnRows() ? RoundBytes() : rows * width * DTypeSize(description.dtype);
  }
  // Of all contributions, or of all results of one round.
  uint64_t RoundBytes() const {
    const uint64_t head = 16 * (rows + members.size());  // indices, counts
    return members.size() * (rows * width * DTypeSize(description.dtype) + head);
  }

  TensorDescription description;
  size_t number = 0;
  Ranks members;
  int64_t rows = 0, width = 1;  // rows: of a worker's own at most

 private:
  using Rows = std::map<int64_t, std::vector<float>>;  // by index

  void DrawMembers(EventSchedule* schedule, int32_t num_workers) {
    Ranks ranks;
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      if (schedule->Chance(0.6)) ranks.push_back(rank);
    }
    if (ranks.empty()) ranks.push_back(static_cast<int32_t>(schedule->Draw(num_workers - 1)));
    description.name = PrefixOf(ranks) + description.name;
  }

  void DrawKind(EventSchedule* schedule) {
    static constexpr ExchangeKind kKinds[] = {
        ExchangeKind::kSum,    ExchangeKind::kSum,       ExchangeKind::kSum,
        ExchangeKind::kMin,    ExchangeKind::kMax,       ExchangeKind::kProduct,
        ExchangeKind::kGather, ExchangeKind::kBroadcast, ExchangeKind::kAllToAll,
        ExchangeKind::kRowSum, ExchangeKind::kRowSum};
    static constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                                        DType::kInt64};
    static const std::string kCodecs[] = {"bf16", "int8", "fp8",     "int4",
                                          "auto", "topk", "randomk", "onebit"};
    description.kind = kKinds[schedule->Draw(std::size(kKinds) - 1)];
    description.dtype = kDTypes[schedule->Draw(std::size(kDTypes) - 1)];
    rows = static_cast<int64_t>(schedule->Draw(schedule->Chance(0.3) ? 4000 : 300));
    width = schedule->Chance(0.5) ? 1 : 1 + static_cast<int64_t>(schedule->Draw(6));
    if (description.kind == ExchangeKind::kBroadcast)
      description.root_rank = members[schedule->Draw(members.size() - 1)];
    if (description.kind == ExchangeKind::kSum && schedule->Chance(0.4)) {
      description.codec = kCodecs[schedule->Draw(std::size(kCodecs) - 1)];
      description.dtype = DType::kFloat32;
    }
    if (description.kind == ExchangeKind::kGather && schedule->Chance(0.4)) {
      description.codec = "int8";  // the rows have been encoded by the program
      description.dtype = DType::kUInt8;
    }
    description.average = IsSum() && description.dtype == DType::kFloat32 && schedule->Chance(0.3);
    description.shape = {rows, width};
    if (description.HasOwnRows()) description.shape[0] = -1;
  }

  int32_t Divisor() const { return description.average ? static_cast<int32_t>(members.size()) : 1; }

  uint64_t Mixed(std::initializer_list<uint64_t> of) const {
    uint64_t mixed = number + 1;
    for (const uint64_t each : of) {
      mixed = (mixed ^ each) * 0x9e3779b97f4a7c15;
      mixed ^= mixed >> 29;
    }
    return mixed >> 20;
  }

  float Value(int64_t round, int32_t rank, size_t i) const {
    const uint64_t drawn = Mixed({static_cast<uint64_t>(round), static_cast<uint64_t>(rank), 2, i});
    if (description.kind == ExchangeKind::kProduct) return static_cast<float>(1 + drawn % 7);
    if (description.dtype == DType::kUInt8) return static_cast<float>(drawn % 256);
    // Of one size, so that what a codec rounds away is small beside all of them.
    if (!description.codec.empty()) return static_cast<float>(50000 + drawn % 50000);
    return static_cast<float>(drawn % 100000);
  }

  float Combined(float one, float other) const {
    if (description.kind == ExchangeKind::kMin) return std::min(one, other);
    if (description.kind == ExchangeKind::kMax) return std::max(one, other);
    return description.kind == ExchangeKind::kProduct ? one * other : one + other;
  }

  // The first row, of so many, that goes to the member at place `to`.
  int64_t SplitBegin(int64_t own, size_t to) const {
    const auto count = static_cast<int64_t>(members.size()), place = static_cast<int64_t>(to);
    return own * place * place / (count * count);
  }

  std::vector<float> Concatenated(int64_t round, int32_t rank,
                                  std::vector<int64_t>* row_counts) const {
    const size_t place = std::lower_bound(members.begin(), members.end(), rank) - members.begin();
    std::vector<float> all;
    for (const int32_t from : members) {
      const std::vector<float> given = Given(round, from);
      const int64_t own = RowsOf(round, from);
      const bool is_split = description.kind == ExchangeKind::kAllToAll;
      const int64_t begin = is_split ? SplitBegin(own, place) : 0;
      const int64_t end = is_split ? SplitBegin(own, place + 1) : own;
      all.insert(all.end(), given.begin() + begin * width, given.begin() + end * width);
      row_counts->push_back(end - begin);
    }
    return all;
  }

  // Some are of several workers.
  void AddRows(int64_t round, int32_t rank, Rows* sum) const {
    const std::vector<float> given = Given(round, rank);
    for (int64_t row = 0; row < RowsOf(round, rank); ++row) {
      std::vector<float>& into = (*sum)[row * (1 + rank % 3)];
      into.resize(width, 0);
      for (int64_t i = 0; i < width; ++i) into[i] += given[row * width + i];
    }
  }
  std::vector<uint8_t> Coded(const Rows& from, int32_t divisor) const {
    std::vector<int64_t> indices;
    std::vector<float> values;
    for (const auto& [index, row] : from) {
      indices.push_back(index);
      for (const float each : row) values.push_back(each / static_cast<float>(divisor));
    }
    std::vector<uint8_t> coded = EncodeRowIndices(indices);
    const std::vector<uint8_t> bytes = ToBytes(values);
    coded.insert(coded.end(), bytes.begin(), bytes.end());
    return coded;
  }
};

}  // namespace byteps
