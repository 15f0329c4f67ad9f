#include "cc/server/summation_service.h"

#include <algorithm>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/codec/part_forms.h"
#include "cc/server/arrival_lags.h"
#include "cc/server/membership.h"
#include "cc/server/served_part.h"
#include "cc/server/served_tensors.h"
#include "cc/server/summation_context.h"
#include "cc/server/worker_connections.h"
#include "cc/van/buffer_sink.h"
#include "cc/wire/control_frame.h"

namespace byteps {

SummationService::ConnectionContext* SummationService::ContextOf(Connection& connection) {
  return static_cast<ConnectionContext*>(connection.context());
}

SummationService::SummationService(const Options& options)
    : options_(options),
      hosts_(HostsOf(options)),
      memory_{options.registry},
      lags_(options.num_workers),
      tensors_(options.server_rank, PartOptionsOf(options)),
      connections_(options.num_workers) {}

HostMap SummationService::HostsOf(const Options& options) {
  if (!options.worker_hosts.empty()) return HostMap(options.worker_hosts);
  return HostMap(std::vector<std::string>(options.num_workers));
}

ServedPart::Options SummationService::PartOptionsOf(const Options& options) const {
  ServedPart::Options of_part;
  of_part.server_rank = options.server_rank;
  of_part.epoch = options.epoch;
  of_part.num_workers = options.num_workers;
  of_part.in_rank_order = options.in_rank_order;
  of_part.max_lag = options.max_lag;
  of_part.asks = options.asks_for_parts;
  of_part.membership = &membership_;
  of_part.hosts = &hosts_;
  of_part.kept = options.kept.get();
  of_part.memory = memory_;
  return of_part;
}

Status SummationService::BeginPush(Connection& connection, const FrameHeader& header,
                                   std::shared_ptr<PayloadSink>* sink) {
  ConnectionContext* context = ContextOf(connection);
  const std::string& peer = connection.peer_name();
  if (context == nullptr || connection.peer().role != Role::kWorker ||
      context->worker->rank() < 0 || context->worker->rank() >= options_.num_workers) {
    return InvalidArgument(peer + " is not a worker of this job and may not push");
  }
  if (!context->worker->is_in_use(connection))
    return InvalidArgument(peer + " pushed before it knew what had become of its pushes before");
  if (header.type != FrameType::kPush) {
    return InvalidArgument(peer + " sent a frame of type " +
                           std::to_string(static_cast<int>(header.type)) +
                           "; a server takes pushes only");
  }
  if (header.worker != context->worker->rank()) {
    return InvalidArgument(peer + " pushed as worker " + std::to_string(header.worker));
  }
  if (header.epoch != options_.epoch) {
    return FailedPrecondition(peer + " pushed for epoch " + std::to_string(header.epoch) +
                              "; the job is in epoch " + std::to_string(options_.epoch));
  }
  ConnectionContext::Arriving& arriving = context->arriving.emplace_back();
  const Status found = tensors_.Find(header, &arriving.found);
  if (!found.ok()) return Status(found.code(), peer + " made a push " + found.message());
  arriving.push.entry = arriving.found.entry;
  arriving.push.header = header;
  arriving.push.from = context->worker;
  arriving.push.generation = context->worker->generation();
  arriving.push.begin_time_ns = WallNanos();
  if (header.status != StatusCode::kOk) {
    if (header.payload_bytes > 0) *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  if (arriving.found.part == nullptr) return OkStatus();
  if (header.IsResult()) return arriving.found.part->BeginResult(&arriving.push, sink);
  arriving.found.tensor->Used(arriving.push.entry);
  std::vector<Reply> replies;
  const Status status = arriving.found.part->Begin(arriving.push, sink, &replies);
  Send(arriving.found.tensor, std::move(replies));
  return status;
}

void SummationService::EndPush(ConnectionContext* context) {
  ConnectionContext::Arriving ended = context->TakeLast();
  const FrameHeader& header = ended.push.header;
  std::vector<Reply> replies;
  const std::shared_ptr<ServedPart> rounds = std::move(ended.found.part);
  if (rounds == nullptr) {
    // A result, and the text of a withdrawal, have taken no credit (protocol rule 9).
    const bool takes_credit = !header.IsResult() && header.status == StatusCode::kOk;
    if (takes_credit) context->worker->AddCredit(header.payload_bytes);
    return;
  }
  if (header.IsResult()) {
    rounds->EndResult(&ended.push, &replies);
    return Send(ended.found.tensor, std::move(replies));
  }
  const PushOutcome outcome = rounds->End(ended.push, &replies);
  for (Tally* tally : {&tally_, &ended.found.tensor->tally()}) {
    if (!outcome.counted) {
      ++tally->late_pushes;
      continue;
    }
    ++tally->pushes;
    tally->pushed_bytes += header.payload_offset + header.payload_bytes;
  }
  ended.found.part = rounds;
  NoteOutcome(ended.found, outcome);
  // Before the replies leave, so that this worker's carries it.
  context->worker->AddCredit(header.payload_bytes);
  Send(ended.found.tensor, std::move(replies));
  if (!outcome.lacking.empty()) AskFor(header, outcome);
}

void SummationService::NoteOutcome(const FoundPart& found, const PushOutcome& outcome) {
  if (outcome.round_complete) {
    ++tally_.rounds_completed;
    if (found.is_first_part) ++found.tensor->tally().rounds_completed;
  }
  if (found.entry->tensor.kind == ExchangeKind::kSum) lags_.Add(outcome.arrivals);
  if (outcome.deadline_ns != 0)
    deadlines_.Add(outcome.deadline_ns, [this, found] { EndGrace(found); });
}

// On the thread of deadlines.
void SummationService::EndGrace(const FoundPart& found) {
  std::vector<Reply> replies;
  const PushOutcome outcome = found.part->OnTime(&replies);
  NoteOutcome(found, outcome);
  Send(found.tensor, std::move(replies));
}

// While gradients are being computed the newest goes first. Workers that are not equally fast then
// push different parts, and sums wait although all links are busy. Where replies leave a link idle,
// what others have pushed should come next. Once for each part and round, so that a push costs the
// same with any number of workers (protocol rule 30).
void SummationService::AskFor(const FrameHeader& pushed, const PushOutcome& outcome) {
  OutgoingFrame frame;
  frame.header.type = FrameType::kRequested;
  frame.header.epoch = options_.epoch;
  frame.header.key = pushed.key;
  frame.header.part = pushed.part;
  frame.header.round = pushed.round;
  for (const std::shared_ptr<WorkerConnection>& worker :
       outcome.asks_all ? connections_.Of(outcome.lacking) : connections_.Idle(outcome.lacking)) {
    frame.header.worker = worker->rank();
    worker->Send(frame);
  }
}

void SummationService::EndWithdrawal(ConnectionContext* context, const std::string& reason) {
  ConnectionContext::Arriving ended = context->TakeLast();
  const Push& push = ended.push;
  std::vector<Reply> replies;
  const std::shared_ptr<ServedPart> rounds = std::move(ended.found.part);
  if (rounds == nullptr) return;
  rounds->Withdraw(push.header.worker, *push.entry, push.header.round,
                   Status(push.header.status, reason), &replies);
  Send(ended.found.tensor, std::move(replies));
}

void SummationService::Send(ServedTensor* tensor, std::vector<Reply> replies) {
  for (Reply& reply : replies) {
    FrameHeader& header = reply.frame.header;
    header.send_time_ns = WallNanos();
    timeline_.Add(tensor->name(), reply);
    for (Tally* tally : {&tally_, &tensor->tally()}) {
      ++tally->replies;
      if (header.status == StatusCode::kOk) tally->replied_bytes += header.payload_bytes;
    }
    reply.to->SendReply(std::move(reply.frame), reply.generation);
  }
}

void SummationService::ReportArrivals() {
  const ArrivalReport report = lags_.TakeReport();
  if (!report.rows.empty()) connections_.SendToEach(ControlFrame(report));
}

template <typename Function>
void SummationService::ForEachPart(Function function) {
  for (const auto& [tensor, rounds] : tensors_.AllParts()) {
    std::vector<Reply> replies;
    function(rounds.get(), &replies);
    Send(tensor, std::move(replies));
  }
}

void SummationService::OnDeparted(const std::vector<DepartedWorker>& departed) {
  ForEachPart([&](ServedPart* rounds, std::vector<Reply>* replies) {
    rounds->OnDeparted(departed, replies);
  });
}

void SummationService::KeepTables() {
  ForEachPart([](ServedPart* part, std::vector<Reply>*) { part->Keep(); });
}

SummationCounters SummationService::counters() const {
  SummationCounters counters;
  counters.pushes = tally_.pushes;
  counters.pushed_bytes = tally_.pushed_bytes;
  counters.late_pushes = tally_.late_pushes;
  counters.replies = tally_.replies;
  counters.replied_bytes = tally_.replied_bytes;
  counters.rounds_completed = tally_.rounds_completed;
  counters.accumulator_bytes = *memory_.allocated;
  tensors_.ForEach([&](const ServedTensor& tensor) {
    for (const auto& [number, part] : tensor.parts()) counters.lacking_blocks += part->LacksRows();
  });
  return counters;
}

std::vector<TensorCounters> SummationService::tensor_counters() const {
  std::vector<TensorCounters> all;
  tensors_.ForEach([&](const ServedTensor& tensor) {
    const Tally& tally = tensor.tally();
    all.push_back({tensor.last_used(), tally.pushes, tally.pushed_bytes, tally.replied_bytes,
                   tally.rounds_completed});
  });
  std::sort(all.begin(), all.end(), [](const TensorCounters& a, const TensorCounters& b) {
    return a.tensor.name < b.tensor.name;
  });
  return all;
}

void SummationService::OnWorkersLeft(const std::vector<int32_t>& ranks) {
  std::vector<DepartedWorker> departed;
  for (const int32_t rank : ranks) {
    if (rank < 0 || rank >= options_.num_workers) continue;
    membership_.Leave(rank);
    departed.push_back({rank, /*cut_off=*/!connections_.HasConnectionInUse(rank)});
  }
  OnDeparted(departed);
}

void SummationService::OnWorkersJoined(const Joined& joined) {
  const std::vector<int32_t>& ranks = joined.ranks;
  membership_.SetJoined(joined);
  if (ranks.empty()) {
    for (const FoundPart& found : tensors_.AllFound()) found.part->OnAllJoined();
    return;
  }
  for (const FoundPart& found : tensors_.AllFound()) {
    std::vector<Reply> replies;
    // A store goes on without them as without those who leave it; their next push comes back.
    if (found.part->HoldsValues()) {
      std::vector<DepartedWorker> gone;
      gone.reserve(ranks.size());
      for (const int32_t rank : ranks) gone.push_back({rank, false});
      found.part->OnDeparted(gone, &replies);
    }
    const PushOutcome outcome = found.part->OnJoined(&replies);
    if (found.entry != nullptr) NoteOutcome(found, outcome);
    Send(found.tensor, std::move(replies));
  }
}

void SummationService::OnWorkerLost(int32_t rank, const Status& reason) {
  LogDebug("worker " + std::to_string(rank) + " is lost: " + reason.ToString());
  membership_.Lose(reason);
  ForEachPart([](ServedPart* rounds, std::vector<Reply>* replies) { rounds->OnLost(replies); });
}

}  // namespace byteps
