// Messages between the coordinator and everybody else: who is there, and the one table of tensors,
// parts and owners.
//
// A name may be used with several descriptions over time (another shape, say): each is a *variant*
// of the key, numbered in the order in which the coordinator first saw it. Workers that use
// different variants in one round disagree, and the server of part 0, which is the same for all
// variants of a key, tells them all (protocol rule 3). A tensor that is cut again, because the
// links turned out slow, becomes a new variant, too: used by all workers from one round on.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/wire/handshake.h"

namespace byteps {

// One part of a tensor: a run of elements, owned by one server. Offsets follow from the order.
struct PartPlacement {
  uint64_t element_count = 0;
  int32_t server = 0;
  uint32_t version = 0;  // of the placement: the change that brought it there, see PartsMoved
};

// One row of the table: a variant of a key, and where its parts live.
struct TableEntry {
  TensorDescription tensor;
  uint64_t key = 0;
  uint32_t variant = 0;
  std::vector<PartPlacement> parts;  // never empty; a tensor without elements has one empty part
};

// Refuses a row of the table that makes no sense by itself. `num_servers`: if it is known.
Status CheckEntry(const TableEntry& entry, int32_t num_workers,
                  int32_t num_servers = std::numeric_limits<int32_t>::max());

// worker -> coordinator: place these tensors, or tell me where they are.
struct DeclareRequest {
  uint64_t request_id = 0;
  std::vector<TensorDescription> tensors;
};

struct DeclareResult {
  Status status;  // not OK: refused (two names with one key, invalid description); entry is empty
  TableEntry entry;
};

// coordinator -> worker: answers in the order of the request. Every server has the entries by now.
struct DeclareReply {
  uint64_t request_id = 0;
  std::vector<DeclareResult> results;
};

// coordinator -> server, answered by TableAck.
struct TableUpdate {
  uint64_t update_id = 0;
  std::vector<TableEntry> entries;
};
struct TableAck {
  uint64_t update_id = 0;
};

// Both ways, from engine threads (rule 20). Any frame counts as a sign of life; these fill the
// silence.
struct Heartbeat {
  // From the coordinator to workers: servers that it has not heard of for longer than it should. A
  // worker that cannot reach one of them leaves it to the coordinator whether that is lost.
  std::vector<int32_t> silent_servers;
};

// worker -> coordinator: I push nothing any more (rule 21). coordinator -> the same worker: it may
// close its connection. coordinator -> servers: these have left, in batches.
struct Goodbye {
  std::vector<int32_t> ranks;
};

// coordinator -> all: a peer ended without goodbye, or has been silent too long. worker ->
// coordinator: I cannot reach this server any more.
struct PeerLost {
  Role role = Role::kWorker;
  int32_t rank = -1;
  std::string
      description;  // "worker 1 on host7 (10.0.0.7) closed its connection without a goodbye"
};

// coordinator -> all: every worker has left; servers may end.
struct JobEnded {};

// worker -> coordinator -> worker: what workers that have no connection yet tell each other.
struct Relay {
  int32_t from = -1;
  int32_t to = -1;
  std::string bytes;
};

// A tensor that waits for other workers.
struct StalledTensor {
  std::string name;
  uint64_t round = 0;
  std::string description;  // "float32[2] sum"
  uint32_t seconds = 0;     // that it has waited
};

// worker -> coordinator: I wait for these. coordinator -> all workers: have you sent these?
struct StallQuery {
  uint64_t id = 0;                     // of the coordinator's question
  int32_t from = -1;                   // who waits; -1: the coordinator asks
  uint32_t more = 0;                   // tensors that wait
  bool wants_text = false;             // whoever else reports
  std::vector<StalledTensor> tensors;  // at most kMostStalled
};
inline constexpr size_t kMostStalled = 5;

// worker -> coordinator.
struct StallAnswer {
  uint64_t id = 0;
  int32_t from = -1;
  std::vector<uint8_t> sent;  // 1: it has, by tensor
  std::string doing;          // "waits for tensor "b", round 3, since 61 s"
};

// coordinator -> workers that wait.
struct StallNotice {
  int32_t reporter = -1;  // the one that logs who has not sent what
  std::string text;       // what is to be logged; empty for others
};

// worker -> coordinator, once: what its pushes have achieved while more of them waited.
struct LinkReport {
  uint64_t bytes_per_second = 0;
  uint64_t round_trip_ns = 0;  // to the farthest server, when nothing was in front; 0: unknown
  uint64_t codec_bytes_per_second = 0;  // codec/speed.h
};

// coordinator -> worker: begin no round of any tensor before Retune. Answered by RoundProgress.
struct PauseRounds {};

// worker -> coordinator: the first round of each tensor that this worker has not begun; of others
// it is 0.
struct RoundProgress {
  struct Tensor {
    uint64_t key = 0;
    uint64_t next_round = 0;
  };
  std::vector<Tensor> tensors;
};

// From `first_round` on, `entry` replaces the variant of its key that describes the same exchange.
struct NewCut {
  TableEntry entry;
  uint64_t first_round = 0;
};

// coordinator -> all, once: what follows from all workers' reports. Every server has the entries by
// now.
struct Retune {
  uint64_t credit_bytes = 0;  // 0: as it is
  uint64_t unsent_bytes = 0;  // see Connection::LimitUnsent
  std::vector<NewCut> cuts;   // workers
};

// How much later than the first one of its round a worker's contributions were at a server.
struct WorkerLag {
  uint64_t contributions = 0;
  uint64_t dropped = 0;  // of them: their rounds had ended without them
  uint64_t total_ns = 0;
  uint64_t recent_ns = 0;  // of about the last kRecentContributions
  uint64_t max_ns = 0;
};
inline constexpr uint64_t kRecentContributions = 100;

// server -> workers, from time to time: the lags that have changed, of some workers at a time, so
// that what each of n workers receives does not grow with n.
struct ArrivalReport {
  struct Row {
    int32_t rank = 0;
    WorkerLag lag;
  };
  static constexpr size_t kMostRows = 64;
  std::vector<Row> rows;
};

// worker -> coordinator, first: the process listens there for as long as it lives, which is all
// that the address is for.
struct Reachable {
  std::string host;
  uint16_t port = 0;
};

// worker -> server, first on a connection that has come again: what has become of these pushes,
// made over the one that broke and not answered?
struct ResumeQuery {
  struct Push {
    uint64_t key = 0;
    uint32_t part = 0;
    uint64_t round = 0;
  };
  std::vector<Push> pushes;
};

// server -> worker: these are not all here. The others are, and are answered, if need be again.
struct ResumeAnswer {
  struct Push {
    uint64_t key = 0;
    uint32_t part = 0;
    uint64_t round = 0;
    uint64_t received_bytes = 0;  // the push goes on from there
  };
  std::vector<Push> incomplete;
};

// coordinator -> workers: training goes on without this server. Send it nothing more, and answer
// with PartProgress once nothing can come from it any more. `version` is that of the placement to
// come.
struct ServerLost {
  uint32_t version = 0;
  int32_t server = -1;
};

// worker -> coordinator: how far this worker is with the parts of all servers that are lost, and
// with those that ServerRejoined has named; those of which it knows nothing are left out.
struct PartProgress {
  struct Part {
    uint64_t key = 0;
    uint32_t part = 0;
    uint64_t next_round = 0;   // the first one that it has no result of
    bool has_result = false;   // it can send that of the round before to others
    bool has_earlier = false;  // of a quorum: that of the round before that, too
  };
  uint32_t version = 0;
  std::vector<Part> parts;
};

// coordinator -> servers, answered by TableAck; then -> workers. `entries` have parts with other
// owners than before; those have `version`. What `parts` do not name begins with round 0.
struct PartsMoved {
  struct Part {
    uint64_t key = 0;
    uint32_t part = 0;
    uint64_t next_round = 0;    // no round before it is summed again
    int32_t result_from = -1;   // the worker that sends the result of the round before; -1: none
    int32_t earlier_from = -1;  // of a quorum: that of the round before that
  };
  uint64_t update_id = 0;
  uint32_t version = 0;
  std::vector<TableEntry> entries;
  std::vector<Part> parts;
};

// worker -> coordinator: of these tensors, which it has not used for a while, it has the results of
// all rounds before `next_round`. coordinator -> workers: all workers have, none need be kept.
// coordinator -> servers: the same; the memory for the tensor's rounds may serve others.
struct ResultProgress {
  std::vector<RoundProgress::Tensor> tensors;
};

// coordinator -> workers: a server that was lost is there again, started anew, and `parts` are
// about to move. Send nothing of them to their servers and take nothing from there any more,
// connect to the new server, and answer with PartProgress, as after ServerLost. `version` is that
// of the placement to come.
struct ServerRejoined {
  struct Part {
    uint64_t key = 0;
    uint32_t variant = 0;
    uint32_t part = 0;
  };
  uint32_t version = 0;
  int32_t server = -1;
  std::string host_id;  // see JobDescription::server_hosts
  std::string host;     // where it listens
  uint16_t port = 0;
  std::vector<Part> parts;
};

// worker -> coordinator: it has no more data (`ranks` is not read). coordinator -> servers: these
// have none, and take part in sums by zeros, but for rounds that they have given up; without ranks:
// from now on all workers take part again. coordinator -> workers, once all have joined: they go on
// together. `last`: who came last. Not all can come if there is a `problem`. The servers also learn
// from where the clocks of asynchronous stores go on.
struct Joined {
  // The newest round that a worker has begun of a tensor has failed there: none before `next_round`
  // is a sum without it.
  struct Failed {
    int32_t worker = -1;  // from a worker: not read
    uint64_t key = 0;
    uint64_t next_round = 0;
  };
  // How far a worker was with a store when all had joined: as if it had made `lead` more pushes
  // than it has, so that all go on alike.
  struct Clock {
    int32_t worker = -1;  // from a worker: not read
    uint64_t key = 0;
    uint64_t next_round = 0;
    uint64_t lead = 0;  // from a worker: not read
  };
  std::vector<int32_t> ranks;
  int32_t last = -1;
  std::string problem;
  std::vector<Failed> failed;
  std::vector<Clock> clocks;
};

using ControlMessage =
    std::variant<DeclareRequest, DeclareReply, TableUpdate, TableAck, Heartbeat, Goodbye, PeerLost,
                 JobEnded, Relay, StallQuery, StallAnswer, LinkReport, PauseRounds, RoundProgress,
                 Retune, ArrivalReport, Reachable, ResumeQuery, ResumeAnswer, ServerLost,
                 PartProgress, PartsMoved, ResultProgress, ServerRejoined, StallNotice, Joined>;

std::string EncodeControl(const ControlMessage& message);

// Refuses an unknown type, a truncated message, trailing bytes and counts that the message cannot
// hold; nothing is allocated on the word of a count alone.
Status DecodeControl(const std::string& bytes, ControlMessage* message);

}  // namespace byteps
