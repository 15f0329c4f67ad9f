// The part of Worker that pushes parts: queued by priority, sent as far as the credit admits.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/codec/narrow.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {

void Worker::Dispatch(const std::shared_ptr<Exchange>& exchange, Actions* actions) {
  if (exchange->by_parts) return actions->placed.push_back(exchange);
  const std::vector<PartPlacement>& parts = exchange->entry->parts;
  for (uint32_t part = 0; part < parts.size(); ++part) {
    SetNarrow(exchange.get(), part, exchange->narrow);
    queue_.Push({exchange, part, exchange->PushBytes(part, rank_), PriorityOf(*exchange, part)});
  }
  const Key& key = keys_.FindOrAdd(exchange->request.tensor.name);
  for (const uint32_t part : key.wanted.Of(exchange->round)) queue_.Prefer(exchange.get(), part);
  Pump(actions);
}

int32_t Worker::PriorityOf(const Exchange& exchange, uint32_t part) const {
  const int32_t priority = exchange.request.priority;
  return exchange.is_early ? order_.PriorityOfPart(priority, exchange.entry->key, part) : priority;
}

// A server of this host reads what is sent from memory, which costs less than to narrow it.
void Worker::SetNarrow(Exchange* exchange, uint32_t part, const BlockCodec* form) {
  if (form == nullptr || !MayBeNarrow(exchange->entry->tensor)) return;
  const ServerLink& server = servers_[exchange->places[part].server];
  if (server.host != job_.worker_hosts[rank_]) exchange->narrow_parts[part] = form;
}

void Worker::Pump(Actions* actions) {
  PartTask task;
  while (queue_.Pop(&task)) {
    if (task.exchange->finished) {
      queue_.ReturnCredit(task.bytes);
      continue;
    }
    if (task.exchange->is_early) order_.NoteEarly(task.bytes);
    SendPush(std::move(task), actions);
  }
  MeasureLink(0, actions);
}

void Worker::SendPush(PartTask task, Actions* actions) {
  Exchange& exchange = *task.exchange;
  if (IsMoving(exchange, task.part)) return queue_.ReturnCredit(task.bytes);  // see PushAgain
  ServerLink& server = servers_[exchange.places[task.part].server];
  ServerPath* const best = server.LeastLoadedPath();
  if (best == nullptr) {
    queue_.ReturnCredit(task.bytes);
    return server.parked.push_back(std::move(task));
  }
  if (task.offset == 0) ++counters_.pushed_parts;
  counters_.pushed_bytes += task.bytes;
  counters_.uncompressed_bytes += exchange.UncompressedBytes(task.part, task.bytes);
  if (exchange.trace != nullptr) {
    PartTrace& trace = exchange.trace->parts[task.part];
    trace.bytes = task.offset + task.bytes;
    trace.push_ns = WallNanos();
  }
  best->in_flight_bytes += task.bytes;
  best->pushed_bytes += task.bytes;
  exchange.sent_on[task.part] = static_cast<int32_t>(best - server.paths.data());
  queue_.NoteUnanswered(exchange.PartBytes(task.part));
  OutgoingFrame frame =
      exchange.PushFrame(task.exchange, task.part, rank_, job_.epoch, task.offset);
  frame.header.priority = task.priority;
  actions->frames.emplace_back(best->connection, std::move(frame),
                               exchange.MustEncode(task.part) ? task.exchange : nullptr);
}

void Worker::ExpectNoAnswer(Exchange* exchange, uint32_t part) {
  if (exchange->sent_on[part] < 0) return;
  exchange->sent_on[part] = -1;
  queue_.NoteAnswered(exchange->PartBytes(part));
}

void Worker::GiveUp(int32_t server, OutgoingFrame withdrawal, Actions* actions) {
  ServerLink& link = servers_[server];
  link.RememberWithdrawal(withdrawal);
  if (const std::shared_ptr<Connection> connection = link.ReadyConnection())
    actions->frames.emplace_back(connection, std::move(withdrawal));
}

void Worker::ReturnCredit(const Connection& from, uint64_t bytes) {
  ServerPath* const path = servers_.Find(from);
  if (path == nullptr) return;  // it has been taken back
  queue_.ReturnCredit(bytes);
  path->in_flight_bytes -= std::min(bytes, path->in_flight_bytes);
}

}  // namespace byteps
