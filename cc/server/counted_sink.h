// CountedSink: a contribution that is being received, and how far it has come, so that one whose
// connection breaks goes on from there (protocol rule 13).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "cc/server/state/part_sum.h"
#include "cc/van/van.h"

namespace byteps {

class CountedSink : public PayloadSink {
 public:
  // `bytes`: of the whole contribution.
  CountedSink(std::shared_ptr<PayloadSink> sink, uint64_t bytes)
      : received_{bytes, 0}, sink_(std::move(sink)) {}

  Span Prepare(uint64_t remaining) override { return sink_->Prepare(remaining); }
  void Commit(size_t bytes) override {
    sink_->Commit(bytes);
    received_.taken += bytes;
  }
  size_t Take(const void* data, size_t bytes, uint64_t remaining) override {
    const size_t copied = sink_->Take(data, bytes, remaining);
    received_.taken += bytes;
    return copied;
  }

  const ReceivedBytes& received() const { return received_; }

 private:
  ReceivedBytes received_;
  const std::shared_ptr<PayloadSink> sink_;
};

}  // namespace byteps
