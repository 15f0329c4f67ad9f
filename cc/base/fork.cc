#include "cc/base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace byteps {
namespace {

// Plain memory and system calls only: between fork and exec nothing else is safe in the child.
constexpr int kMaxDescriptors = 1 << 16;
std::atomic<bool> g_registered[kMaxDescriptors];
std::atomic<int> g_highest{-1};
std::atomic<bool> g_forked{false};

void InChild() {
  const int highest = g_highest.load();
  for (int descriptor = 0; descriptor <= highest; ++descriptor) {
    if (!g_registered[descriptor].exchange(false)) continue;
    close(descriptor);
    g_forked.store(true);
  }
}

}  // namespace

void CloseInForkedChild(int descriptor) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, InChild); });
  if (descriptor < 0 || descriptor >= kMaxDescriptors) return;
  g_registered[descriptor].store(true);
  int highest = g_highest.load();
  while (highest < descriptor && !g_highest.compare_exchange_weak(highest, descriptor)) {
  }
}

void ForgetDescriptor(int descriptor) {
  if (descriptor >= 0 && descriptor < kMaxDescriptors) g_registered[descriptor].store(false);
}

Status CheckNotForked() {
  if (!g_forked.load()) return OkStatus();
  return FailedPrecondition(
      "this process was forked from one in which tf_byteps runs; its connections stay with the "
      "parent. Start child "
      "processes with the \"spawn\" method, or fork before tf_byteps.init()");
}

}  // namespace byteps
