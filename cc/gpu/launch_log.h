// LaunchLog: in which order the GPUs of a host run their collectives (protocol rule 18).
//
// NCCL needs the same order on all ranks, but the ranks have their gradients ready in different
// order, and the servers' replies come in any. One log for each host decides: "reduce part p" is
// appended for all parts of a tensor when all local ranks have it, "broadcast part p" when p's
// owner has the servers' reply. Where the streams of all ranks wait for the reply themselves, it is
// "reduce part p for all", and no broadcast follows. Every rank launches exactly this log. Where
// all workers of the job are on one host, no server takes part, and "exchange" is the only entry
// for a tensor. What fails on one rank fails on all: "fail" is an entry, too, and the last one of
// its tensor's round.
//
// This class is the log's arithmetic, without threads; sequencer.h has them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"

namespace byteps {

struct LaunchEntry {
  // The values travel between the workers of a host.
  enum class Kind : uint8_t {
    kReduce = 0,
    kBroadcast = 1,
    kExchange = 2,      // one collective gives all ranks the whole tensor's result
    kFail = 3,          // no collective; nothing more of this round
    kEnd = 4,           // all ranks leave: nothing follows
    kReduceForAll = 5,  // the servers' result comes to memory that all ranks share
  };

  Kind kind = Kind::kReduce;
  uint64_t key = 0;
  uint64_t round = 0;
  uint32_t part = 0;
  Status reason;                   // kFail
  std::vector<int64_t> rows = {};  // kExchange of a gather: of each local rank

  // The same step of the same part.
  bool operator==(const LaunchEntry& other) const {
    return kind == other.kind && key == other.key && round == other.round && part == other.part;
  }
  std::string ToString() const;  // "reduce part 3 of key 17, round 4"
};

// What a local rank tells the sequencer of its host.
struct LaunchReport {
  enum class Kind : uint8_t {
    kReady = 0,    // this rank has the tensor
    kReplied = 1,  // the part's owner has the servers' result
    kFailed = 2,   // the exchange has failed on this rank, or it has given up the round
    kLeaving = 3,  // this rank exchanges nothing any more
  };

  Kind kind = Kind::kReady;
  int32_t local_rank = 0;
  uint64_t key = 0;
  uint64_t round = 0;
  uint32_t part = 0;        // kReplied
  uint32_t part_count = 0;  // kReady
  int64_t rows = 0;         // kReady of a gather: this rank's
  uint64_t agreement = 0;   // kReady: on what all must agree (type, shape, operation), as a number
  bool takes_shared = false;  // kReady: its stream can wait for results in memory that ranks share
  Status reason;              // kFailed
};

// Consecutive entries of a log.
struct LogSlice {
  uint64_t first = 0;  // the index of the first of them in the whole log
  std::vector<LaunchEntry> entries;
};

// Where a host's results come from.
enum class ResultsFrom {
  kServers,     // a reduction, the servers, a broadcast
  kCollective,  // the job has no other host
};

class LaunchLog {
 public:
  LaunchLog(int32_t local_size, ResultsFrom results_from);

  // Appends what `report` makes possible. INTERNAL if no correct local rank can have sent it.
  Status Add(const LaunchReport& report);

  // What was appended since the last call.
  LogSlice TakeNew();

 private:
  // A tensor in flight; one round of a tensor at a time (protocol rule 10).
  struct Progress {
    uint64_t round = 0;
    uint64_t agreement = 0;
    std::vector<bool> ready;  // by local rank
    std::vector<int64_t> rows;
    int32_t ready_count = 0;
    bool all_take_shared = true;
    std::vector<bool> replied;  // by part; empty until the reductions are in the log
    uint32_t parts_left = 0;
  };
  struct Failure {
    uint64_t round = 0;
    Status reason;
  };

  Status AddReady(const LaunchReport& report);
  void AddFailed(const LaunchReport& report);
  // Ends what is in flight, or what is reported, if one of them is of a round that is over: a rank
  // that has begun the other has given it up. False if the report is of such a round.
  bool EndOlderRound(const LaunchReport& report);
  Status AddReplied(const LaunchReport& report);
  void AddLeaving(int32_t local_rank);
  void AppendAllReady(const LaunchReport& report, Progress* progress);
  void Fail(uint64_t key, uint64_t round, const Status& reason);
  bool HasFailed(uint64_t key, uint64_t round) const;

  const int32_t local_size_;
  const ResultsFrom results_from_;
  std::unordered_map<uint64_t, Progress> live_;
  std::unordered_map<uint64_t, Failure> failed_;  // by key: the last round that failed
  std::vector<bool> left_;                        // by local rank
  int32_t left_count_ = 0;
  LogSlice appended_;
};

}  // namespace byteps
