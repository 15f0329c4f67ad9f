#include "cc/worker/stall_signal.h"

#include <signal.h>

#include <atomic>

namespace byteps {
namespace {

std::atomic<bool> asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

}  // namespace

void StallSignal::Install() {
  struct sigaction current = {};
  if (sigaction(SIGUSR1, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction ours = {};
  ours.sa_handler = [](int) { asked = true; };
  ours.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &ours, nullptr);
}

bool StallSignal::Take() { return asked.exchange(false); }

}  // namespace byteps
