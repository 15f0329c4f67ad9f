#include "cc/coordinator/state/stalls.h"

#include <string>

#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

// All who wait say so within the time between two looks of a worker (worker/state/watch.h). All
// are asked then, and answer on engine threads; who does not is stopped, or unreachable.
constexpr int64_t kCollectNanos = 600 * int64_t{1000000};
constexpr int64_t kAnswerNanos = 2 * int64_t{1000000000};

}  // namespace

Status Stalls::On(const StallQuery& query, const JobPeer& from, CoordinatorEffects* effects) {
  if (query.from != from.rank)
    return InvalidArgument("asked about a stall as worker " + std::to_string(query.from));
  if (!digest_.has_value()) {
    digest_.emplace(num_workers_, next_id_++, effects->now_ns);
    effects->begins_deferred = true;
  }
  digest_->AddQuery(query);
  return OkStatus();
}

Status Stalls::On(const StallAnswer& answer, const JobPeer& from) {
  if (answer.from != from.rank)
    return InvalidArgument("answered for a stall as worker " + std::to_string(answer.from));
  if (digest_.has_value()) digest_->AddAnswer(answer);
  return OkStatus();
}

void Stalls::OnDeferred(CoordinatorEffects* effects) {
  if (!digest_.has_value()) return;
  const int64_t now = effects->now_ns;
  if (!digest_->was_asked()) {
    if (now > digest_->begin_ns() + kCollectNanos)
      peers_.SendToRole(Role::kWorker, digest_->Ask(now), effects);
    return;
  }
  if (digest_->IsComplete() || now >= digest_->asked_ns() + kAnswerNanos) Report(effects);
}

// The worker that reports warns of it; the others refer to that.
void Stalls::Report(CoordinatorEffects* effects) {
  const std::string text = digest_->Text(joins_.joined());
  effects->notices.push_back(
      {CoordinatorEffects::Notice::Level::kInfo, text, "stalled", std::nullopt, {}});
  const OutgoingFrame report = ControlFrame(StallNotice{digest_->reporter(), text});
  const OutgoingFrame reference = ControlFrame(StallNotice{digest_->reporter(), ""});
  for (const auto& [rank, query] : digest_->queries()) {
    const bool is_told = rank == digest_->reporter() || query.wants_text;
    peers_.Send(peers_[rank], is_told ? report : reference, effects);
  }
  digest_.reset();
}

}  // namespace byteps
