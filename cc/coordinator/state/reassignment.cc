#include "cc/coordinator/state/reassignment.h"

#include <utility>

namespace byteps {

uint32_t Reassignment::Begin() {
  moved_.reset();
  return failover_.Begin();
}

void Reassignment::On(const PartProgress& progress, const JobPeer& from,
                      CoordinatorEffects* effects) {
  failover_.OnPartProgress(from.rank, progress);
  MoveIfReady(effects);
}

void Reassignment::MoveIfReady(CoordinatorEffects* effects) {
  if (!failover_.all_paused()) return;
  PartsMoved moved;
  moved.update_id = updates_.TakeId();
  moved.version = failover_.version();
  moved.entries = table_.MoveParts(moved.version);
  declarations_.DropEncodedReply();
  moved.parts = failover_.Agree(moved.entries);
  peers_.SendToRole(Role::kServer, moved, effects);
  moved_ = std::move(moved);
  failover_.Move();
}

bool Reassignment::EndIfReady(CoordinatorEffects* effects) {
  if (!moved_.has_value() || updates_.acknowledged_by_all() < moved_->update_id) return false;
  peers_.SendToRole(Role::kWorker, *moved_, effects);
  moved_.reset();
  table_.Settle();
  failover_.End();
  return true;
}

void Reassignment::OnDeparted(const JobPeer& worker, CoordinatorEffects* effects) {
  failover_.OnDeparted(worker.rank);
  MoveIfReady(effects);
}

void Reassignment::On(const ResultProgress& progress, const JobPeer& from,
                      CoordinatorEffects* effects) {
  const ResultProgress all_have{failover_.OnResults(
      from.rank, progress, [this](uint64_t key) { return table_.NumMembers(key); })};
  if (!all_have.tensors.empty()) peers_.SendToAll(all_have, effects);
}

}  // namespace byteps
