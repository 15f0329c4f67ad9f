#include "cc/coordinator/coordinator_transaction.h"

#include <utility>

#include "cc/base/logging.h"

namespace byteps {
namespace {

// Servers are told together of those who leave so shortly after each other.
constexpr double kDeferredSeconds = 0.05;

void LogNotice(const CoordinatorEffects::Notice& notice) {
  using Level = CoordinatorEffects::Notice::Level;
  LogEvent event{notice.event, {}};
  if (notice.peer.has_value()) {
    event.fields.emplace_back("peer_role", RoleName(notice.peer->first));
    event.fields.emplace_back("peer_rank", notice.peer->second);
  }
  for (const auto& [name, value] : notice.figures) event.fields.emplace_back(name, value);
  switch (notice.level) {
    case Level::kInfo: return LogInfo(notice.text, event);
    case Level::kWarning: return LogWarning(notice.text, event);
    case Level::kError: return LogError(notice.text, event);
  }
}

}  // namespace

void Coordinator::Perform(CoordinatorEffects* effects) {
  for (const CoordinatorEffects::Notice& notice : effects->notices) LogNotice(notice);
  for (const size_t peer : effects->forgotten) sessions_[peer]->Forget();
  for (CoordinatorEffects::Outgoing& out : effects->frames)
    sessions_[out.peer]->SendFrame(std::move(out.frame), out.is_heartbeat);
  if (effects->absence.has_value())
    absent_.Add(effects->absence->peer, effects->absence->listens_at);
  if (effects->begins_deferred && !has_deferred_ && !stopping_) {
    has_deferred_ = true;
    deferred_.Start("byteps-later", kDeferredSeconds, [this](int64_t) { RunDeferred(); });
  }
  if (effects->wakes_waiter) changed_.NotifyAll();
}

}  // namespace byteps
