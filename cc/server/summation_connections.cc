// What comes over workers' connections, and what becomes of those that break.
#include <optional>
#include <utility>

#include "cc/base/logging.h"
#include "cc/server/summation_context.h"
#include "cc/van/buffer_sink.h"
#include "cc/wire/control_frame.h"

namespace byteps {

void SummationService::OnOpen(const std::shared_ptr<Connection>& connection) {
  connection->set_context(std::make_shared<ConnectionContext>(connections_.Open(connection)));
}

Status SummationService::CheckReturn(const Hello& hello) const {
  if (!hello.again) return OkStatus();
  if (!connections_.Knows(hello.rank)) {
    return FailedPrecondition("this server does not know " + hello.PeerName() +
                              ", it has been started anew");
  }
  if (membership_.HasDeparted(hello.rank))
    return FailedPrecondition(hello.PeerName() + " is gone, and cannot come back to a running job");
  return OkStatus();
}

Status SummationService::OnHeader(Connection& connection, const FrameHeader& header,
                                  std::shared_ptr<PayloadSink>* sink) {
  if (header.type == FrameType::kControl) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  return BeginPush(connection, header, sink);
}

Status SummationService::OnFrame(Connection& connection, const FrameHeader& header,
                                 std::shared_ptr<PayloadSink> sink) {
  if (header.type == FrameType::kControl) {
    ControlMessage message;
    if (ContextOf(connection) == nullptr || sink == nullptr ||
        !DecodeControl(static_cast<BufferSink&>(*sink).Take(), &message).ok() ||
        !std::holds_alternative<ResumeQuery>(message))
      return InvalidArgument(connection.peer_name() + " sent a message that is not understood");
    return Ask(connection, std::move(std::get<ResumeQuery>(message)));
  }
  if (header.status != StatusCode::kOk && sink != nullptr) {
    EndWithdrawal(ContextOf(connection), static_cast<BufferSink&>(*sink).Take());
    return OkStatus();
  }
  sink.reset();  // all its bytes have been taken in
  if (header.payload_bytes == 0) {
    std::shared_ptr<PayloadSink> no_sink;
    BYTEPS_RETURN_IF_ERROR(BeginPush(connection, header, &no_sink));
  }
  if (header.status != StatusCode::kOk) {
    EndWithdrawal(ContextOf(connection), "");
    return OkStatus();
  }
  EndPush(ContextOf(connection));
  return OkStatus();
}

void SummationService::OnDrained(Connection& connection) {
  if (ConnectionContext* context = ContextOf(connection)) SendCredit(context->worker.get());
}

// A connection that breaks may come again. Whether its worker is dead is the coordinator's to say.
void SummationService::OnClosed(Connection& connection, const Status& reason) {
  const int32_t rank = connection.peer().rank;
  if (ContextOf(connection) == nullptr) return;
  Close(connection);
  // This server is stopping: the workers are not gone, and the replies could not be sent anyway.
  if (reason.code() == StatusCode::kCancelled) return;
  // What this side has closed is not let in again.
  if (reason.code() != StatusCode::kUnavailable) {
    LogWarning("nothing more is taken from " + connection.peer_name() + ": " + reason.message(),
               {"peer_refused", {{"peer", connection.peer_name()}}});
    membership_.Disconnect(rank, reason);
  }
  if (membership_.HasDeparted(rank)) OnDeparted({{rank, /*cut_off=*/true}});
}

Status SummationService::Ask(Connection& connection, ResumeQuery query) {
  const std::shared_ptr<WorkerConnection>& worker = ContextOf(connection)->worker;
  std::optional<ResumeQuery> due;
  BYTEPS_RETURN_IF_ERROR(worker->Ask(connection, std::move(query), &due));
  return due.has_value() ? Answer(worker.get(), *due) : OkStatus();
}

void SummationService::Close(Connection& connection) {
  const std::shared_ptr<WorkerConnection>& worker = ContextOf(connection)->worker;
  const std::optional<ResumeQuery> due = worker->Close(connection);
  if (!due.has_value()) return;
  const Status status = Answer(worker.get(), *due);
  if (!status.ok()) worker->Disconnect(status);
}

// Nothing of the worker's pushes arrives any more over the connection that broke.
Status SummationService::Answer(WorkerConnection* worker, const ResumeQuery& query) {
  ResumeAnswer answer;
  std::vector<std::pair<ServedTensor*, std::vector<Reply>>> lost;
  for (const ResumeQuery::Push& push : query.pushes) {
    FoundPart found;
    if (!tensors_.FindResumed(push.key, push.part, &found).ok()) {
      return InvalidArgument(worker->name() + " asks for part " + std::to_string(push.part) +
                             " of a tensor that has none here (key " + std::to_string(push.key) +
                             ")");
    }
    if (found.part == nullptr) continue;
    std::optional<uint64_t> received_bytes;
    std::vector<Reply> replies;
    BYTEPS_RETURN_IF_ERROR(
        found.part->Resume(worker->shared_from_this(), push.round, &received_bytes, &replies));
    if (received_bytes.has_value())
      answer.incomplete.push_back({push.key, push.part, push.round, *received_bytes});
    lost.emplace_back(found.tensor, std::move(replies));
  }
  // Before the replies: it is what the worker waits for.
  worker->Send(ControlFrame(answer));
  for (auto& [tensor, replies] : lost) Send(tensor, std::move(replies));
  return OkStatus();
}

// What the replies have not taken along.
void SummationService::SendCredit(WorkerConnection* worker) {
  if (worker->credit() < options_.least_credit_frame) return;
  const uint64_t credit = worker->TakeCredit();
  if (credit == 0) return;  // a reply has taken it along meanwhile
  OutgoingFrame frame;
  frame.header.type = FrameType::kCredit;
  frame.header.epoch = options_.epoch;
  frame.header.worker = worker->rank();
  frame.header.credit_bytes = credit;
  worker->Send(std::move(frame));
}

}  // namespace byteps
