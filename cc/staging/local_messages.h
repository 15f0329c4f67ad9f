// What the workers of a host tell each other, and its form in bytes.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/launch_log.h"
#include "cc/gpu/nccl.h"
#include "cc/staging/shared_results.h"

namespace byteps {

// What a rank needs to join the group of its host.
struct GroupInvitation {
  NcclUniqueId id;
  SharedFile results;
};

// Local rank 0 sends the first and the last, all others the second.
using LocalMessage = std::variant<GroupInvitation, std::vector<LaunchReport>, LogSlice>;

std::string EncodeLocal(const LocalMessage& message);

// Refuses an unknown type, unknown kinds, a truncated message and trailing bytes.
Status DecodeLocal(const std::string& bytes, LocalMessage* message);

}  // namespace byteps
