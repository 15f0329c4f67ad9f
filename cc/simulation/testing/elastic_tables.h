// ElasticTables: what the workers of a simulated elastic job do with a table on the servers, as
// tf_byteps/tables/elastic_tables.py does it: they mark the point of each commit, and where they
// meet they go on from rank 0's, on servers that have kept the rows.
//
// Rows begin as 0, and each step takes from some of them numbers that follow from the epoch, the
// worker, the step and the row. Checked of each lookup: rows have exactly the changes of the steps
// that led to the worker's state. Where the workers meet, a server has them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/simulation/testing/table_copies.h"
#include "cc/worker/worker.h"

namespace byteps {

// Part of a worker's state.
struct ElasticRows {
  std::optional<TablePoint> point;  // null: they are new
  uint64_t made = 0;                // changes of each block
  std::vector<int64_t> values;      // what the rows must have, block by block
};

// A worker in an epoch of a job with so many servers.
struct TableSession {
  Worker* worker = nullptr;
  std::string what;  // begins a sentence
  uint32_t epoch = 0;
  int32_t rank = 0, num_workers = 1;
  int num_servers = 1;
  // Whether an exchange has ended well. If not, it may.
  std::function<bool(const std::string& what, const Status& status)> check;
};

class ElasticTables {
 public:
  // Both outlive it.
  ElasticTables(EventSchedule* schedule, SimulationOutcome* outcome)
      : schedule_(*schedule), outcome_(*outcome) {
    rows_ = 1 + static_cast<int64_t>(schedule_.Draw(12));
  }

  // Enough for all that a server has of it.
  static constexpr uint64_t kMostBytes = 8192;

  // Whether servers must have kept the rows of this state. They need not when a later epoch has
  // gone on from another one, or has committed, without this worker: it was cut off for long. Then
  // a job ends with a sentence, and is started again.
  bool MustBeKept(const ElasticRows& rows) const {
    if (!rows.point.has_value()) return true;
    return rows.point == resumed_ ||
           (rows.point->epoch >= resumed_in_ && rows.point->epoch >= committed_in_);
  }

  // Which server has each copy of each block: rank 0's plan, for all.
  bool Plan(const TableSession& own, const ElasticRows& rows, std::vector<int64_t>* homes) {
    const int copies = std::min(2, own.num_servers);
    std::map<int, std::string> kept;
    for (int server = 0; rows.point.has_value() && server < own.num_servers; ++server) {
      std::string answer;
      if (!AskServer(own, server, TableRequest::Kind::kKept, &answer)) return false;
      kept[NumberAt<int32_t>(answer, 0)] = answer;
    }
    for (int block = 0; block < own.num_servers; ++block) {
      std::vector<int64_t> of_block;
      for (const auto& [server, answer] : kept) {
        if (HasPoint(answer, block, *rows.point)) of_block.push_back(server);
      }
      if (of_block.empty() && rows.point.has_value()) {
        schedule_.Fail(own.what + "no server has block " + std::to_string(block) + " after " +
                       std::to_string(rows.point->number) + " changes in epoch " +
                       std::to_string(rows.point->epoch));
      }
      for (int copy = 0; copy < copies; ++copy) {
        const int64_t home = (block + copy) % own.num_servers;
        if (std::find(of_block.begin(), of_block.end(), home) == of_block.end())
          of_block.push_back(home);
      }
      homes->insert(homes->end(), of_block.begin(), of_block.begin() + copies);
    }
    return true;
  }

  bool Begin(const TableSession& own, const std::vector<int64_t>& homes, ElasticRows* rows) {
    const auto request = [&](int block) {
      TableSpec spec;
      spec.rows = rows_;
      spec.width = 1;
      spec.block = block;
      spec.num_blocks = own.num_servers;
      spec.name = "table";
      std::string point;
      if (rows->point.has_value()) {
        AppendNumber(rows->point->epoch, &point);
        AppendNumber(rows->point->number, &point);
      }
      return TableRequestBytes(
          point.empty() ? TableRequest::Kind::kMake : TableRequest::Kind::kResume, 0, {},
          point + EncodeTableSpec(spec));
    };
    if (!AskAll(own, homes, "a table's begin", request)) return false;
    if (rows->point.has_value()) ++outcome_.resumed_tables;
    rows->made = rows->point.has_value() ? rows->point->number : 1;
    if (!rows->point.has_value()) rows->values.assign(own.num_servers * rows_, 0);
    if (own.rank != 0) return Look(own, homes, *rows);
    resumed_ = rows->point;
    resumed_in_ = own.epoch;
    for (int server = 0; server < own.num_servers; ++server) {
      std::string answer;
      if (!AskServer(own, server, TableRequest::Kind::kDrop, &answer)) return false;
    }
    return Look(own, homes, *rows);
  }

  // `committed`: the point of the last commit, or the present one.
  bool Mark(const TableSession& own, const std::vector<int64_t>& homes,
            const std::optional<TablePoint>& committed, ElasticRows* rows) {
    const auto request = [&](int) {
      std::string least;
      AppendNumber(committed.has_value() ? committed->number : rows->made, &least);
      return TableRequestBytes(TableRequest::Kind::kMark, rows->made, {}, least);
    };
    if (committed.has_value() && committed->epoch == own.epoch) {
      committed_in_ = own.epoch;
      resumed_.reset();
    }
    if (!AskAll(own, homes, "a table's mark", request)) return false;
    rows->point = TablePoint{own.epoch, rows->made};
    return true;
  }

  bool Step(const TableSession& own, const std::vector<int64_t>& homes, int64_t step,
            ElasticRows* rows) {
    if (schedule_.Chance(0.3) && !Look(own, homes, *rows)) return false;
    const auto request = [&](int block) {
      std::vector<int64_t> indices;
      std::string values;
      for (int64_t row = 0; row < rows_; ++row) {
        const int64_t given = Given(own.epoch, own.rank, block, step, row);
        if (given == 0) continue;
        indices.push_back(row);
        AppendNumber(static_cast<float>(given), &values);
      }
      return TableRequestBytes(TableRequest::Kind::kUpdate, rows->made, indices, values, 1);
    };
    if (!AskAll(own, homes, "a table's change", request)) return false;
    ++rows->made;
    for (size_t i = 0; i < rows->values.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      for (int32_t rank = 0; rank < own.num_workers; ++rank)
        rows->values[i] -= Given(own.epoch, rank, static_cast<int>(row / rows_), step, row % rows_);
    }
    return true;
  }

 private:
  // What a worker takes from a row in a step; 0: it has not this row.
  static int64_t Given(uint32_t epoch, int32_t rank, int block, int64_t step, int64_t row) {
    if ((row + step + rank) % 3 == 0) return 0;
    return 1 + (epoch * 13 + rank * 7 + block * 5 + step * 3 + row) % 11;
  }

  static std::string NameOf(int block, int copy) {
    return "table/block " + std::to_string(block) + "/copy " + std::to_string(copy);
  }

  static bool HasPoint(const std::string& answer, int block, const TablePoint& point) {
    for (size_t at = sizeof(int32_t); at < answer.size();) {
      const bool is_this = NumberAt<uint64_t>(answer, at) == static_cast<uint64_t>(block);
      const auto points = NumberAt<uint64_t>(answer, at + 24);
      at += 32 + NumberAt<uint64_t>(answer, at + 16);
      for (uint64_t i = 0; i < points; ++i, at += 16) {
        const TablePoint kept = {NumberAt<uint64_t>(answer, at),
                                 NumberAt<uint64_t>(answer, at + 8)};
        if (is_this && kept == point) return true;
      }
    }
    return false;
  }

  bool AskServer(const TableSession& own, int server, TableRequest::Kind kind,
                 std::string* answer) {
    const auto asked =
        TableExchange::Begin(own.worker, "tables of server " + std::to_string(server), server,
                             TableRequestBytes(kind, 0, {}));
    ++outcome_.exchanges;
    const bool is_well = own.check("what a server has kept", asked->Await());
    *answer = asked->output;
    return is_well;
  }

  // All copies of all blocks; one of each is enough.
  bool AskAll(const TableSession& own, const std::vector<int64_t>& homes, const std::string& what,
              const std::function<std::string(int block)>& request) {
    const size_t copies = homes.size() / own.num_servers;
    std::vector<std::shared_ptr<TableExchange>> asked;
    for (size_t i = 0; i < homes.size(); ++i) {
      const int block = static_cast<int>(i / copies);
      asked.push_back(TableExchange::Begin(own.worker, NameOf(block, static_cast<int>(i % copies)),
                                           static_cast<int>(homes[i]), request(block)));
    }
    outcome_.exchanges += asked.size();
    Status failed;
    for (size_t i = 0; i < asked.size(); i += copies) {
      Status status = asked[i]->Await();
      if (copies == 2) {
        const Status other = asked[i + 1]->Await();
        if (other.ok()) status = other;
      }
      if (!status.ok() && failed.ok()) failed = status;
    }
    return own.check(what, failed);
  }

  bool Look(const TableSession& own, const std::vector<int64_t>& homes, const ElasticRows& rows) {
    std::vector<int64_t> indices(rows_);
    for (int64_t row = 0; row < rows_; ++row) indices[row] = row;
    const std::string request = TableRequestBytes(TableRequest::Kind::kRead, rows.made, indices);
    const int copies = static_cast<int>(homes.size()) / own.num_servers;
    for (int block = 0; block < own.num_servers; ++block) {
      std::shared_ptr<TableExchange> asked;
      for (int copy = 0; copy < copies && (asked == nullptr || !asked->Await().ok()); ++copy)
        asked = TableExchange::Begin(own.worker, NameOf(block, copy),
                                     static_cast<int>(homes[block * copies + copy]), request);
      ++outcome_.exchanges;
      if (!own.check("a lookup", asked->Await())) return false;
      for (int64_t row = 0; row < rows_; ++row) {
        const auto got = static_cast<int64_t>(NumberAt<float>(asked->output, row * sizeof(float)));
        const int64_t expected = rows.values[block * rows_ + row];
        if (got == expected) continue;
        schedule_.Fail(own.what + "row " + std::to_string(row) + " of block " +
                       std::to_string(block) + " has " + std::to_string(got) + " after " +
                       std::to_string(rows.made) + " changes, and not " + std::to_string(expected));
      }
    }
    return true;
  }

  EventSchedule& schedule_;
  SimulationOutcome& outcome_;
  int64_t rows_ = 0;  // of a block
  // From where the last rank 0 went on, until somebody committed after it, and in which epochs.
  std::optional<TablePoint> resumed_;
  uint32_t resumed_in_ = 0, committed_in_ = 0;
};

}  // namespace byteps
