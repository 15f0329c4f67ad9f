#include "cc/xla/request_watch.h"

#include <atomic>

namespace byteps {
namespace {

std::atomic<WatchRequest> the_watch{nullptr};

}  // namespace

void SetRequestWatch(WatchRequest watch) { the_watch = watch; }

void ShowToWatch(ExchangeRequest* request) {
  if (const WatchRequest watch = the_watch) watch(request);
}

}  // namespace byteps
