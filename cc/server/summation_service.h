// SummationService: adds up what the workers push and answers when a round is complete. Pure
// arithmetic and bookkeeping: it knows frames and connections, but neither the coordinator nor a
// concrete Van (server/server.h puts them together).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/server/arrival_lags.h"
#include "cc/server/deadlines.h"
#include "cc/server/membership.h"
#include "cc/server/served_part.h"
#include "cc/server/served_tensors.h"
#include "cc/server/server_timeline.h"
#include "cc/server/worker_connections.h"
#include "cc/van/van.h"
#include "cc/wire/control.h"

namespace byteps {

struct SummationCounters {
  uint64_t pushes = 0;        // complete contributions
  uint64_t pushed_bytes = 0;  // their payload
  uint64_t late_pushes = 0;   // others, whose rounds had ended or failed: read and dropped
  uint64_t replies = 0;
  uint64_t replied_bytes = 0;
  uint64_t rounds_completed = 0;
  uint64_t accumulator_bytes = 0;  // memory held for sums and finished rounds
  uint64_t lacking_blocks = 0;     // of tables, whose rows are not, or not all, on this server
};

// What one tensor has cost so far.
struct TensorCounters {
  TensorDescription tensor;  // as last used
  uint64_t pushes = 0;       // complete contributions of parts
  uint64_t pushed_bytes = 0;
  uint64_t replied_bytes = 0;
  uint64_t rounds_completed = 0;  // of this server's first part of the tensor
};

// Handles the connections of all workers of one membership epoch. Thread-safe: every method may be
// called from any thread, and handler calls about different connections overlap.
class SummationService : public ConnectionHandler {
 public:
  struct Options {
    int32_t server_rank = 0;
    int32_t num_workers = 1;
    uint32_t epoch = 0;
    std::vector<std::string> worker_hosts = {};  // by rank; empty: all workers are on one host
    // Credit that no reply has taken along gets a frame of its own once it is so many bytes. Must
    // leave a worker most of its credit, also if all its connections to all servers keep back as
    // much.
    uint64_t least_credit_frame = 1;
    bool in_rank_order = false;   // sums do not depend on the order of arrival
    int32_t max_lag = 2;          // rounds that a worker may be behind, with backup workers
    bool asks_for_parts = false;  // tells workers which parts to push next, so that sums flow
    std::shared_ptr<MemoryRegistry> registry = nullptr;  // the Van's
    std::shared_ptr<KeptTables> kept = nullptr;          // null: it keeps no rows for other epochs
  };

  explicit SummationService(const Options& options);

  // Makes tensors known. Entries whose parts live elsewhere are ignored.
  Status AddEntries(const std::vector<TableEntry>& entries) { return tensors_.AddEntries(entries); }

  // Parts have new owners; those that are here now go on where they were (protocol rule 15).
  Status MoveParts(const PartsMoved& moved) { return tensors_.MoveParts(moved); }

  // These said goodbye: rounds that still lack the contribution of one of them fail on everybody
  // who waits, with a message that names the tensor, the leaver and those who wait (protocol rule
  // 21).
  void OnWorkersLeft(const std::vector<int32_t>& ranks);

  // These, and no others, have no more data: rounds of sums end without them, and those of other
  // kinds fail, as those that one of them has given up. Without ranks: rounds wait for all workers
  // again.
  void OnWorkersJoined(const Joined& joined);

  // A worker has departed: every round that waits, and every later push, fails with `reason`.
  void OnWorkerLost(int32_t rank, const Status& reason);

  // All workers have all results of these tensors before these rounds: gives back the memory that
  // waits for the next round.
  void OnResultProgress(const std::vector<RoundProgress::Tensor>& all_have) {
    tensors_.OnResultProgress(all_have);
  }

  // Nothing comes over connections any more: rows of tables go to KeptTables.
  void KeepTables();

  // Sends a frame to every worker that is connected, on one connection.
  void SendToWorkers(const OutgoingFrame& frame) { connections_.SendToEach(frame); }

  // See Connection::LimitUnsent; for those that are connected.
  void LimitUnsent(uint64_t bytes) { connections_.LimitUnsent(bytes); }

  // Whether a connection may come again.
  Status CheckReturn(const Hello& hello) const;

  SummationCounters counters() const;
  std::vector<TensorCounters> tensor_counters() const;  // ordered by name
  // Workers learn who is late from the servers, which alone see it.
  void ReportArrivals();
  std::vector<WorkerLag> arrival_lags() const {
    return lags_.workers();
  }  // by rank; of sums and averages
  // Its recordings refer to this object.
  ServerTimeline& timeline() { return timeline_; }

  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  Status OnHeader(Connection& connection, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) override;
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override;
  void OnDrained(Connection& connection) override;
  // UNAVAILABLE: it broke, and may come again. If this side has closed it because of what came over
  // it, rounds that lack this worker's push fail with `reason`, now and later.
  void OnClosed(Connection& connection, const Status& reason) override;

 private:
  struct ConnectionContext;

  static HostMap HostsOf(const Options& options);
  // Of all parts.
  ServedPart::Options PartOptionsOf(const Options& options) const;
  static ConnectionContext* ContextOf(Connection& connection);

  // summation_connections.cc: what comes over connections, and what becomes of those that break.
  Status Ask(Connection& connection, ResumeQuery query);
  void Close(Connection& connection);
  Status Answer(WorkerConnection* worker, const ResumeQuery& query);
  void SendCredit(WorkerConnection* worker);

  // summation_service.cc: pushes, and who departs.
  Status BeginPush(Connection& connection, const FrameHeader& header,
                   std::shared_ptr<PayloadSink>* sink);
  void EndPush(ConnectionContext* context);
  void EndGrace(const FoundPart& found);
  void NoteOutcome(const FoundPart& found, const PushOutcome& outcome);
  void EndWithdrawal(ConnectionContext* context, const std::string& reason);
  void AskFor(const FrameHeader& pushed, const PushOutcome& outcome);
  void OnDeparted(const std::vector<DepartedWorker>& departed);
  void Send(ServedTensor* tensor, std::vector<Reply> replies);
  template <typename Function>
  void ForEachPart(Function function);

  const Options options_;
  const HostMap hosts_;
  Membership membership_;
  const AggregationMemory memory_;
  Tally tally_;
  ArrivalLags lags_;
  ServerTimeline timeline_;
  ServedTensors tensors_;
  WorkerConnections connections_;
  Deadlines deadlines_;  // its thread uses all of the above
};

}  // namespace byteps
