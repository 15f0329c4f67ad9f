// WithoutLock: what may wait is called without the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace byteps {

// Releases the interpreter's lock for a scope. Python ends a daemon thread that asks for the lock
// while the interpreter goes away; unlike that of pybind11's own class, this destructor lets it:
// otherwise the process would be aborted. So nothing may be thrown in the scope on such a thread.
class WithoutLock {
 public:
  WithoutLock() : thread_(PyEval_SaveThread()) {}
  // NOLINTNEXTLINE(bugprone-*)
  ~WithoutLock() noexcept(false) { PyEval_RestoreThread(thread_); }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* const thread_;
};

// Of a function that Python calls.
using ReleaseLock = pybind11::call_guard<WithoutLock>;

}  // namespace byteps
