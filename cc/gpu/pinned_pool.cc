#include "cc/gpu/pinned_pool.h"

#include <utility>

#include "cc/base/round_up.h"

namespace byteps {
namespace {

constexpr size_t kSmallest = 256;
// Smaller blocks are cut from one allocation of this many bytes: pinning costs more than a
// thousand times what it takes to copy a small tensor.
constexpr size_t kSlabBytes = 4 << 20;

}  // namespace

PinnedSource PinnedMemoryOf(const std::shared_ptr<GpuDevice>& device) {
  PinnedSource source;
  source.allocate = [device](size_t bytes, void** address) {
    return AllocatePinned(*device, bytes, address);
  };
  source.free = [device](void* address, size_t bytes) { FreePinned(*device, address, bytes); };
  return source;
}

std::shared_ptr<PinnedPool> PinnedPool::Create(PinnedSource source) {
  return std::shared_ptr<PinnedPool>(new PinnedPool(std::move(source)));
}

PinnedPool::~PinnedPool() {
  for (const auto& [address, bytes] : allocated_) {
    if (watcher_.about_to_free != nullptr) watcher_.about_to_free(address);
    source_.free(address, bytes);
  }
}

size_t PinnedPool::SizeFor(size_t bytes) {
  size_t power = kSmallest;
  while (power < bytes) power *= 2;
  if (power == kSmallest) return power;
  const size_t step = power / 8;  // four sizes between a power of two and the next
  return RoundUp(bytes, step);
}

Status PinnedPool::Take(size_t bytes, Block* block) {
  const size_t size = SizeFor(bytes);
  void* address = TakeFree(size);
  while (address == nullptr) {
    std::lock_guard<std::mutex> growing(growth_mutex_);
    address = TakeFree(size);  // what another thread has grown it by
    if (address != nullptr) break;
    BYTEPS_RETURN_IF_ERROR(Grow(size));
    address = TakeFree(size);
  }
  *block = Block(
      address, [pool = shared_from_this(), size](void* returned) { pool->Return(returned, size); });
  return OkStatus();
}

void* PinnedPool::TakeFree(size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<void*>& free = free_[size];
  if (free.empty()) return nullptr;
  void* const address = free.back();
  free.pop_back();
  counters_.bytes_in_use += size;
  return address;
}

Status PinnedPool::Grow(size_t size) {
  const size_t count = size < kSlabBytes ? kSlabBytes / size : 1;
  void* slab = nullptr;
  BYTEPS_RETURN_IF_ERROR(Allocate(count * size, &slab));
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<void*>& free = free_[size];
  // The first of them goes first.
  for (size_t i = count; i-- > 0;) free.push_back(static_cast<char*>(slab) + i * size);
  return OkStatus();
}

Status PinnedPool::Allocate(size_t bytes, void** address) {
  BYTEPS_RETURN_IF_ERROR(source_.allocate(bytes, address));
  allocated_.emplace_back(*address, bytes);
  if (watcher_.allocated != nullptr) watcher_.allocated(*address, bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  ++counters_.allocations;
  counters_.allocated_bytes += bytes;
  return OkStatus();
}

void PinnedPool::Return(void* address, size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_[size].push_back(address);
  counters_.bytes_in_use -= size;
}

void PinnedPool::Watch(PinnedWatcher watcher) {
  std::lock_guard<std::mutex> growing(growth_mutex_);
  watcher_ = std::move(watcher);
  if (watcher_.allocated == nullptr) return;
  for (const auto& [address, bytes] : allocated_) watcher_.allocated(address, bytes);
}

PinnedPoolCounters PinnedPool::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace byteps
