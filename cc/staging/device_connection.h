// Connects a device to those of the other ranks of its host, for as long as that is wanted.
#pragma once

#include <functional>
#include <memory>

#include "cc/gpu/rank_device.h"
#include "cc/staging/state/host_place.h"

namespace byteps {

// NCCL waits for all ranks without a limit. Should one of them be lost meanwhile, the attempt is
// left behind, with its thread and the device. Blocks until all ranks have connected, or until
// `check`, which is called now and then, returns an error.
Status ConnectDevice(const std::shared_ptr<RankDevice>& device, const NcclUniqueId& id,
                     const HostPlace& place, const std::function<Status()>& check);

}  // namespace byteps
