// What the sources of tf_byteps._engine share. Each defines a part of the module; all is called
// with the interpreter's lock held, once, when Python imports it.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "cc/base/status.h"

namespace byteps {

// Becomes tf_byteps._engine.EngineError.
class EngineError : public std::exception {
 public:
  explicit EngineError(Status why) : status(std::move(why)) {}
  const char* what() const noexcept override { return status.message().c_str(); }

  const Status status;
};

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) throw EngineError{status};
}

// Options of the engine, as nested as cc/base/job.h has them.
void DefineOptions(pybind11::module_& module);
// Endpoint and JobDescription; after the options.
void DefineJob(pybind11::module_& module);
// Coordinator and Server; after the job.
void DefineProcesses(pybind11::module_& module);
// This process's worker.
void DefineWorker(pybind11::module_& module);
// Exchanges, their Handle, and declarations.
void DefineExchanges(pybind11::module_& module);
// What a process records.
void DefineTimeline(pybind11::module_& module);
// What a process says when it ends with code 0.
void DefineGoodEnd(pybind11::module_& module);

}  // namespace byteps
