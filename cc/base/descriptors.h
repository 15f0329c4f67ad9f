// How many descriptors (sockets, files) this process may have open.
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace byteps {

// Raises the limit as far as it may be without a privilege, up to 65,536: what the usual 1024 are
// for is select(), which nothing here uses. Never lowers it.
void RaiseDescriptorLimit();

// "17 of at most 1024 descriptors are open here".
std::string DescriptorsInWords();

// RESOURCE_EXHAUSTED, saying what to do, if so many more than now cannot be open. Raises the limit
// first where that helps.
Status CheckDescriptors(uint64_t more);

}  // namespace byteps
