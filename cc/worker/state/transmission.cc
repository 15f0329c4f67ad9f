#include "cc/worker/state/transmission.h"

#include <algorithm>
#include <utility>

#include "cc/codec/narrow.h"

namespace byteps {
namespace {

constexpr uint64_t kLeastOfAStep = 4096;

// In the first two steps servers allocate: sums of a round are kept while the next one is in
// flight. What workers agree upon before the first step may have been exchanged several times by
// then.
bool RepeatsAStep(const Exchange& exchange) {
  const TensorDescription& tensor = exchange.request.tensor;
  return exchange.round > 1 && tensor.kind == ExchangeKind::kSum &&
         tensor.ByteCount() >= kLeastOfAStep;
}

}  // namespace

Transmission::Transmission(const JobDescription& job, int32_t rank, const Lifecycle& lifecycle,
                           const WorkerFailover& failover, ServerLinks* servers)
    : job_(job),
      rank_(rank),
      lifecycle_(lifecycle),
      failover_(failover),
      servers_(servers),
      queue_(job.options.flow.Credit(0), job.options.flow.CreditKeptBack()) {
  if (job.TunesItself()) link_meter_.emplace();
}

void Transmission::SetPriority(Exchange* exchange, int32_t* number) {
  if (*number == 0) *number = order_.NumberNewName();
  int32_t& priority = exchange->request.priority;
  exchange->is_early = IsForwardOrder(priority);
  priority = order_.PriorityOf(*number, priority);
}

void Transmission::NoteBegun(const Exchange& exchange, int32_t number, const KeyTable& keys) {
  repeats_ = repeats_ || RepeatsAStep(exchange);
  if (!exchange.is_early || !order_.CompletesStep(number)) return;
  uint64_t late_bytes = exchange.request.tensor.ByteCount();
  queue_.Rearrange([&](const PartTask& task) {
    if (!task.exchange->is_early) return task.priority;
    late_bytes += task.bytes;
    return order_.PriorityInForwardOrder(task.exchange->request.priority);
  });
  order_.NoteStep(late_bytes);
  if (tuned_credit_ > 0) queue_.SetCredit(order_.CreditOfOverlap(tuned_credit_));
  for (const auto& [name, key] : keys.by_name()) {
    Exchange* const live = key->live.get();
    if (live == nullptr || !live->is_early) continue;
    live->is_early = false;
    live->request.priority = order_.PriorityInForwardOrder(live->request.priority);
  }
}

int32_t Transmission::PriorityOf(const Exchange& exchange, uint32_t part) const {
  const int32_t priority = exchange.request.priority;
  return exchange.is_early ? order_.PriorityOfPart(priority, exchange.entry->key, part) : priority;
}

void Transmission::Queue(const std::shared_ptr<Exchange>& exchange, uint32_t part,
                         const BlockCodec* narrow) {
  if (narrow != nullptr && MayBeNarrow(exchange->entry->tensor)) {
    // A server of this host reads what is sent from memory, which costs less than to narrow it.
    const ServerLink& server = (*servers_)[exchange->places[part].server];
    if (server.host != job_.worker_hosts[rank_]) exchange->narrow_parts[part] = narrow;
  }
  QueueAgain(exchange, part);
}

void Transmission::QueueAgain(const std::shared_ptr<Exchange>& exchange, uint32_t part,
                              uint64_t offset) {
  queue_.Push({exchange, part, exchange->PushBytes(part, rank_) - offset,
               PriorityOf(*exchange, part), offset});
}

void Transmission::Pump(Effects* effects) {
  PartTask task;
  while (queue_.Pop(&task)) {
    if (task.exchange->finished) {
      queue_.ReturnCredit(task.bytes);
      continue;
    }
    if (task.exchange->is_early) order_.NoteEarly(task.bytes);
    SendPush(std::move(task), effects);
  }
  MeasureLink(0, effects);
}

void Transmission::SendPush(PartTask task, Effects* effects) {
  Exchange& exchange = *task.exchange;
  // MovedParts queues it again.
  if (failover_.IsMoving(exchange.IdOf(task.part))) return queue_.ReturnCredit(task.bytes);
  ServerLink& server = (*servers_)[exchange.places[task.part].server];
  ServerPath* const best = server.LeastLoadedPath();
  if (best == nullptr) {
    queue_.ReturnCredit(task.bytes);
    return server.parked.push_back(std::move(task));
  }
  if (task.offset == 0) ++pushed_parts_;
  pushed_bytes_ += task.bytes;
  uncompressed_bytes_ += exchange.UncompressedBytes(task.part, task.bytes);
  if (exchange.trace != nullptr) {
    PartTrace& trace = exchange.trace->parts[task.part];
    trace.bytes = task.offset + task.bytes;
    trace.push_ns = effects->now.wall_ns;
  }
  best->in_flight_bytes += task.bytes;
  best->pushed_bytes += task.bytes;
  exchange.sent_on[task.part] = static_cast<int32_t>(best - server.paths.data());
  queue_.NoteUnanswered(exchange.PartBytes(task.part));
  OutgoingFrame frame =
      exchange.PushFrame(task.exchange, task.part, rank_, job_.epoch, task.offset);
  frame.header.priority = task.priority;
  effects->frames.emplace_back(best->connection, std::move(frame),
                               exchange.MustPrepare(task.part) ? task.exchange : nullptr);
}

void Transmission::ExpectNoAnswer(Exchange* exchange, uint32_t part) {
  if (exchange->sent_on[part] < 0) return;
  exchange->sent_on[part] = -1;
  queue_.NoteAnswered(exchange->PartBytes(part));
}

void Transmission::Withdraw(const std::shared_ptr<Exchange>& exchange, const Status& reason,
                            Effects* effects) {
  for (uint32_t part = 0; part < exchange->places.size(); ++part) {
    if (exchange->part_done[part]) continue;
    GiveUp(exchange->places[part].server,
           exchange->WithdrawalFrame(exchange, part, rank_, job_.epoch, reason), effects);
  }
}

void Transmission::GiveUp(int32_t server, OutgoingFrame withdrawal, Effects* effects) {
  ServerLink& link = (*servers_)[server];
  link.RememberWithdrawal(withdrawal);
  if (const std::shared_ptr<Connection> connection = link.ReadyConnection())
    effects->frames.emplace_back(connection, std::move(withdrawal));
}

void Transmission::Revoke(const std::shared_ptr<Exchange>& exchange, Effects* effects) {
  const size_t first = effects->revocations.size();
  for (uint32_t part = 0; part < exchange->sent_on.size(); ++part) {
    if (exchange->sent_on[part] < 0) continue;
    const int32_t server = exchange->places[part].server;
    const auto number = static_cast<uint32_t>(exchange->sent_on[part]);
    const ServerPath& path = (*servers_)[server].paths[number];
    const bool is_known = std::any_of(
        effects->revocations.begin() + first, effects->revocations.end(),
        [&](const Effects::Revocation& other) { return other.connection == path.connection; });
    if (path.connection == nullptr || is_known) continue;
    effects->revocations.push_back({path.connection, server, number, exchange});
  }
}

void Transmission::Use(ServerLink* server, ServerPath* path, Effects* effects) {
  path->is_ready = true;
  for (const OutgoingFrame& frame : server->given_up)
    effects->frames.emplace_back(path->connection, frame);
  for (const OutgoingFrame& frame : server->results)
    effects->frames.emplace_back(path->connection, frame);
  for (PartTask& task : std::exchange(server->parked, {})) queue_.Push(std::move(task));
}

void Transmission::ReturnCredit(const Source& from, uint64_t bytes) {
  ServerPath* const path = servers_->Find(from);
  if (path == nullptr) return;  // it has been taken back
  queue_.ReturnCredit(bytes);
  path->in_flight_bytes -= std::min(bytes, path->in_flight_bytes);
}

void Transmission::MeasureLink(uint64_t taken_in, Effects* effects) {
  if (!link_meter_.has_value()) return;
  if (repeats_) link_meter_->Note(effects->now.ns, taken_in, queue_.size() > 0);
  uint64_t bytes_per_second = job_.options.flow.link_bytes_per_second;
  if (bytes_per_second == 0) {
    if (!link_meter_->is_complete()) return;
    bytes_per_second = link_meter_->bytes_per_second();
  }
  effects->link = {bytes_per_second, servers_->connections()};
  link_meter_.reset();
}

void Transmission::RaiseCredit(const TableEntry& entry) {
  if (tuned_credit_ > 0) return;
  for (const PartPlacement& part : entry.parts) {
    const uint64_t bytes = part.element_count * DTypeSize(entry.tensor.dtype);
    queue_.RaiseCredit(job_.options.flow.Credit(bytes));
  }
}

void Transmission::Tune(uint64_t credit_bytes) {
  if (credit_bytes == 0) return;
  tuned_credit_ = credit_bytes;
  queue_.SetCredit(order_.CreditOfOverlap(tuned_credit_));
}

void Transmission::AddTo(StateCounters* counters) const {
  counters->pushed_parts += pushed_parts_;
  counters->pushed_bytes += pushed_bytes_;
  counters->uncompressed_bytes += uncompressed_bytes_;
  counters->credit_bytes = queue_.credit_bytes();
  counters->unanswered_bytes = queue_.unanswered();
  counters->in_flight_bytes = queue_.bytes_on_the_way();
  counters->queued_parts = queue_.size();
}

}  // namespace byteps
