// Who sees the exchanges that compiled programs start: TensorFlow's profiler, where there is one.
#pragma once

#include "cc/worker/state/exchange_request.h"
#include "cc/xla/export.h"

namespace byteps {

// May wrap the request's `done`, which has been set before. Called on XLA's threads; must not
// block.
using WatchRequest = void (*)(ExchangeRequest* request);

// From now on `watch` gets each request before the engine does. Thread-safe.
BYTEPS_XLA_EXPORT void SetRequestWatch(WatchRequest watch);

// For the handlers: nothing without a watch.
void ShowToWatch(ExchangeRequest* request);

}  // namespace byteps
