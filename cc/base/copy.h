// Copying what nobody reads soon.
#pragma once

#include <cstddef>

namespace byteps {

// memcpy for large blocks of bytes whose copy need not be in the cache: the processor does not read
// the memory that it overwrites, and keeps what it has in its caches.
void CopyPastCache(void* to, const void* from, size_t bytes);

}  // namespace byteps
