// What workers and servers have counted, as Python sees it. With the interpreter's lock held.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "cc/server/server.h"

namespace byteps {

// Of this process's worker; empty if it is none.
pybind11::dict WorkerCountersDict();
pybind11::dict ServerCountersDict(const Server& server);
// One dict for each tensor.
pybind11::list TensorCountersList(const Server& server);
// Milliseconds, by rank.
pybind11::list LagsList(const std::vector<WorkerLag>& lags);

}  // namespace byteps
