// RegisteredMemory: memory of others, such as a server's buffers, that the devices may read from,
// so that what is sent from there needs no copy.
//
// Only for memory whose owner says when it ends: an address that was seen before proves nothing
// (protocol rule 19).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "cc/van/rdma/device.h"
#include "cc/van/van.h"

namespace byteps {

// Thread-safe.
class RegisteredMemory : public MemoryRegistry {
 public:
  explicit RegisteredMemory(std::vector<std::shared_ptr<RdmaDevice>> devices)
      : devices_(std::move(devices)) {}
  ~RegisteredMemory() override;

  // What a device does not register is copied: there may be a limit.
  void Add(void* begin, size_t bytes) override;
  void Remove(void* begin) override;

  // The key by which `device` reads these bytes; false if it cannot.
  bool Find(const RdmaDevice& device, const void* data, size_t bytes, uint32_t* key) const;

 private:
  struct Region {
    size_t bytes = 0;
    std::vector<verbs::ibv_mr*> registrations;  // by device
  };
  void Release(const Region& region);

  const std::vector<std::shared_ptr<RdmaDevice>> devices_;
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Region> regions_;  // by where they begin
};

}  // namespace byteps
