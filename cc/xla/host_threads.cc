#include "cc/xla/host_threads.h"

#include <utility>

#include "cc/base/float_mode.h"
#include "cc/base/work_threads.h"

namespace byteps {
namespace {

constexpr int kThreads = 2;

}  // namespace

void ComputeLater(std::function<void()> continuation) {
  // Never destroyed: threads of the engine and of XLA may outlive static objects.
  static auto* const threads = new WorkThreads("byteps-xla", kThreads);
  threads->Add([continuation = std::move(continuation)] {
    const ScopedFloatMode as_on_threads_of_xla;
    continuation();
  });
}

}  // namespace byteps
