// Receives a payload into a buffer that nobody else looks at before the push is complete.
#pragma once

#include <memory>
#include <utility>

#include "cc/server/buffer.h"
#include "cc/van/van.h"

namespace byteps {

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

// Makes a buffer of so many bytes, and the sink of a payload that fills it.
inline Status NewWholeSink(uint64_t bytes, const AllocatedBytes& allocated,
                           std::shared_ptr<Buffer>* buffer, std::shared_ptr<PayloadSink>* sink) {
  std::unique_ptr<Buffer> made;
  BYTEPS_RETURN_IF_ERROR(Buffer::New(bytes, allocated, &made));
  *buffer = std::move(made);
  *sink = std::make_shared<WholeSink>(*buffer);
  return OkStatus();
}

}  // namespace byteps
