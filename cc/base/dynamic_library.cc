#include "cc/base/dynamic_library.h"

#include <dlfcn.h>

namespace byteps {

namespace {

// The sanitizers refuse to open libraries so: their own functions must come first.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kIsolated = 0;
#else
constexpr int kIsolated = RTLD_DEEPBIND;
#endif

}  // namespace

Status DynamicLibrary::Open(const std::vector<std::string>& names, bool isolated) {
  std::string reasons;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | (isolated ? kIsolated : 0));
    if (handle_ != nullptr) {
      name_ = name;
      return OkStatus();
    }
    const char* const reason = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason != nullptr ? reason : name);
  }
  return FailedPrecondition(reasons);
}

Status DynamicLibrary::FindAddress(const char* symbol, void** address) const {
  *address = dlsym(handle_, symbol);
  if (*address != nullptr) return OkStatus();
  return FailedPrecondition(name_ + " has no " + symbol + ": it is too old");
}

}  // namespace byteps
