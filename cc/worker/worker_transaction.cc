#include "cc/worker/worker_transaction.h"

#include <algorithm>
#include <utility>

#include "cc/base/logging.h"
#include "cc/codec/speed.h"
#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

void Log(const Effects::Notice& notice) {
  using Kind = Effects::Notice::Kind;
  const int64_t rank = notice.rank;
  switch (notice.kind) {
    case Kind::kServerLost:
      return LogInfo(notice.text,
                     {"process_lost", {{"peer_role", std::string("server")}, {"peer_rank", rank}}});
    case Kind::kServerRejoined:
      return LogInfo(notice.text,
                     {"process_back", {{"peer_role", std::string("server")}, {"peer_rank", rank}}});
    case Kind::kStraggler:
      return LogWarning(notice.text, {"straggler",
                                      {{"peer_role", std::string("worker")},
                                       {"peer_rank", rank},
                                       {"lag_ms", notice.lag_ms},
                                       {"step_ms", notice.step_ms}}});
  }
}

}  // namespace

void Worker::Perform(Effects* effects) {
  for (const Effects::Notice& notice : effects->notices) Log(notice);
  ChangeConnections(*effects);
  for (const Effects::Revocation& revocation : effects->revocations)
    Revoke(revocation, &effects->dropped);
  for (const ControlMessage& message : effects->messages) coordinator_->Send(message);
  if (effects->link.has_value()) ReportLink(*effects->link);
  for (const Effects::Query& query : effects->queries)
    query.connection->Send(ControlFrame(query.query));
  for (Effects::Outgoing& out : effects->frames) {
    // Compressed parts are made when credit lets them leave, and need no more memory than that. The
    // thread that found the credit does it, one of the engine's or the caller's: other parts leave
    // later by that, and what it would have received.
    if (out.preparer != nullptr) PreparePush(*out.preparer, &out.frame);
    out.connection->Send(std::move(out.frame));
  }
  // Before `placed`, with which the next round begins.
  if (!effects->given_up.empty()) TellListener(std::move(effects->given_up));
  CallBack(effects);
}

void Worker::TellListener(std::vector<Effects::GivenUp> given_up) {
  std::shared_ptr<WorkerListener> listener;
  {
    MutexLock lock(mutex_);
    listener = listener_;
    if (listener == nullptr && job_.gpus_share_hosts) {
      for (Effects::GivenUp& each : given_up) given_up_[each.key] = std::move(each);
    }
  }
  if (listener == nullptr) return;
  for (const Effects::GivenUp& each : given_up)
    listener->OnGivenUp(each.key, each.round, each.reason);
}

void Worker::CallBack(Effects* effects) {
  for (const std::shared_ptr<Exchange>& exchange : effects->placed) {
    const auto tell = std::move(exchange->placed);
    exchange->placed = nullptr;
    tell(exchange);
  }
  for (const std::function<void()>& done : effects->parts_done) done();
  for (auto& [exchange, status] : effects->finished) {
    exchange->CloseOutput();
    if (exchange->trace != nullptr) timeline_->Add(std::move(exchange->trace), status);
    exchange->request.done(status);
    exchange->request.done = nullptr;
    const auto drop_input = std::exchange(exchange->memory.drop_input, nullptr);
    if (status.ok() && drop_input && !exchange->has_moved) drop_input();
  }
}

void Worker::Revoke(const Effects::Revocation& revocation,
                    std::vector<std::shared_ptr<const void>>* dropped) {
  const uint64_t bytes = revocation.connection->Revoke(revocation.exchange.get(), dropped);
  if (bytes == 0) return;
  Transaction transaction(this);
  state_.path_events.OnRevoked(SourceOf(*revocation.connection), bytes, transaction.effects());
}

void Worker::ReportLink(const Effects::LinkFound& link) {
  LinkReport report;
  report.bytes_per_second = link.bytes_per_second;
  for (const auto& connection : link.connections)
    report.round_trip_ns = std::max(report.round_trip_ns, connection->round_trip_ns());
  report.codec_bytes_per_second = Int8BytesPerSecond();
  form_.NoteLink(report.bytes_per_second);
  coordinator_->Send(report);
}

}  // namespace byteps
