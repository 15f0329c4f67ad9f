// The scheduler's coordinator, and summation servers.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "cc/base/fork.h"
#include "cc/base/job.h"
#include "cc/coordinator/coordinator.h"
#include "cc/python/bindings.h"
#include "cc/python/counters.h"
#include "cc/python/without_lock.h"
#include "cc/server/server.h"

namespace py = pybind11;

namespace byteps {
namespace {

// A forked child inherits the object but none of its threads: to destroy it would be to wait for
// them for ever.
template <typename Peer>
struct DeleteUnlessForked {
  void operator()(Peer* peer) const {
    if (CheckNotForked().ok()) delete peer;
  }
};
template <typename Peer>
using PeerHolder = std::unique_ptr<Peer, DeleteUnlessForked<Peer>>;

template <typename Peer>
PeerHolder<Peer> Listening(const std::string& address, uint16_t port,
                           const EngineOptions& options) {
  PeerHolder<Peer> peer(new Peer(options));
  ThrowIfError(peer->Listen(address, port));
  return peer;
}

PeerHolder<Server> ListeningServer(const std::string& address, uint16_t port,
                                   const EngineOptions& options, std::shared_ptr<KeptTables> kept) {
  PeerHolder<Server> server(new Server(options, /*van=*/nullptr, std::move(kept)));
  ThrowIfError(server->Listen(address, port));
  return server;
}

void StartServerTimeline(Server& server, uint64_t max_replies) {
  ServerTimeline* const timeline = server.timeline();
  if (timeline == nullptr) throw EngineError{FailedPrecondition("the server has no job yet")};
  timeline->Start(max_replies);
}

std::pair<std::string, uint64_t> TakeServerTimeline(Server& server, int32_t rank, int64_t process,
                                                    int64_t epoch) {
  ServerTimeline* const timeline = server.timeline();
  if (timeline == nullptr) return {"", 0};
  const ServerTimeline::Recording recording = timeline->Take();
  return {ServerTimeline::Lines(recording, rank, process, epoch), recording.dropped};
}

}  // namespace

void DefineProcesses(py::module_& module) {
  py::class_<Coordinator, PeerHolder<Coordinator>>(
      module, "Coordinator", "Tensor table and liveness of a job; lives in the scheduler.")
      .def(py::init(&Listening<Coordinator>), py::arg("address"), py::arg("port"),
           py::arg("options"))
      .def_property_readonly("endpoint", &Coordinator::endpoint)
      .def(
          "start",
          [](Coordinator& self, const JobDescription& job) { ThrowIfError(self.Start(job)); },
          py::arg("job"), ReleaseLock())
      .def("wait", &Coordinator::Wait, py::arg("timeout"), ReleaseLock(),
           "True once every worker has left or somebody was lost; False after `timeout` seconds.")
      .def_property_readonly("failure", &Coordinator::failure)
      .def_property_readonly("lost_servers", &Coordinator::lost_servers)
      .def(
          "readmit",
          [](Coordinator& self, int32_t rank, const Endpoint& endpoint, const std::string& host) {
            ThrowIfError(self.Readmit(rank, endpoint, host));
          },
          py::arg("rank"), py::arg("endpoint"), py::arg("host"), ReleaseLock(),
          "A lost server has been started again and is about to join.")
      .def("stop", &Coordinator::Stop, ReleaseLock());
  py::class_<KeptTables, std::shared_ptr<KeptTables>>(
      module, "KeptTables", "Rows that a server process keeps between epochs of an elastic job.")
      .def(py::init<>());
  py::class_<Server, PeerHolder<Server>>(
      module, "Server", "A summation server, in a process of its own or colocated in a worker's.")
      .def(py::init(&ListeningServer), py::arg("address"), py::arg("port"), py::arg("options"),
           py::arg("kept") = nullptr)
      .def_property_readonly("endpoint", &Server::endpoint)
      .def(
          "start",
          [](Server& self, const JobDescription& job, int32_t rank) {
            ThrowIfError(self.Start(job, rank));
          },
          py::arg("job"), py::arg("rank"), ReleaseLock())
      .def("wait", &Server::Wait, py::arg("timeout"), ReleaseLock(),
           "True once the job is over or the scheduler is lost; False after `timeout` seconds.")
      .def_property_readonly("failure", &Server::failure)
      .def("counters", &ServerCountersDict)
      .def("tensor_counters", &TensorCountersList)
      .def("arrival_lags", [](const Server& self) { return LagsList(self.arrival_lags()); })
      .def("timeline_start", &StartServerTimeline, py::arg("max_replies"),
           "Begins to record pushes and replies, with nothing recorded. After `start`.")
      .def("timeline_take", &TakeServerTimeline, py::arg("rank"), py::arg("process"),
           py::arg("epoch"), ReleaseLock(),
           "What was recorded since the last call, as lines of a Chrome trace, and how many more "
           "there were than could be recorded.")
      .def("stop", &Server::Stop, ReleaseLock());
}

}  // namespace byteps
