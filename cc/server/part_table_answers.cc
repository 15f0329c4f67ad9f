// What PartTable answers, and answers again.
#include <cstring>
#include <utility>

#include "cc/base/clock.h"
#include "cc/server/part_table.h"

namespace byteps {

Status PartTable::Lost() const {
  if (changes_.is_freed())
    return FailedPrecondition(Title() + ": all workers have released the table, and it is gone");
  return Unavailable(Title() +
                     ": this server has none of its rows, because they were on a server that is "
                     "lost");
}

Status PartTable::Refused(const Newest& worker, const Status& why) const {
  return Status(why.code(),
                Title() + ", " + WorkerName(worker.header.worker) + ": " + why.message());
}

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
  if (!worker.error.ok()) {
    replies->push_back(worker.NewErrorReply(options_, entry_->key));
    replies->back().sum_ns = WallNanos();
    return;
  }
  Reply reply = worker.NewReply(options_, entry_->key);
  reply.sum_ns = WallNanos();
  FrameHeader& header = reply.frame.header;
  header.payload_bytes = worker.answer->bytes();
  header.element_count = header.payload_bytes - options_.num_workers * sizeof(int64_t);
  reply.frame.payload = worker.answer->data();
  reply.frame.keep_alive = worker.answer;
  replies->push_back(std::move(reply));
}

Status PartTable::Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                         std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) {
  MutexLock lock(mutex_);
  Newest& worker = workers_[from->rank()];
  bool is_this = false;
  BYTEPS_RETURN_IF_ERROR(worker.FindAsked(from, round, Title(), &is_this, received_bytes));
  if (!is_this) return OkStatus();
  if (worker.state == State::kReceiving) {
    worker.was_cut_off = true;
    *received_bytes = 0;
  } else if (worker.state == State::kAnswered && worker.generation != from->generation()) {
    SendAnswer(from->rank(), replies);
  }
  return OkStatus();
}

}  // namespace byteps
