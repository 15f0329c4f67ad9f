#include "cc/van/rdma/registered_memory.h"

#include <mutex>

#include "cc/base/logging.h"

namespace byteps {

RegisteredMemory::~RegisteredMemory() {
  for (const auto& [begin, region] : regions_) Release(region);
}

void RegisteredMemory::Add(void* begin, size_t bytes) {
  Region region;
  region.bytes = bytes;
  for (const std::shared_ptr<RdmaDevice>& device : devices_) {
    const verbs::Verbs& verbs = device->verbs();
    verbs::ibv_mr* const registration =
        verbs.ibv_reg_mr(device->protection_domain(), begin, bytes, verbs::IBV_ACCESS_LOCAL_WRITE);
    if (registration == nullptr)
      LogDebug("going on with a copy: " + CannotRegister(bytes, device->name()).message());
    region.registrations.push_back(registration);
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  regions_[reinterpret_cast<uintptr_t>(begin)] = std::move(region);
}

void RegisteredMemory::Remove(void* begin) {
  Region region;
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto it = regions_.find(reinterpret_cast<uintptr_t>(begin));
    if (it == regions_.end()) return;
    region = std::move(it->second);
    regions_.erase(it);
  }
  Release(region);
}

void RegisteredMemory::Release(const Region& region) {
  for (size_t i = 0; i < region.registrations.size(); ++i) {
    if (region.registrations[i] != nullptr)
      devices_[i]->verbs().ibv_dereg_mr(region.registrations[i]);
  }
}

bool RegisteredMemory::Find(const RdmaDevice& device, const void* data, size_t bytes,
                            uint32_t* key) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::shared_lock<std::shared_mutex> lock(mutex_);
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return false;
  --it;
  if (address + bytes > it->first + it->second.bytes) return false;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].get() != &device || it->second.registrations[i] == nullptr) continue;
    *key = it->second.registrations[i]->lkey;
    return true;
  }
  return false;
}

}  // namespace byteps
