// The part of Worker that receives what servers send: replies, credit, requests for parts, news.
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/base/clock.h"
#include "cc/van/buffer_sink.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {

Status Worker::OnHeader(Connection& connection, const FrameHeader& header,
                        std::shared_ptr<PayloadSink>* sink) {
  if (header.type == FrameType::kControl) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  if (header.type != FrameType::kReply)
    return Internal(connection.peer_name() + " sent a frame that is not a reply");
  std::shared_ptr<Exchange> exchange;
  MutexLock lock(mutex_);
  BYTEPS_RETURN_IF_ERROR(FindReplied(connection, header, &exchange));
  if (exchange == nullptr || IsMoving(*exchange, header.part)) return OkStatus();
  if (ServerPath* const path = servers_.Find(connection))
    path->receives.emplace_back(header.key, exchange->entry->variant, header.part);
  if (exchange->trace != nullptr) exchange->trace->parts[header.part].reply_begin_ns = WallNanos();
  return NewSink(connection, exchange, header, sink);
}

// What receives the payload of a reply.
Status Worker::NewSink(const Connection& connection, const std::shared_ptr<Exchange>& exchange,
                       const FrameHeader& header, std::shared_ptr<PayloadSink>* sink) const {
  const TensorDescription& tensor = exchange->request.tensor;
  if (header.status != StatusCode::kOk) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  if (header.codec != CodecId::kRaw) {
    const Status status = DecodingSink::New(exchange, header, sink);
    if (status.ok()) return OkStatus();
    return Internal(connection.peer_name() + ", " + exchange->Name() + ", part " +
                    std::to_string(header.part) + ": " + status.message());
  }
  if (tensor.kind == ExchangeKind::kGather) {
    if (header.payload_bytes < job_.num_workers() * sizeof(int64_t))
      return Internal("gather reply without row counts");
    *sink = std::make_shared<GatherSink>(exchange, job_.num_workers(), header.payload_bytes);
    return OkStatus();
  }
  const uint64_t expected = exchange->ReplyBytes(header.part, rank_);
  // Raw is what is not compressed, and a result that comes from another worker (rule 15).
  if (header.payload_bytes != expected) {
    return Internal(connection.peer_name() + " sent " + std::to_string(header.payload_bytes) +
                    " bytes for " + exchange->Name() + ", part " + std::to_string(header.part) +
                    " of " + std::to_string(expected));
  }
  *sink = std::make_shared<RegionSink>(exchange, header.part);
  return OkStatus();
}

Status Worker::OnFrame(Connection& connection, const FrameHeader& header,
                       std::shared_ptr<PayloadSink> sink) {
  if (header.type == FrameType::kControl) return OnServersNews(connection, sink.get());
  Transaction transaction(this);
  Actions* const actions = transaction.actions();
  servers_.NoteProgress(connection);
  if (header.credit_bytes > 0) {
    ReturnCredit(connection, header.credit_bytes);
    Pump(actions);
    MeasureLink(header.credit_bytes, actions);
  }
  if (header.type == FrameType::kCredit) return OkStatus();
  if (header.type == FrameType::kWanted) {
    OnWanted(header);
    return OkStatus();
  }
  if (header.type != FrameType::kReply)
    return Internal(connection.peer_name() + " sent a frame that is not a reply");
  counters_.received_bytes += header.payload_bytes;
  ++counters_.received_parts;
  ServerPath* const path = servers_.Find(connection);
  if (path != nullptr) path->received_bytes += header.payload_bytes;
  const bool had_begun = path != nullptr && path->EndReceive(header);
  std::shared_ptr<Exchange> exchange;
  BYTEPS_RETURN_IF_ERROR(FindReplied(connection, header, &exchange));
  if (keeps_results_)
    DropResults(keys_.FindPlaced(header.key), connection.peer().rank, header, actions);
  if (exchange != nullptr && (had_begun || !IsMoving(*exchange, header.part)))
    BYTEPS_RETURN_IF_ERROR(
        FinishPart(connection.peer_name(), exchange, header, sink.get(), actions));
  if (had_begun) HoldPartsIfClosed(actions);
  return OkStatus();
}

// A server that ends tells why; one to which a connection has come again tells what it has.
Status Worker::OnServersNews(Connection& connection, PayloadSink* sink) {
  ControlMessage message;
  const bool is_message =
      sink != nullptr && DecodeControl(static_cast<BufferSink*>(sink)->Take(), &message).ok();
  if (is_message && std::holds_alternative<PeerLost>(message)) {
    OnControl(std::move(message));
    return OkStatus();
  }
  if (is_message && std::holds_alternative<ArrivalReport>(message)) {
    MutexLock lock(mutex_);
    return arrivals_.Take(connection.peer().rank, std::get<ArrivalReport>(message));
  }
  if (!is_message || !std::holds_alternative<ResumeAnswer>(message))
    return Internal(connection.peer_name() + " sent a message that is not understood");
  Transaction transaction(this);
  Actions* const actions = transaction.actions();
  return OnResumeAnswer(connection, std::get<ResumeAnswer>(message), actions);
}

// Remembers a part that is not there to be pushed yet; one that has left is no matter.
void Worker::OnWanted(const FrameHeader& header) {
  Key* const key = keys_.FindPlaced(header.key);
  if (key == nullptr) return;
  const Exchange* live = key->live.get();
  const bool has_begun = live != nullptr && live->round == header.round;
  if (has_begun && live->entry != nullptr) {
    if (queue_.Prefer(live, header.part) || !live->by_parts) return;
  } else if (!has_begun && header.round != key->next_round) {
    return;
  }
  key->wanted.Add(header.round, header.part);
}

Status Worker::FindReplied(Connection& connection, const FrameHeader& header,
                           std::shared_ptr<Exchange>* exchange) {
  const Key* const key = keys_.FindPlaced(header.key);
  const auto unexpected = [&](const std::string& why) {
    return Internal(connection.peer_name() + " sent an unexpected reply (key " +
                    std::to_string(header.key) + ", part " + std::to_string(header.part) +
                    ", round " + std::to_string(header.round) + "): " + why);
  };
  if (key == nullptr) return unexpected("unknown key");
  if (header.worker != rank_) return unexpected("for worker " + std::to_string(header.worker));
  if (header.epoch != job_.epoch) return unexpected("for epoch " + std::to_string(header.epoch));
  if (header.round >= key->next_round) return unexpected("that round has not begun");
  const std::shared_ptr<Exchange>& live = key->live;
  // An exchange that failed does not wait for the rest of its replies; they are read and dropped.
  if (live == nullptr || live->round != header.round) return OkStatus();
  if (live->entry == nullptr || header.part >= live->part_done.size())
    return unexpected("no such part");
  // So are those of a server from which the part has moved.
  if (header.placement_version < live->places[header.part].version) return OkStatus();
  if (live->part_done[header.part]) return unexpected("answered before");
  if (live->by_parts && live->part_requests[header.part].done == nullptr)
    return unexpected("never sent");
  const int32_t server = connection.peer().rank;
  if (live->places[header.part].server != server) return unexpected("not that part's owner");
  if (servers_[server].is_lost) return unexpected("that server has been given up");
  *exchange = live;
  return OkStatus();
}

Status Worker::FinishPart(const std::string& server, const std::shared_ptr<Exchange>& exchange,
                          const FrameHeader& header, PayloadSink* sink, Actions* actions) {
  if (exchange->trace != nullptr) exchange->trace->parts[header.part].OnReply(header);
  ExpectNoAnswer(exchange.get(), header.part);
  const TensorDescription& tensor = exchange->request.tensor;
  if (header.status != StatusCode::kOk) {
    std::string text = sink != nullptr ? static_cast<BufferSink*>(sink)->Take() : "no reason given";
    // Its own failure, not what it says of the workers.
    if (header.status == StatusCode::kResourceExhausted) text = server + ": " + text;
    Finish(exchange, Status(header.status, text), actions);
    return OkStatus();
  }
  const uint64_t bytes = exchange->PartBytes(header.part);
  if (tensor.kind == ExchangeKind::kGather) {
    if (sink == nullptr) return Internal("gather reply without row counts");
    const Status& status = static_cast<GatherSink*>(sink)->status();
    if (!status.ok()) {
      Finish(exchange, status, actions);
      return OkStatus();
    }
  } else if (exchange->by_parts) {
    PartRequest& request = exchange->part_requests[header.part];
    const bool is_encoded = request.takes_encoded && header.codec != CodecId::kRaw;
    exchange->sum_is_encoded[header.part] = is_encoded;
    actions->parts_done.push_back(
        [done = std::move(request.done), is_encoded] { done(is_encoded); });
    request.done = nullptr;
    exchange->part_done[header.part] = true;
    --exchange->parts_left;
    return OkStatus();
  } else if (tensor.kind == ExchangeKind::kBroadcast && rank_ == tensor.root_rank) {
    const uint64_t offset = exchange->PartOffset(header.part);
    if (bytes > 0) {
      std::memcpy(static_cast<uint8_t*>(exchange->memory.output) + offset,
                  static_cast<const uint8_t*>(exchange->memory.input) + offset, bytes);
    }
  } else if (bytes > 0 && sink == nullptr) {
    return Internal(exchange->Name() + ": a reply without its payload");
  }
  exchange->part_done[header.part] = true;
  if (--exchange->parts_left == 0) Finish(exchange, OkStatus(), actions);
  return OkStatus();
}

}  // namespace byteps
