// Replies: what servers send of parts: results, credit, and requests for parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cc/base/job.h"
#include "cc/wire/frame.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchanges.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/state/kept_results.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/path_events.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/transmission.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// What has come with a frame, once all of it is there.
struct ReceivedPayload {
  bool was_received = false;  // OnHeader found somebody whom it is for
  Status status;              // what was wrong with it
  std::string text;           // of a reply that is an error
};

// Not thread-safe.
class Replies {
 public:
  // All of them outlive it.
  Replies(const JobDescription& job, int32_t rank, bool keeps_results,
          const WorkerFailover& failover, KeyTable* keys, ServerLinks* servers,
          Transmission* transmission, Exchanges* exchanges, KeptResults* kept,
          PathEvents* path_events)
      : job_(job),
        rank_(rank),
        keeps_results_(keeps_results),
        failover_(failover),
        keys_(keys),
        servers_(servers),
        transmission_(transmission),
        exchanges_(exchanges),
        kept_(kept),
        path_events_(path_events) {}

  // The header of a reply is there, and its payload follows. Sets whom it is for; null: nobody
  // waits for it, it is read and dropped. An error if there can be no such reply.
  Status OnHeader(const Source& source, const FrameHeader& header, const Moment& now,
                  std::shared_ptr<Exchange>* exchange);
  // All of a frame is there.
  Status OnFrame(const Source& source, const FrameHeader& header, ReceivedPayload payload,
                 Effects* effects);

  void AddTo(StateCounters* counters) const {
    counters->received_bytes = received_bytes_;
    counters->received_parts = received_parts_;
  }

 private:
  Status OnReply(const Source& source, const FrameHeader& header, ReceivedPayload payload,
                 Effects* effects);
  // A server would like to have a part. One that is not there to be pushed yet is remembered; one
  // that has left is no matter.
  void OnRequested(const FrameHeader& header);
  Status FindReplied(const Source& source, const FrameHeader& header,
                     std::shared_ptr<Exchange>* exchange) const;
  Status FinishPart(const Source& source, const std::shared_ptr<Exchange>& exchange,
                    const FrameHeader& header, ReceivedPayload payload, Effects* effects);

  const JobDescription& job_;
  const int32_t rank_;
  const bool keeps_results_;
  const WorkerFailover& failover_;
  KeyTable* const keys_;
  ServerLinks* const servers_;
  Transmission* const transmission_;
  Exchanges* const exchanges_;
  KeptResults* const kept_;
  PathEvents* const path_events_;
  uint64_t received_bytes_ = 0;
  uint64_t received_parts_ = 0;
};

}  // namespace byteps
