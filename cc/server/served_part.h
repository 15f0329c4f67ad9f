// ServedPart: one part of a tensor at the server that owns it. What happens to pushes is behind it:
// part_rounds.h has rounds that all workers share, part_store.h an asynchronous store.
#ifndef TF_BYTEPS_CC_SERVER_SERVED_PART_H_
#define TF_BYTEPS_CC_SERVER_SERVED_PART_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/base/status.h"
#include "cc/server/aggregation.h"
#include "cc/server/membership.h"
#include "cc/server/worker_connection.h"
#include "cc/wire/control.h"

namespace byteps {

inline std::string WorkerName(int64_t rank) { return "worker " + std::to_string(rank); }

// A push whose form has been checked.
struct Push {
  FrameHeader header;
  const TableEntry* entry = nullptr;  // the variant; lives as long as the service
  std::shared_ptr<WorkerConnection> from;
  int64_t begin_time_ns = 0;       // its header was here
  std::shared_ptr<Buffer> result;  // FrameHeader::IsResult: where it arrives; null: nobody needs it
};

// Who pushes a part in each round. `in_rank_order`: contributions are added in that order.
Participants ParticipantsOf(const TableEntry& entry, uint32_t part, const HostMap& hosts,
                            bool in_rank_order = false);

// When a worker's contribution to a round was there.
struct Arrival {
  int32_t worker = 0;
  int64_t lag_ns = 0;    // after the first one
  bool dropped = false;  // the round had ended
};

struct DepartedWorker {
  int32_t rank = -1;
  bool cut_off = false;  // what has arrived of a push in part only will not go on
};

// Thread-safe. Replies are handed out, not sent, so that no call into a Van happens under the
// mutex.
class ServedPart {
 public:
  struct Options {
    std::string tensor_name;
    uint32_t part = 0;
    uint32_t epoch = 0;
    int32_t num_workers = 1;
    bool in_rank_order = false;
    int32_t max_lag = 0;
    bool asks = false;                       // End says which workers a round lacks, once
    const Membership* membership = nullptr;  // outlives this object
    const HostMap* hosts = nullptr;          // of the workers; outlives this object
    AggregationMemory memory;
  };

  virtual ~ServedPart() = default;

  virtual bool IsStore() const { return false; }

  // The header of a push has arrived. Sets `sink` if the payload is wanted. An error means that the
  // worker broke the protocol: it pushed this round before.
  virtual Status Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
                       std::vector<Reply>* replies) = 0;

  // What End has done.
  struct Outcome {
    bool counted = false;         // the push is in the round
    bool round_complete = false;  // and was the last one
    // Of the round that is complete, or of this push if it came too late for its round.
    std::vector<Arrival> arrivals;
    // Of a round in which this was the first push, with Options::asks: who has not begun to push.
    std::vector<int32_t> lacking;
  };

  // All of a push is here.
  virtual Outcome End(const Push& push, std::vector<Reply>* replies) = 0;

  // `from` has come again, and asks for the push of `round` that it made before, and has no answer
  // to. If not all of that is here, sets `received_bytes` to how much is: the push may go on. An
  // answer that was lost is handed out again.
  virtual Status Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                        std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) = 0;

  // `worker` has given up a round, for the reason of `status`, and those before it that have not
  // ended: they fail for all, also for those who push them later. Nothing happens if it has ended.
  virtual void Withdraw(int32_t worker, const TableEntry& entry, uint64_t round,
                        const Status& status, std::vector<Reply>* replies) = 0;

  // The server that had the part is lost. Round `next_round` is the first that has no result; that
  // of the one before will come from worker `result_from`, for others; -1: nobody has it, or nobody
  // lacks it.
  virtual void GoOnFrom(uint64_t next_round, int32_t result_from) = 0;
  // That result arrives. An error means that the worker broke the protocol.
  virtual Status BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) = 0;
  virtual void EndResult(Push* push, std::vector<Reply>* replies) = 0;

  // All workers have the results of all rounds before `next_round`: gives back the memory that
  // waits for the next one.
  virtual void OnResultsHeld(uint64_t next_round) = 0;

  // Both after Membership has been told. A worker is lost: the open round fails, if there is one.
  virtual void OnLost(std::vector<Reply>* replies) = 0;
  // These have departed: the open round fails if it lacks the push of one of them.
  virtual void OnDeparted(const std::vector<DepartedWorker>& departed,
                          std::vector<Reply>* replies) = 0;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_SERVED_PART_H_
