// This process's worker: from its start to its end, and what it is told of rounds.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/job.h"
#include "cc/engine/engine.h"
#include "cc/python/bindings.h"
#include "cc/python/counters.h"
#include "cc/python/without_lock.h"
#include "cc/wire/handshake.h"
#include "cc/worker/worker.h"

namespace py = pybind11;

namespace byteps {
namespace {

Status NotRunning() {
  return FailedPrecondition("tf_byteps is not running here: call tf_byteps.init() first");
}

py::dict ResidualsDict() {
  const std::shared_ptr<Worker> worker = CurrentWorker();
  std::map<std::string, Residual> residuals;
  if (worker != nullptr) {
    WithoutLock released;
    residuals = worker->Residuals();
  }
  py::dict result;
  for (const auto& [name, residual] : residuals) {
    const py::array_t<float> values(static_cast<py::ssize_t>(residual.values.size()),
                                    residual.values.data());
    result[py::str(name)] = py::make_tuple(residual.codec, values);
  }
  return result;
}

void RestoreResiduals(
    const std::map<std::string, std::tuple<std::string, std::vector<float>>>& given) {
  std::map<std::string, Residual> residuals;
  for (const auto& [name, residual] : given)
    residuals[name] = {std::get<0>(residual), std::get<1>(residual)};
  const std::shared_ptr<Worker> worker = CurrentWorker();
  if (worker != nullptr) worker->RestoreResiduals(std::move(residuals));
}

py::object LostPeerTuple() {
  const std::shared_ptr<Worker> worker = CurrentWorker();
  const std::optional<LostPeer> lost = worker != nullptr ? worker->lost_peer() : std::nullopt;
  if (!lost.has_value()) return py::none();
  Endpoint address;
  if (lost->role == Role::kCoordinator) address = worker->job().coordinator_endpoint;
  if (lost->role == Role::kServer) address = worker->job().server_endpoints[lost->rank];
  const bool listens = lost->role != Role::kWorker;
  return py::make_tuple(lost->role == Role::kCoordinator ? "scheduler" : RoleName(lost->role),
                        lost->rank, listens ? address.ToString() : "");
}

void DefineJoin(py::module_& module) {
  module.def(
      "begin_join",
      [] {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        ThrowIfError(worker != nullptr ? worker->BeginJoin() : NotRunning());
      },
      ReleaseLock(), "This worker has no more data: see Worker::BeginJoin.");
  module.def(
      "wait_for_join",
      [](double seconds) {
        std::optional<int32_t> last;
        const std::shared_ptr<Worker> worker = CurrentWorker();
        ThrowIfError(worker != nullptr ? worker->WaitForJoin(seconds, &last) : NotRunning());
        return last;
      },
      py::arg("seconds"), ReleaseLock(),
      "The last worker to join, once all have; None after so many seconds.");
}

// The rounds of tensors, as a training begins, ends or is left.
void DefineRounds(py::module_& module) {
  module.def(
      "next_rounds",
      [] {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        return worker != nullptr ? worker->NextRounds() : std::map<std::string, uint64_t>();
      },
      ReleaseLock(), "The round of the next exchange of each tensor that is known, by name.");
  module.def(
      "give_up_rounds",
      [](const std::vector<std::string>& names, const std::string& reason) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->GiveUpRounds(names, reason);
      },
      py::arg("names"), py::arg("reason"), ReleaseLock(),
      "Gives up the next round of these tensors: others that wait for this worker get `reason`.");
  module.def(
      "leave",
      [](const std::vector<std::string>& names, uint64_t trainings, const std::string& reason) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->Leave(names, trainings, reason);
      },
      py::arg("names"), py::arg("trainings"), py::arg("reason"), ReleaseLock(),
      "Gives up these tensors' rounds of a training, the last of so many: see Exchanges::Leave.");
  module.def(
      "tell_left",
      [] {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->TellLeft();
      },
      ReleaseLock(), "The others get the reason of `leave` now: not with the next exchange.");
  module.def(
      "skip_to_rounds",
      [](const std::map<std::string, uint64_t>& rounds) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->SkipToRounds(rounds);
      },
      py::arg("rounds"), ReleaseLock(), "Tensors' next exchanges have at least these rounds.");
  module.def(
      "begin_stores",
      [](const std::vector<std::string>& names) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->BeginStores(names);
      },
      py::arg("names"), ReleaseLock(),
      "The next exchange of each of these begins its asynchronous store anew.");
  module.def(
      "is_requested",
      [](const std::string& name) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        return worker != nullptr && worker->IsRequested(name);
      },
      py::arg("name"), ReleaseLock(), "Whether a server asks for the tensor's next exchange.");
}

}  // namespace

void DefineWorker(py::module_& module) {
  module.def(
      "start_worker",
      [](const JobDescription& job, int32_t rank, int32_t local_rank, int32_t local_size) {
        ThrowIfError(StartWorker(job, {rank, job.num_workers(), local_rank, local_size}));
      },
      py::arg("job"), py::arg("rank"), py::arg("local_rank"), py::arg("local_size"), ReleaseLock());
  module.def(
      "stop_worker", &StopWorker, py::arg("lost") = "", ReleaseLock(),
      "Says goodbye; pending exchanges end with CANCELLED. `lost`: why this worker cannot go "
      "on, if all others have to go back, too.");
  module.def("worker_running", [] { return CurrentWorker() != nullptr; });
  module.def("worker_failure", [] {
    const std::shared_ptr<Worker> worker = CurrentWorker();
    return worker != nullptr ? worker->failure().message() : std::string();
  });
  module.def(
      "lost_peer", &LostPeerTuple,
      "Who ended the job by being lost: role, rank, and where it listened; None: nobody was.");
  module.def("worker_counters", &WorkerCountersDict);
  module.def("arrival_lags", [] {
    const std::shared_ptr<Worker> worker = CurrentWorker();
    return worker != nullptr ? LagsList(worker->arrival_lags()) : py::list();
  });
  DefineRounds(module);
  DefineJoin(module);
  module.def("residuals", &ResidualsDict,
             "Error feedback of this worker's tensors: {name: (codec, float32 array)}.");
  module.def("restore_residuals", &RestoreResiduals, py::arg("residuals"),
             "Lets tensors go on, with their next exchange, with what `residuals` returned.");
}

}  // namespace byteps
