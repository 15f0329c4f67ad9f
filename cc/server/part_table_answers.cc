// What PartTable answers, and answers again.
#include <cstring>
#include <utility>

#include "cc/base/clock.h"
#include "cc/server/part_table.h"

namespace byteps {

// A number of bytes for each worker, and so many bytes for this one.
Status PartTable::NewAnswer(int32_t rank, uint64_t bytes, std::shared_ptr<Buffer>* answer) const {
  const uint64_t head_bytes = options_.num_workers * sizeof(int64_t);
  std::unique_ptr<Buffer> made;
  BYTEPS_RETURN_IF_ERROR(Buffer::New(head_bytes + bytes, options_.memory.allocated, &made));
  std::memset(made->data(), 0, head_bytes);
  std::memcpy(made->data() + rank * sizeof(int64_t), &bytes, sizeof(bytes));
  *answer = std::move(made);
  return OkStatus();
}

void PartTable::Answer(int32_t rank, Status error, std::shared_ptr<Buffer> answer,
                       std::vector<Reply>* replies) {
  Newest& worker = workers_[rank];
  worker.state = State::kAnswered;
  worker.payload = nullptr;
  worker.request = {};
  worker.error = std::move(error);
  worker.answer = std::move(answer);
  SendAnswer(rank, replies);
}

void PartTable::SendAnswer(int32_t rank, std::vector<Reply>* replies) {
  Newest& worker = workers_[rank];
  Reply reply;
  reply.to = worker.from;
  reply.generation = worker.generation = worker.from->generation();
  FrameHeader& header = reply.frame.header;
  header.type = FrameType::kReply;
  header.epoch = options_.epoch;
  header.key = entry_->key;
  header.part = options_.part;
  header.variant = worker.header.variant;
  header.round = worker.header.round;
  header.placement_version = worker.header.placement_version;
  header.worker = rank;
  header.priority = worker.header.priority;
  header.begin_time_ns = worker.begin_time_ns;
  header.receive_time_ns = worker.receive_time_ns;
  reply.sum_ns = WallNanos();
  if (worker.error.ok()) {
    header.payload_bytes = worker.answer->bytes();
    header.element_count = header.payload_bytes - options_.num_workers * sizeof(int64_t);
    reply.frame.payload = worker.answer->data();
    reply.frame.keep_alive = worker.answer;
  } else {
    const std::string& message = worker.error.message();
    auto text = std::make_shared<const std::string>(message.substr(0, kMaxErrorTextBytes));
    header.status = worker.error.code();
    header.payload_bytes = text->size();
    reply.frame.payload = text->data();
    reply.frame.keep_alive = std::move(text);
  }
  replies->push_back(std::move(reply));
}

Status PartTable::Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                         std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  Newest& worker = workers_[from->rank()];
  if (round >= worker.pushed_rounds) {
    *received_bytes = 0;
    return OkStatus();
  }
  // It has given that up, and gone on over another connection (protocol rule 31).
  if (round + 1 < worker.pushed_rounds && worker.from != from) return OkStatus();
  if (round + 1 < worker.pushed_rounds || worker.from != from) {
    return InvalidArgument(from->name() + " asks for its push of round " + std::to_string(round) +
                           " of " + Title() +
                           ", which is over, or was not made over this connection");
  }
  if (worker.state == State::kReceiving) {
    worker.was_cut_off = true;
    *received_bytes = 0;
  } else if (worker.state == State::kAnswered && worker.generation != from->generation()) {
    SendAnswer(from->rank(), replies);
  }
  return OkStatus();
}

}  // namespace byteps
