// DynamicLibrary: a shared library that is looked for at run time, so that one build works on
// machines with and without it.
#pragma once

#include <string>
#include <vector>

#include "cc/base/status.h"

namespace byteps {

class DynamicLibrary {
 public:
  // Opens the first of `names` that is there: file names, which the loader looks for (a library
  // that the process has loaded already is found by its name alone), or paths.
  // FAILED_PRECONDITION with the loader's own text if none is.
  //
  // `isolated`: what it needs it finds in itself and its dependencies, also where another library
  // has made the same names global for the process.
  Status Open(const std::vector<std::string>& names, bool isolated = false);

  // FAILED_PRECONDITION if the library has no such symbol: it is too old.
  template <typename Function>
  Status Find(const char* symbol, Function** function) const {
    return FindAddress(symbol, reinterpret_cast<void**>(function));
  }

  const std::string& name() const { return name_; }

 private:
  Status FindAddress(const char* symbol, void** address) const;

  // Never closed: drivers keep threads and handlers for the rest of the process.
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace byteps
