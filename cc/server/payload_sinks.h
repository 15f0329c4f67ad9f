// Where the payload of a push goes.
#ifndef TF_BYTEPS_CC_SERVER_PAYLOAD_SINKS_H_
#define TF_BYTEPS_CC_SERVER_PAYLOAD_SINKS_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "cc/server/buffer.h"
#include "cc/server/part_rounds.h"
#include "cc/server/worker_connection.h"
#include "cc/van/van.h"

namespace byteps {

// Adds to the part's sum what the network delivers, element by element, through the connection's
// scratch memory.
class AddingSink : public PayloadSink {
 public:
  // `rounds` outlives the sink.
  AddingSink(PartRounds* rounds, const Push& push, size_t element_size)
      : rounds_(rounds), from_(push.from), round_(push.header.round), element_size_(element_size) {}

  Span Prepare(uint64_t remaining) override {
    const size_t room = WorkerConnection::kScratchBytes - carried_;
    return {from_->scratch() + carried_, static_cast<size_t>(std::min<uint64_t>(room, remaining))};
  }

  // An element that is cut in two waits at the front of the scratch memory for its rest.
  void Commit(size_t bytes) override {
    uint8_t* const scratch = from_->scratch();
    const size_t filled = carried_ + bytes;
    carried_ = filled % element_size_;
    const size_t complete = filled - carried_;
    if (complete == 0) return;
    rounds_->Add(from_->rank(), round_, scratch, complete);
    std::memmove(scratch, scratch + complete, carried_);
  }

 private:
  PartRounds* const rounds_;
  const std::shared_ptr<WorkerConnection> from_;
  const uint64_t round_;
  const size_t element_size_;
  size_t carried_ = 0;
};

// Fills a buffer that nobody else looks at before the push is complete.
class WholeSink : public PayloadSink {
 public:
  explicit WholeSink(std::shared_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}

  Span Prepare(uint64_t remaining) override {
    return {buffer_->data() + filled_, static_cast<size_t>(remaining)};
  }
  void Commit(size_t bytes) override { filled_ += bytes; }

 private:
  const std::shared_ptr<Buffer> buffer_;
  uint64_t filled_ = 0;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_PAYLOAD_SINKS_H_
