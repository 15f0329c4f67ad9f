// PartTable: one block of a table (ExchangeKind::kTable) on one of the servers that hold it: its
// rows, and each worker's newest request.
//
// A request is handled when all of it is here. A read is answered at once. A change is made when
// all workers have asked for it (server/state/table_changes.h), and then all are answered, with
// nothing or with an error.
//
// If the server is lost, whoever gets the part has no rows, and says so. The workers go on with the
// other server that has the block: they ask both for each change. Worker 0 then fills the lost copy
// again (part_table_copies.cc): it reads some rows here, and has them filled in there, before it
// asks for its next change. So both have them with the same changes. A copy that is being filled
// takes part in changes, which concern the rows that it has, and answers no reads until it has all.
//
// Rows are freed when all workers have said that they ask for nothing of the table any more
// (part_table_release.cc).
//
// A request that was cut off by a broken connection comes again whole. A lost answer is made again.
//
// Cost: rows are added up and updated under the mutex. Memory: the rows, and the requests that are
// arriving or wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/table_request.h"
#include "cc/server/newest_push.h"
#include "cc/server/served_part.h"
#include "cc/server/state/table_changes.h"
#include "cc/server/table_rows.h"

namespace byteps {

// Thread-safe.
class PartTable : public ServedPart {
 public:
  // `entry`: of the table, lives as long as the service.
  PartTable(Options options, const TableEntry* entry);

  bool HoldsValues() const override { return true; }
  bool LacksRows() const override;
  void Keep() override;
  Status Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
               std::vector<Reply>* replies) override;
  PushOutcome End(const Push& push, std::vector<Reply>* replies) override;
  Status Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) override;
  // The change that the worker has asked for, or the others wait for, fails for all.
  void Withdraw(int32_t worker, const TableEntry& entry, uint64_t round, const Status& status,
                std::vector<Reply>* replies) override;
  void GoOnFrom(const PartsMoved::Part& agreed) override;
  // Nobody has any.
  Status BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) override;
  void EndResult(Push* push, std::vector<Reply>* replies) override;
  void OnResultProgress(uint64_t next_round) override { (void)next_round; }
  void OnLost(std::vector<Reply>* replies) override;
  void OnDeparted(const std::vector<DepartedWorker>& departed,
                  std::vector<Reply>* replies) override;

 private:
  enum class State {
    kIdle,       // it has asked nothing, or given it up
    kReceiving,  // the header is here, the payload not all
    kWaiting,    // for others, who have not asked for the same change
    kAnswered,
  };
  // `payload`: while it waits; of a read until it is answered.
  struct Newest : NewestPush {
    State state = State::kIdle;
    TableRequest request;            // of the payload
    std::shared_ptr<Buffer> answer;  // kAnswered, without an error: in case that it gets lost
  };

  void Handle(int32_t rank, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void HandleChange(int32_t rank, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  Status Read(const Newest& worker, std::shared_ptr<Buffer>* answer) const BYTEPS_REQUIRES(mutex_);
  // part_table_copies.cc
  Status TellState(int32_t rank, std::shared_ptr<Buffer>* answer) const BYTEPS_REQUIRES(mutex_);
  Status Copy(const Newest& worker, std::shared_ptr<Buffer>* answer) const BYTEPS_REQUIRES(mutex_);
  Status Refill(const Newest& worker) BYTEPS_REQUIRES(mutex_);
  Status Fill(const Newest& worker) BYTEPS_REQUIRES(mutex_);
  // part_table_epochs.cc
  Status Mark(const Newest& worker) BYTEPS_REQUIRES(mutex_);
  Status ResumeTable(const std::vector<int32_t>& ranks) BYTEPS_REQUIRES(mutex_);
  Status TellKept(int32_t rank, std::shared_ptr<Buffer>* answer) const BYTEPS_REQUIRES(mutex_);
  // part_table_release.cc
  void Release(int32_t rank) BYTEPS_REQUIRES(mutex_);
  void NoteDeparted() BYTEPS_REQUIRES(mutex_);
  Status Released() const BYTEPS_REQUIRES(mutex_);
  void Lose(std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  Status CheckChange(const Newest& worker) const BYTEPS_REQUIRES(mutex_);
  Status MayWait() const;
  void MakeChange(std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  Status Change(const std::vector<int32_t>& ranks) BYTEPS_REQUIRES(mutex_);
  Status Agree(const std::vector<int32_t>& ranks, TableSpec* spec, TablePoint* point) const
      BYTEPS_REQUIRES(mutex_);
  Status MakeTable(const std::vector<int32_t>& ranks) BYTEPS_REQUIRES(mutex_);
  void FailWaiting(const Status& status, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void Fail(const std::vector<int32_t>& ranks, const Status& status, std::vector<Reply>* replies)
      BYTEPS_REQUIRES(mutex_);
  Status NewAnswer(int32_t rank, uint64_t bytes, std::shared_ptr<Buffer>* answer) const;
  void Answer(int32_t rank, Status error, std::shared_ptr<Buffer> answer,
              std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void SendAnswer(int32_t rank, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  // Why nobody gets rows here.
  Status Lost() const BYTEPS_REQUIRES(mutex_);
  // What is wrong with a worker's request.
  Status Refused(const Newest& worker, const Status& why) const;
  std::string Title() const { return "tensor \"" + options_.tensor_name + "\""; }

  const Options options_;
  const TableEntry* const entry_;
  mutable Mutex mutex_;
  TableChanges changes_ BYTEPS_GUARDED_BY(mutex_);
  std::unique_ptr<TableRows> rows_ BYTEPS_GUARDED_BY(mutex_);  // null: it is not made
  std::vector<Newest> workers_ BYTEPS_GUARDED_BY(mutex_);      // by rank
  // By rank: below which number of changes this worker never goes back.
  std::vector<uint64_t> least_ BYTEPS_GUARDED_BY(mutex_);
  Status left_ BYTEPS_GUARDED_BY(mutex_);  // why a worker has left a training
};

}  // namespace byteps
