#include "cc/staging/shared_results.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cc/base/round_up.h"

namespace byteps {
namespace {

// Pinning takes the longer the more often it is done.
constexpr size_t kChunkBytes = 64 << 20;
constexpr size_t kAlignment = 256;

static_assert(ArrivalWord::is_always_lock_free, "processes share them");

}  // namespace

Status SharedResults::Create(const std::string& identity, int32_t ranks, MemoryPinner pinner,
                             std::shared_ptr<SharedResults>* results) {
  const int descriptor = memfd_create("byteps-results", MFD_CLOEXEC);
  if (descriptor < 0) return ResourceExhausted(ErrnoMessage("memfd_create"));
  std::shared_ptr<SharedResults> created(new SharedResults(descriptor, ranks, std::move(pinner)));
  const std::string header = identity.substr(0, kHeaderBytes);
  const ssize_t written = pwrite(descriptor, header.data(), header.size(), 0);
  if (written != static_cast<ssize_t>(header.size()))
    return ResourceExhausted(ErrnoMessage("writing to memory that the workers of a host share"));
  *results = std::move(created);
  return OkStatus();
}

Status SharedResults::Open(const SharedFile& file, const std::string& identity, int32_t ranks,
                           MemoryPinner pinner, std::shared_ptr<SharedResults>* results) {
  const std::string path =
      "/proc/" + std::to_string(file.process) + "/fd/" + std::to_string(file.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return Unavailable(ErrnoMessage(path));
  std::shared_ptr<SharedResults> opened(new SharedResults(descriptor, ranks, std::move(pinner)));
  // The same number can be another process in this one's container.
  std::string header(std::min(identity.size(), kHeaderBytes), '\0');
  const ssize_t got = pread(descriptor, header.data(), header.size(), 0);
  if (got != static_cast<ssize_t>(header.size()) || identity.compare(0, header.size(), header) != 0)
    return Unavailable(path + " is not the memory of this host's workers");
  *results = std::move(opened);
  return OkStatus();
}

SharedResults::~SharedResults() {
  for (const Chunk& chunk : chunks_) {
    pinner_.unpin(chunk.memory);
    munmap(chunk.memory, chunk.bytes);
  }
  close(descriptor_);
}

SharedFile SharedResults::file() const { return {static_cast<int32_t>(getpid()), descriptor_}; }

Status SharedResults::PlaceOf(uint64_t key, size_t bytes, uint32_t parts, Place* place) {
  Tensor& tensor = tensors_[key];
  if (tensor.bytes < bytes || tensor.parts < parts)
    BYTEPS_RETURN_IF_ERROR(MakeRoom(bytes, parts, &tensor));
  ++tensor.place.arrived;
  *place = tensor.place;
  return OkStatus();
}

// Twice as much as before at least, so that a tensor that grows leaves little behind. New pages are
// zeros: nothing has arrived.
Status SharedResults::MakeRoom(size_t bytes, uint32_t parts, Tensor* tensor) {
  Tensor larger;
  larger.bytes = std::max(bytes, 2 * tensor->bytes);
  larger.parts = std::max(parts, 2 * tensor->parts);
  const size_t words = size_t{larger.parts} * ranks_ * sizeof(ArrivalWord);
  const size_t values_at = RoundUp(words, kAlignment);
  const size_t needed = RoundUp(values_at + larger.bytes, kAlignment);
  if (chunks_.empty() || chunks_.back().used + needed > chunks_.back().bytes)
    BYTEPS_RETURN_IF_ERROR(AddChunk(needed));
  Chunk& chunk = chunks_.back();
  char* const begin = chunk.memory + chunk.used;
  chunk.used += needed;
  larger.place = {begin + values_at, reinterpret_cast<ArrivalWord*>(begin), 0};
  *tensor = larger;
  return OkStatus();
}

// A tensor does not lie in two: what is copied at a time must have been pinned at a time.
Status SharedResults::AddChunk(size_t least_bytes) {
  const size_t bytes = std::max(RoundUp(least_bytes, kHeaderBytes), kChunkBytes);
  const auto offset = static_cast<off_t>(end_);
  // Memory that cannot be had is an error here, and not a signal later.
  if (fallocate(descriptor_, 0, offset, static_cast<off_t>(bytes)) != 0)
    return ResourceExhausted(ErrnoMessage("memory that the workers of a host share, " +
                                          std::to_string(bytes) + " bytes"));
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, offset);
  if (memory == MAP_FAILED)
    return ResourceExhausted(ErrnoMessage("mmap of memory that the workers of a host share"));
  Status pinned = pinner_.pin(memory, bytes);
  if (!pinned.ok()) {
    munmap(memory, bytes);
    return pinned;
  }
  end_ += bytes;
  chunks_.push_back({static_cast<char*>(memory), bytes, 0});
  return OkStatus();
}

}  // namespace byteps
