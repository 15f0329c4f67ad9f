#include "cc/worker/state/replies.h"

#include <cstring>
#include <utility>

namespace byteps {

using Key = KeyTable::Key;

Status Replies::OnHeader(const Source& source, const FrameHeader& header, const Moment& now,
                         std::shared_ptr<Exchange>* exchange) {
  BYTEPS_RETURN_IF_ERROR(FindReplied(source, header, exchange));
  if (*exchange == nullptr) return OkStatus();
  const PartId part = (*exchange)->IdOf(header.part);
  if (failover_.IsMoving(part)) {
    *exchange = nullptr;
    return OkStatus();
  }
  if (ServerPath* const path = servers_->Find(source)) path->receives.push_back(part);
  if ((*exchange)->trace != nullptr)
    (*exchange)->trace->parts[header.part].reply_begin_ns = now.wall_ns;
  return OkStatus();
}

Status Replies::OnFrame(const Source& source, const FrameHeader& header, ReceivedPayload payload,
                        Effects* effects) {
  const ServerPath* const path = servers_->Find(source);
  // It is good for something: see Reconnector.
  if (path != nullptr && path->has_broken) effects->progress = {source.server, source.path};
  if (header.credit_bytes > 0) {
    transmission_->ReturnCredit(source, header.credit_bytes);
    transmission_->Pump(effects);
    transmission_->MeasureLink(header.credit_bytes, effects);
  }
  switch (header.type) {
    case FrameType::kCredit: return OkStatus();
    case FrameType::kRequested: OnRequested(header); return OkStatus();
    case FrameType::kReply: return OnReply(source, header, std::move(payload), effects);
    default: return Internal(source.peer_name + " sent a frame that is not a reply");
  }
}

Status Replies::OnReply(const Source& source, const FrameHeader& header, ReceivedPayload payload,
                        Effects* effects) {
  received_bytes_ += header.payload_bytes;
  ++received_parts_;
  ServerPath* const path = servers_->Find(source);
  if (path != nullptr) path->received_bytes += header.payload_bytes;
  const bool had_begun = path != nullptr && path->EndReceive(header);
  std::shared_ptr<Exchange> exchange;
  BYTEPS_RETURN_IF_ERROR(FindReplied(source, header, &exchange));
  if (keeps_results_)
    kept_->DropResults(keys_->FindPlaced(header.key), source.server, header, effects);
  if (exchange != nullptr && (had_begun || !failover_.IsMoving(exchange->IdOf(header.part))))
    BYTEPS_RETURN_IF_ERROR(FinishPart(source, exchange, header, std::move(payload), effects));
  if (had_begun) path_events_->ReportIfDrained(effects);
  return OkStatus();
}

void Replies::OnRequested(const FrameHeader& header) {
  Key* const key = keys_->FindPlaced(header.key);
  if (key == nullptr) return;
  const Exchange* live = key->live.get();
  const bool has_begun = live != nullptr && live->round == header.round;
  if (has_begun && live->entry != nullptr) {
    if (transmission_->Prefer(live, header.part) || !live->by_parts) return;
  } else if (!has_begun && header.round < key->next_round) {
    return;
  }
  key->requested.Add(header.round, header.part);
}

Status Replies::FindReplied(const Source& source, const FrameHeader& header,
                            std::shared_ptr<Exchange>* exchange) const {
  const Key* const key = keys_->FindPlaced(header.key);
  const auto unexpected = [&](const std::string& why) {
    return Internal(source.peer_name + " sent an unexpected reply (key " +
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
  if (live->places[header.part].server != source.server) return unexpected("not that part's owner");
  if ((*servers_)[source.server].is_lost) return unexpected("that server has been given up");
  *exchange = live;
  return OkStatus();
}

Status Replies::FinishPart(const Source& source, const std::shared_ptr<Exchange>& exchange,
                           const FrameHeader& header, ReceivedPayload payload, Effects* effects) {
  if (exchange->trace != nullptr)
    exchange->trace->parts[header.part].OnReply(header, effects->now.wall_ns);
  transmission_->ExpectNoAnswer(exchange.get(), header.part);
  const TensorDescription& tensor = exchange->request.tensor;
  if (header.status != StatusCode::kOk) {
    std::string text = payload.was_received ? std::move(payload.text) : "no reason given";
    // Its own failure, not what it says of the workers.
    if (header.status == StatusCode::kResourceExhausted) text = source.peer_name + ": " + text;
    exchanges_->Finish(exchange, Status(header.status, text), effects);
    return OkStatus();
  }
  const uint64_t bytes = exchange->PartBytes(header.part);
  if (exchange->IsStore())
    exchange->store_answers[header.part] = {header.watermark, header.row_count};
  if (tensor.HasOwnRows()) {
    if (!payload.was_received) return Internal(exchange->Name() + ": a reply without row counts");
    if (!payload.status.ok()) {
      exchanges_->Finish(exchange, payload.status, effects);
      return OkStatus();
    }
  } else if (exchange->by_parts) {
    PartRequest& request = exchange->part_requests[header.part];
    const bool is_encoded = request.takes_encoded && header.codec != CodecId::kRaw;
    exchange->sum_is_encoded[header.part] = is_encoded;
    effects->parts_done.push_back(
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
  } else if (bytes > 0 && !payload.was_received) {
    return Internal(exchange->Name() + ": a reply without its payload");
  }
  exchange->part_done[header.part] = true;
  if (--exchange->parts_left == 0) exchanges_->Finish(exchange, OkStatus(), effects);
  return OkStatus();
}

}  // namespace byteps
