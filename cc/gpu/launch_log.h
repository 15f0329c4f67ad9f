// LaunchLog: in which order the GPUs of a host run their collectives (protocol rule 18).
//
// NCCL needs the same order on all ranks, but the ranks have their gradients ready in different
// order, and the servers' replies come in any. One log for each host decides: "reduce p" is
// appended when all local ranks have part p ready, "broadcast p" when p's owner has the servers'
// reply. Every rank launches exactly this log. Where all workers of the job are on one host, no
// server takes part, and "exchange p" is the only entry for a part.
//
// This class is the log's arithmetic, without threads; sequencer.h has them.
#ifndef TF_BYTEPS_CC_GPU_LAUNCH_LOG_H_
#define TF_BYTEPS_CC_GPU_LAUNCH_LOG_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"

namespace byteps {

// A part of a tensor in one of its rounds.
struct PartRound {
  uint64_t key = 0;
  uint32_t part = 0;
  uint64_t round = 0;
  // What all ranks must agree on (type, shape, operation), as a number.
  uint64_t agreement = 0;

  // The same part in the same round.
  bool operator==(const PartRound& other) const {
    return key == other.key && part == other.part && round == other.round;
  }
  std::string ToString() const;
};

// The local rank that a part is reduced to, and that alone exchanges it with the servers.
// Consecutive parts of a tensor have different owners.
int32_t LocalOwner(const PartRound& part, int32_t local_size);

struct LaunchEntry {
  enum class Kind : uint8_t {
    kReduce = 0,
    kBroadcast = 1,
    kExchange = 2,  // one collective gives all ranks the result
    kRefuse = 3,    // no collective: the ranks disagree about the part
  };

  Kind kind = Kind::kReduce;
  PartRound part;

  bool operator==(const LaunchEntry& other) const {
    return kind == other.kind && part == other.part;
  }
  std::string ToString() const;  // "reduce part 3 of key 17, round 4"
};

// What a local rank tells the sequencer of its host.
struct LaunchReport {
  enum class Kind : uint8_t {
    kReady = 0,    // this rank has the parts' input
    kReplied = 1,  // the parts' owner has the servers' result
  };

  int32_t local_rank = 0;
  Kind kind = Kind::kReady;
  std::vector<PartRound> parts;
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
  LaunchLog(int32_t local_size, ResultsFrom results_from)
      : local_size_(local_size), results_from_(results_from) {}

  // Appends what `report` makes possible. INTERNAL if no correct local rank can have sent it.
  Status Add(const LaunchReport& report);

  // What was appended since the last call.
  LogSlice TakeNew();

 private:
  struct Hash {
    size_t operator()(const PartRound& part) const {
      return part.key * 0x9E3779B97F4A7C15u + part.part;
    }
  };
  struct SamePart {
    bool operator()(const PartRound& a, const PartRound& b) const {
      return a.key == b.key && a.part == b.part;
    }
  };
  struct Progress {
    uint64_t round = 0;
    uint64_t agreement = 0;
    bool agreed = true;
    std::vector<bool> ready;  // by local rank
    int32_t ready_count = 0;
    bool reduced = false;  // is in the log
  };

  Status AddReady(int32_t local_rank, const PartRound& part);
  Status AddReplied(int32_t local_rank, const PartRound& part);

  const int32_t local_size_;
  const ResultsFrom results_from_;
  // Parts on their way; one round of a part at a time (protocol rule 10).
  std::unordered_map<PartRound, Progress, Hash, SamePart> live_;
  LogSlice appended_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_GPU_LAUNCH_LOG_H_
