// What happens to a part of a tensor at the server that owns it, and what comes of it: pushes,
// workers that depart, replies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/base/status.h"
#include "cc/wire/control.h"
#include "cc/wire/outgoing_frame.h"

namespace byteps {

class Buffer;            // server/buffer.h
class WorkerConnection;  // server/worker_connection.h: a name, for those who decide

inline std::string WorkerName(int64_t rank) { return "worker " + std::to_string(rank); }

// A part, and the job that it is of.
struct PartOptions {
  std::string tensor_name;
  uint32_t part = 0;
  int32_t server_rank = 0;
  uint32_t epoch = 0;
  int32_t num_workers = 1;
  int32_t max_lag = 0;             // rounds that a worker may be behind
  bool asks = false;               // End says which workers a round lacks, once
  const HostMap* hosts = nullptr;  // of the workers; outlives whoever has these options
};

// A push whose form has been checked.
struct Push {
  FrameHeader header;
  const TableEntry* entry = nullptr;  // the variant; lives as long as the service
  std::shared_ptr<WorkerConnection> from;
  uint64_t generation = 0;         // of `from`: see Reply
  int64_t begin_time_ns = 0;       // its header was here
  std::shared_ptr<Buffer> result;  // FrameHeader::IsResult: where it arrives; null: nobody needs it
};

// A reply, to be sent once no mutex is held.
struct Reply {
  std::shared_ptr<WorkerConnection> to;
  // Which of its connections one after another. Not sent over a later one: there it is asked for
  // again.
  uint64_t generation = 0;
  bool ends_round = false;  // the sum is complete now
  int64_t sum_ns = 0;       // when it was; 0: not now, or never
  OutgoingFrame frame;
};

// Makes a reply one that says what went wrong, in place of a result.
inline void PutError(const Status& status, OutgoingFrame* frame) {
  auto text = std::make_shared<const std::string>(status.message().substr(0, kMaxErrorTextBytes));
  frame->header.status = status.code();
  frame->header.payload_bytes = text->size();
  frame->payload = text->data();
  frame->keep_alive = std::move(text);
}

// When a worker's contribution to a round was there.
struct Arrival {
  int32_t worker = 0;
  int64_t lag_ns = 0;    // after the first one
  bool dropped = false;  // the round had ended
};

// What the end of a push has done.
struct PushOutcome {
  bool counted = false;         // the push is in the round
  bool round_complete = false;  // and was the last one
  // Of the round that is complete, or of this push if it came too late for its round.
  std::vector<Arrival> arrivals;
  // Of a round in which this was the first push, if the server asks for parts: who has not begun to
  // push.
  std::vector<int32_t> lacking;
  bool asks_all = false;  // also those to whom something is being sent
  // The round may end then: OnTime is to be called. As MonotonicNanos(); 0: no call is due.
  int64_t deadline_ns = 0;
};

struct DepartedWorker {
  int32_t rank = -1;
  bool cut_off = false;  // what has arrived of a push in part only will not go on
};

// Who of the workers is no longer there, or has no more data.
struct Departed {
  std::map<int32_t, Status> workers;  // by rank: why; OK: it said goodbye
  std::set<int32_t> joined;           // sums get zeros from them
  // By key and worker: rounds before this one are no sums without it.
  std::map<std::pair<uint64_t, int32_t>, uint64_t> failed;
  // By key and worker: where its clock was when all had joined, see wire/control.h.
  std::map<std::pair<uint64_t, int32_t>, Joined::Clock> clocks;
  Status lost;  // the coordinator says that one is dead: nothing goes on
};

}  // namespace byteps
