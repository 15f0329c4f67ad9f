// How much memory this process can still take.
#pragma once

#include <cstdint>
#include <string>

namespace byteps {

// Bytes: what the system could give without swapping, but no more than the control group of this
// process allows. Servers that share a host count the same bytes. Without limit where the system
// does not say.
uint64_t FreeMemory();

// The same with files under `root`, for tests.
uint64_t FreeMemoryUnder(const std::string& root);

}  // namespace byteps
