#include "cc/coordinator/state/declarations.h"

#include <algorithm>

#include "cc/wire/control_frame.h"

namespace byteps {

Status Declarations::On(const DeclareRequest& request, JobPeer* from, CoordinatorEffects* effects) {
  if (from->is_declaring) return InvalidArgument("declared without waiting for the answer");
  Pending pending;
  pending.worker = from->rank;
  pending.request_id = request.request_id;
  TableUpdate update;
  update.update_id = updates_.next_id();
  for (const TensorTable::Outcome& outcome : table_.Declare(request.tensors, update.update_id)) {
    if (outcome.row != nullptr) {
      pending.needed_update = std::max(pending.needed_update, outcome.row->update_id);
      if (outcome.added) update.entries.push_back(outcome.row->entry);
    }
    pending.results.emplace_back(outcome.status, outcome.row);
  }
  if (!update.entries.empty()) {
    updates_.TakeId();
    peers_.SendToRole(Role::kServer, update, effects);
  }
  if (pending.needed_update <= updates_.acknowledged_by_all() && !failover_.is_running()) {
    Answer(pending, effects);
  } else {
    from->is_declaring = true;
    pending_.push_back(std::move(pending));
  }
  return OkStatus();
}

void Declarations::AnswerIfReady(CoordinatorEffects* effects) {
  if (failover_.is_running()) return;
  const uint64_t acknowledged = updates_.acknowledged_by_all();
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->needed_update > acknowledged) {
      ++it;
      continue;
    }
    peers_.Find(Role::kWorker, it->worker)->is_declaring = false;
    Answer(*it, effects);
    it = pending_.erase(it);
  }
}

void Declarations::Answer(const Pending& pending, CoordinatorEffects* effects) {
  const auto is_same = [](const auto& a, const auto& b) {
    return a.second != nullptr && a.second == b.second;
  };
  if (encoded_.frame.payload == nullptr || encoded_.request_id != pending.request_id ||
      !std::equal(pending.results.begin(), pending.results.end(), encoded_.results.begin(),
                  encoded_.results.end(), is_same)) {
    DeclareReply reply;
    reply.request_id = pending.request_id;
    for (const auto& [status, row] : pending.results)
      reply.results.push_back({status, row != nullptr ? row->entry : TableEntry()});
    encoded_ = {pending.request_id, pending.results, ControlFrame(reply)};
  }
  peers_.Send(*peers_.Find(Role::kWorker, pending.worker), encoded_.frame, effects);
}

}  // namespace byteps
