// Declarations: workers say which tensors they exchange, and hear where the parts are once all
// servers know.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/failover.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/coordinator/state/tensor_table.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class Declarations {
 public:
  // All of them outlive it.
  Declarations(const Failover& failover, PeerTable* peers, TableUpdates* updates,
               TensorTable* table)
      : failover_(failover), peers_(*peers), updates_(*updates), table_(*table) {}

  Status On(const DeclareRequest& request, JobPeer* from, CoordinatorEffects* effects);
  // All servers have taken in more, or a failover has ended.
  void AnswerIfReady(CoordinatorEffects* effects);
  // Parts are elsewhere now: what was answered before no longer holds.
  void DropEncodedReply() { encoded_ = {}; }

 private:
  // The status of each tensor, and the table's row if it is OK: where its parts are is read when
  // the reply is sent.
  using Results = std::vector<std::pair<Status, const TensorTable::Row*>>;
  struct Pending {
    int32_t worker = -1;
    uint64_t request_id = 0;
    Results results;
    uint64_t needed_update = 0;  // every server must have acknowledged this one
  };
  // The answer to a declaration. Most workers make the same one.
  struct EncodedReply {
    uint64_t request_id = 0;
    Results results;
    OutgoingFrame frame;
  };

  void Answer(const Pending& pending, CoordinatorEffects* effects);

  const Failover& failover_;
  PeerTable& peers_;
  TableUpdates& updates_;
  TensorTable& table_;
  std::deque<Pending> pending_;
  EncodedReply encoded_;  // the last one
};

}  // namespace byteps
