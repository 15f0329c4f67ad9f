// Copying what nobody reads soon.
#ifndef TF_BYTEPS_CC_BASE_COPY_H_
#define TF_BYTEPS_CC_BASE_COPY_H_

#include <cstddef>

namespace byteps {

// memcpy for large blocks of bytes whose copy need not be in the cache: the processor does not read
// the memory that it overwrites, and keeps what it has in its caches.
void CopyPastCache(void* to, const void* from, size_t bytes);

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_COPY_H_
