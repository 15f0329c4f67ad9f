#include "cc/worker/state/failover.h"

#include <string>

namespace byteps {

void WorkerFailover::Begin(uint32_t version) {
  state_ = State::kDraining;
  version_ = version;
}

void WorkerFailover::Begin(const ServerLost& lost) { Begin(lost.version); }

void WorkerFailover::Begin(const ServerRejoined& back) {
  Begin(back.version);
  for (const ServerRejoined::Part& part : back.parts)
    moving_.insert({part.key, part.variant, part.part});
}

std::optional<uint32_t> WorkerFailover::EndDraining() {
  if (state_ != State::kDraining) return std::nullopt;
  state_ = State::kMoving;
  return version_;
}

Status WorkerFailover::End(const PartsMoved& moved) {
  if (state_ != State::kMoving || moved.version != version_) {
    return Internal("the scheduler moved parts (version " + std::to_string(moved.version) +
                    ") before this worker had said how far it is with them (version " +
                    std::to_string(version_) + ")");
  }
  state_ = State::kNormal;
  moving_.clear();
  return OkStatus();
}

}  // namespace byteps
