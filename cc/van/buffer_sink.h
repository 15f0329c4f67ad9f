// BufferSink: receives a whole payload into memory of its own; for control messages and error
// texts.
#pragma once

#include <algorithm>
#include <string>

#include "cc/van/van.h"

namespace byteps {

class BufferSink : public PayloadSink {
 public:
  Span Prepare(uint64_t remaining) override {
    // Grows with what really arrives: a header alone reserves nothing.
    buffer_.resize(filled_ + std::min<uint64_t>(remaining, kStepBytes));
    return {buffer_.data() + filled_, buffer_.size() - filled_};
  }
  void Commit(size_t bytes) override { filled_ += bytes; }

  std::string Take() {
    buffer_.resize(filled_);
    return std::move(buffer_);
  }

 private:
  static constexpr uint64_t kStepBytes = 64 * 1024;

  std::string buffer_;
  size_t filled_ = 0;
};

}  // namespace byteps
