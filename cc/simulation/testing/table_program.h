// TableProgram: what workers do with a table on the servers (ExchangeKind::kTable) in a
// SimulatedJob, as tf_byteps/tables/server_table.py does it.
//
// Rows begin as 0, and each change has gradients of some of them that follow from the worker, the
// change and the row. They are updated by SGD, or by Adam, which keeps two states for each row and
// whose rate depends on the step. Checked of each lookup: rows have exactly the changes that this
// worker has made. A server is killed whenever each block has all rows on another one: so no change
// and no lookup may fail. In the end the workers release the table, each at its own time: others
// look rows up until they do so, and then all copies are freed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/row_rule.h"
#include "cc/base/thread.h"
#include "cc/server/state/row_updates.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/job_program.h"
#include "cc/simulation/testing/program_exchange.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/simulation/testing/table_copies.h"
#include "cc/worker/worker.h"

namespace byteps {

class TableProgram final : public JobProgram {
 public:
  TableProgram(EventSchedule* schedule, int32_t num_workers, int32_t num_servers,
               SimulationOutcome* outcome)
      : schedule_(*schedule),
        num_workers_(num_workers),
        outcome_(*outcome),
        barrier_(schedule, num_workers),
        copies_(num_servers),
        made_(num_workers, std::vector<uint64_t>(num_servers, 0)),
        readable_(num_workers, std::vector<int>(num_servers, 0)),
        has_freed_(num_workers) {
    rows_ = 1 + static_cast<int64_t>(schedule_.Draw(19));
    changes_ = 4 + static_cast<int>(schedule_.Draw(40));
    pause_ns_ = static_cast<int64_t>(schedule_.Draw(60000)) * 1000;
    width_ = 1 + schedule_.Draw(3);
    if (rows_ % 2 == 0) {
      rule_.kind = RowRule::Kind::kAdam;
      rule_.numbers = {0.5, 0.75, 0.125};
    }
  }

  bool MayLose(int32_t server) const override { return copies_.MayLose(server); }
  void OnLose() override { copies_.OnLose(); }

  bool Run(Worker* worker, int32_t rank) override {
    Thread copier;
    if (rank == 0) copier = Thread("copier", [this, worker] { FillCopies(worker); });
    bool is_well = Train(worker, rank) && barrier_.Meet(rank) && LookSomeMore(worker, rank);
    if (rank == 0) {
      has_ended_ = true;
      copier.Join();
    }
    is_well = is_well && Release(worker, rank);
    if (!is_well) barrier_.Fail();
    return is_well;
  }

 private:
  int blocks() const { return static_cast<int>(made_[0].size()); }

  bool Train(Worker* worker, int32_t rank) {
    if (!Change(worker, rank, [this](int block) { return MakeBytes(block); })) return false;
    for (int change = 1; change <= changes_; ++change) {
      if (schedule_.Chance(0.7))
        schedule_.Sleep(static_cast<int64_t>(schedule_.Draw((rank + 1) * pause_ns_)));
      if (schedule_.Chance(0.5) && !Look(worker, rank)) return false;
      if (!Change(worker, rank,
                  [=](int block) { return UpdateBytes(rank, block, made_[rank][block]); }))
        return false;
    }
    return Look(worker, rank);
  }

  bool LookSomeMore(Worker* worker, int32_t rank) {
    for (uint64_t looks = schedule_.Draw(6); looks > 0; --looks) {
      schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(30)) * 1000000);
      if (!Look(worker, rank)) return false;
    }
    return true;
  }

  // As tf_byteps/tables/releasing.py does it: a server that gets a copy of a lost one knows of no
  // release. Until all have seen all copies freed, which is more than a worker waits for.
  bool Release(Worker* worker, int32_t rank) {
    const std::string request = TableRequestBytes(TableRequest::Kind::kRelease, 0, {});
    while (num_freed_ < num_workers_ && !barrier_.has_failed()) {
      std::vector<std::shared_ptr<TableExchange>> asked;
      for (int i = 0; i < 2 * blocks(); ++i)
        asked.push_back(TableExchange::Begin(worker, i / 2, i % 2, request));
      outcome_.exchanges += asked.size();
      bool is_freed = true;
      for (const auto& each : asked) {
        const Status status = each->Await();
        if (!status.ok() && failure_.empty())
          failure_ = "worker " + std::to_string(rank) + " releases the table: " + status.ToString();
        if (!status.ok()) return false;
        is_freed = is_freed && StateIn(each->output) == CopyState::kFreed;
      }
      if (is_freed && !has_freed_[rank]) {
        has_freed_[rank] = true;
        ++num_freed_;
        ++outcome_.freed_tables;
      }
      schedule_.Sleep(static_cast<int64_t>(1 + schedule_.Draw(50)) * 1000000);
    }
    return !barrier_.has_failed();
  }

  static CopyState StateIn(const std::string& answer) {
    return static_cast<CopyState>(NumberAt<uint32_t>(answer, sizeof(int32_t)));
  }

  // ---- requests

  std::string MakeBytes(int block) const {
    TableSpec spec;
    spec.rows = rows_;
    spec.width = width_;
    spec.block = block;
    spec.num_blocks = blocks();
    spec.rule = rule_;
    spec.name = "table";
    return TableRequestBytes(TableRequest::Kind::kMake, 0, {}, EncodeTableSpec(spec));
  }

  // A worker's gradient of the numbers of a row in a change; 0: it has not this row.
  static float Given(int32_t rank, int block, uint64_t change, int64_t row) {
    if ((static_cast<uint64_t>(row) + change + rank) % 3 == 0) return 0;
    return static_cast<float>(1 + (rank * 7 + block * 5 + change * 3 + row) % 11);
  }

  std::string UpdateBytes(int32_t rank, int block, uint64_t change) const {
    std::vector<int64_t> indices;
    std::string values;
    for (int64_t row = 0; row < rows_; ++row) {
      const float value = Given(rank, block, change, row);
      if (value == 0) continue;
      indices.push_back(row);
      for (uint64_t i = 0; i < width_; ++i) AppendNumber(value, &values);
    }
    return TableRequestBytes(TableRequest::Kind::kUpdate, change, indices, values, Rate(change));
  }

  double Rate(uint64_t change) const {
    return rule_.kind == RowRule::Kind::kSgd ? 1 : 1 + 1.0 / static_cast<double>(change);
  }

  // The first number of a row: all are equal.
  float Expected(int block, int64_t row, uint64_t changes) const {
    std::vector<float> number(1 + rule_.NumStates(), 0);
    for (uint64_t change = 1; change < changes; ++change) {
      float gradient = 0;
      for (int32_t rank = 0; rank < num_workers_; ++rank)
        gradient += Given(rank, block, change, row);
      if (gradient == 0) continue;  // nobody has the row
      RowUpdateOf<float>(rule_.kind)(rule_, static_cast<float>(Rate(change)), &gradient, 1,
                                     number.data());
    }
    return number[0];
  }

  // ---- what a worker does

  // Worker 0's requests and those of the thread that fills copies take turns.
  void Lock(int32_t rank) {
    while (rank == 0 && is_locked_) schedule_.Sleep(100000);
    if (rank == 0) is_locked_ = true;
  }
  void Unlock(int32_t rank) {
    if (rank == 0) is_locked_ = false;
  }

  bool Change(Worker* worker, int32_t rank, const std::function<std::string(int)>& request) {
    Lock(rank);
    std::vector<std::shared_ptr<TableExchange>> asked;
    for (int block = 0; block < blocks(); ++block) {
      for (int copy = 0; copy < 2; ++copy)
        asked.push_back(TableExchange::Begin(worker, block, copy, request(block)));
    }
    outcome_.exchanges += asked.size();
    for (int block = 0; block < blocks(); ++block) {
      Status statuses[2];
      for (int copy = 0; copy < 2; ++copy) {
        statuses[copy] = asked[2 * block + copy]->Await();
        if (!statuses[copy].ok() && rank == 0) copies_.NoteLost(block, copy);
      }
      if (statuses[0].ok() || statuses[1].ok()) {
        ++made_[rank][block];
      } else if (failure_.empty()) {
        failure_ = "worker " + std::to_string(rank) + ", block " + std::to_string(block) +
                   ", change " + std::to_string(made_[rank][block]) + ": " +
                   statuses[0].ToString() + "; " + statuses[1].ToString();
      }
    }
    Unlock(rank);
    return failure_.empty();
  }

  bool Look(Worker* worker, int32_t rank) {
    Lock(rank);
    const bool is_well = LookLocked(worker, rank);
    Unlock(rank);
    return is_well;
  }

  bool LookLocked(Worker* worker, int32_t rank) {
    std::vector<int64_t> indices(rows_);
    for (int64_t row = 0; row < rows_; ++row) indices[row] = row;
    for (int block = 0; block < blocks(); ++block) {
      const uint64_t made = made_[rank][block];
      const std::string request = TableRequestBytes(TableRequest::Kind::kRead, made, indices);
      int& copy = readable_[rank][block];
      std::shared_ptr<TableExchange> asked = TableExchange::Begin(worker, block, copy, request);
      if (!asked->Await().ok()) {
        copy = 1 - copy;
        asked = TableExchange::Begin(worker, block, copy, request);
      }
      const std::string what = "worker " + std::to_string(rank) + ", block " +
                               std::to_string(block) + " after " + std::to_string(made) +
                               " changes: ";
      const Status status = asked->Await();
      ++outcome_.exchanges;
      if (!status.ok()) {
        failure_ = what + status.ToString();
        return false;
      }
      for (int64_t i = 0; i < rows_ * static_cast<int64_t>(width_); ++i) {
        const int64_t row = i / static_cast<int64_t>(width_);
        const float got = NumberAt<float>(asked->output, i * sizeof(float));
        if (got == Expected(block, row, made)) continue;
        schedule_.Fail(what + "row " + std::to_string(row) + " has " + std::to_string(got) +
                       " and not " + std::to_string(Expected(block, row, made)));
        return true;
      }
    }
    return true;
  }

  void FillCopies(Worker* worker) {
    while (!has_ended_) {
      Lock(0);
      outcome_.filled_copies += copies_.Step(worker, made_[0]);
      Unlock(0);
      schedule_.Sleep(static_cast<int64_t>(1 + schedule_.Draw(20)) * 1000000);
    }
  }

  EventSchedule& schedule_;
  const int32_t num_workers_;
  SimulationOutcome& outcome_;
  int64_t rows_ = 0;  // of a block
  uint64_t width_ = 1;
  RowRule rule_;
  int changes_ = 0;
  int64_t pause_ns_ = 0;
  ProgramBarrier barrier_;
  TableCopies copies_;                       // worker 0's
  std::vector<std::vector<uint64_t>> made_;  // changes, by worker and block
  std::vector<std::vector<int>> readable_;   // which copy has answered, by worker and block
  std::vector<bool> has_freed_;              // whether it has seen all copies freed, by worker
  int32_t num_freed_ = 0;
  bool is_locked_ = false;
  bool has_ended_ = false;
};

}  // namespace byteps
