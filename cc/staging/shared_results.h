// SharedResults: memory that all workers of a host see, where servers' results come for all of
// them. Each worker's GPU copies them from there, as soon as a word tells it that they have come,
// so that they need no collective, which would have to be put on GPUs whose streams wait already.
//
// Local rank 0 makes the memory, and the others open it by what it tells them. It belongs to no
// file system: it needs no room in /dev/shm, and nothing is left of it when the processes end.
//
// It grows by chunks, up to the bytes of all tensors that one step exchanges in this way, once for
// the host. A place stays a tensor's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/rank_device.h"

namespace byteps {

// How another process finds the memory; without a descriptor there is none.
struct SharedFile {
  int32_t process = 0;
  int32_t descriptor = -1;
};

// One thread at a time.
class SharedResults {
 public:
  // `identity`: a text that tells this host's memory from any other's, 4000 bytes at most.
  static Status Create(const std::string& identity, int32_t ranks, MemoryPinner pinner,
                       std::shared_ptr<SharedResults>* results);
  // UNAVAILABLE if the process is in another container, say.
  static Status Open(const SharedFile& file, const std::string& identity, int32_t ranks,
                     MemoryPinner pinner, std::shared_ptr<SharedResults>* results);
  // What still uses a place must have ended.
  ~SharedResults();
  SharedResults(const SharedResults&) = delete;
  SharedResults& operator=(const SharedResults&) = delete;

  SharedFile file() const;

  // Where the results of one round of a tensor come.
  struct Place {
    char* values = nullptr;        // as in the tensor
    ArrivalWord* words = nullptr;  // for each part one of each rank
    uint32_t arrived = 0;          // what they have reached when the part's result is there
  };

  // The place of a tensor's next round. All ranks must ask for the same rounds in the same order.
  // May block while the GPU makes new memory its own.
  Status PlaceOf(uint64_t key, size_t bytes, uint32_t parts, Place* place);

 private:
  struct Chunk {
    char* memory = nullptr;
    size_t bytes = 0;
    size_t used = 0;
  };
  struct Tensor {
    size_t bytes = 0;  // room for so many
    uint32_t parts = 0;
    Place place;
  };

  static constexpr size_t kHeaderBytes = 4096;  // of the identity

  SharedResults(int descriptor, int32_t ranks, MemoryPinner pinner)
      : descriptor_(descriptor), ranks_(ranks), pinner_(std::move(pinner)) {}
  // New memory for a tensor's rounds from now on.
  Status MakeRoom(size_t bytes, uint32_t parts, Tensor* tensor);
  Status AddChunk(size_t least_bytes);

  const int descriptor_;
  const int32_t ranks_;
  const MemoryPinner pinner_;
  std::vector<Chunk> chunks_;                     // the last one has room
  size_t end_ = kHeaderBytes;                     // in the file
  std::unordered_map<uint64_t, Tensor> tensors_;  // by key
};

}  // namespace byteps
