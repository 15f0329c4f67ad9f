// Guarded: no exception leaves an engine thread, where it would end the process, of a training
// program perhaps. It ends what was being done with an error instead.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "cc/base/status.h"

namespace byteps {

// What `body` returns; RESOURCE_EXHAUSTED if there was no memory for it, INTERNAL after another
// exception.
template <typename Body>
Status Guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("there was not enough memory");
  } catch (const std::exception& error) {
    return Internal(std::string("exception: ") + error.what());
  }
}

}  // namespace byteps
