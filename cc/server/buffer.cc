#include "cc/server/buffer.h"

#include <string>
#include <utility>

namespace byteps {
namespace {

constexpr uint64_t kAlignment = 64;

}  // namespace

Status Buffer::New(uint64_t bytes, AllocatedBytes allocated, std::unique_ptr<Buffer>* buffer,
                   std::shared_ptr<MemoryRegistry> registry) {
  const uint64_t rounded_up = (bytes / kAlignment + 1) * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded_up);
  if (data == nullptr) {
    return ResourceExhausted("the server has no memory for " + std::to_string(bytes) +
                             " more bytes of sums");
  }
  buffer->reset(
      new Buffer(static_cast<uint8_t*>(data), bytes, std::move(allocated), std::move(registry)));
  return OkStatus();
}

Buffer::Buffer(uint8_t* data, uint64_t bytes, AllocatedBytes allocated,
               std::shared_ptr<MemoryRegistry> registry)
    : data_(data), bytes_(bytes), allocated_(std::move(allocated)), registry_(std::move(registry)) {
  *allocated_ += bytes_;
  if (registry_ != nullptr && bytes_ > 0) registry_->Add(data_, bytes_);
}

Buffer::~Buffer() {
  if (registry_ != nullptr && bytes_ > 0) registry_->Remove(data_);
  *allocated_ -= bytes_;
  std::free(data_);
}

void Buffer::CountAmong(AllocatedBytes allocated) {
  *allocated_ -= bytes_;
  allocated_ = std::move(allocated);
  *allocated_ += bytes_;
}

std::shared_ptr<BufferPool> BufferPool::New(uint64_t bytes, AllocatedBytes allocated,
                                            std::shared_ptr<MemoryRegistry> registry, size_t more) {
  return std::shared_ptr<BufferPool>(
      new BufferPool(bytes, std::move(allocated), std::move(registry), more));
}

Status BufferPool::Acquire(std::shared_ptr<Buffer>* buffer) {
  std::unique_ptr<Buffer> acquired;
  {
    MutexLock lock(mutex_);
    if (in_use_ >= kMostBuffers + more_) {
      return Internal("results of " + std::to_string(in_use_) +
                      " earlier rounds have not been sent yet, though a worker may push a round "
                      "only when it has the "
                      "result of the one before");
    }
    if (free_.empty()) {
      BYTEPS_RETURN_IF_ERROR(Buffer::New(bytes_, allocated_, &acquired, registry_));
    } else {
      acquired = std::move(free_.back());
      free_.pop_back();
    }
    ++in_use_;
  }
  *buffer =
      std::shared_ptr<Buffer>(acquired.release(), [pool = shared_from_this()](Buffer* returned) {
        pool->Return(std::unique_ptr<Buffer>(returned));
      });
  return OkStatus();
}

void BufferPool::Return(std::unique_ptr<Buffer> buffer) {
  MutexLock lock(mutex_);
  --in_use_;
  if (in_use_ + free_.size() < kKeptBuffers + more_) free_.push_back(std::move(buffer));
}

}  // namespace byteps
