// Tuning: how much the workers keep in flight and how long parts are, by what the links carry.
// Measured in the first steps, decided once for the job (protocol rule 6).
//
// What is in flight can no longer be overtaken by something more urgent, and lets workers get
// apart in what they have sent, so that sums wait; too little, and the links idle while
// acknowledgements travel. Both are times, so that the credit in bytes follows from the link.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/job.h"
#include "cc/wire/control.h"

namespace byteps {

// Whether compressing pays where kAutoCodec leaves that to the coordinator: the time that int8
// saves on the wire is more than twice what one core takes to encode and decode. Twice, because
// cores have more to do.
bool CompressesAt(uint64_t bytes_per_second, uint64_t codec_bytes_per_second);

// What the links make of a job. 0: as it is.
struct TunedSizes {
  uint64_t credit_bytes = 0;
  uint64_t part_bytes = 0;
  uint64_t unsent_bytes = 0;  // see Connection::LimitUnsent
  bool compresses = false;    // what has kAutoCodec
};

// For links of which the slowest carries so much: what it carries in 20 ms, and in two round trips
// more, 256 KB to 16 MB; parts of 1/16 of that, but not below 64 KB or, if that is less, 1/8. With
// more than 8 servers (4 where parts of 1/16 would be too short) so many that each has two on the
// way, but not below what it carries in 0.1 ms, 16 to 128 KB: shorter ones would keep a core busy
// with their number. Then the credit grows, to what it carries in twice the time, so that all
// servers stay busy. In the kernel what it carries in 2 ms, 64 to 512 KB: replies that wait
// there delay the acknowledgements behind them, too. What `options` fix stays so.
TunedSizes SizesFor(uint64_t bytes_per_second, uint64_t round_trip_ns, int32_t num_servers,
                    const EngineOptions& options);

// Collects what the workers say. Not thread-safe.
class Tuning {
 public:
  explicit Tuning(const JobDescription& job);

  // The sizes for the job, when the last of the workers has reported.
  std::optional<TunedSizes> OnReport(int32_t rank, const LinkReport& report);

  void OnRoundProgress(int32_t rank, const RoundProgress& progress);

  // A worker that has left or is lost is not waited for.
  void OnDeparted(int32_t rank);

  // What was decided by, for people, and whether one link holds up all the others.
  std::string Links() const;
  bool LinksDiffer() const { return fastest_rate_ / 4 > slowest_rate_; }

  bool all_paused() const { return unpaused_.empty(); }
  bool is_decided() const { return decided_; }

  // The first round of a tensor that none of those who hold has begun.
  uint64_t FirstRoundOfAll(uint64_t key) const;

 private:
  const EngineOptions options_;
  const int32_t num_servers_;
  bool decided_;
  // Bytes per second, and the rank of the worker whose link decided.
  uint64_t slowest_rate_ = 0;
  uint64_t fastest_rate_ = 0;
  int32_t slowest_ = -1;
  std::map<int32_t, LinkReport> reports_;               // by rank, of those who are here
  std::set<int32_t> unreported_;                        // who is here and has not said
  std::set<int32_t> unpaused_;                          // the same, of RoundProgress
  std::unordered_map<uint64_t, uint64_t> next_rounds_;  // by key
};

}  // namespace byteps
