// cc/base/job.h for Python: who takes part in a job, and what can be set in the engine.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "cc/base/job.h"
#include "cc/python/bindings.h"

namespace py = pybind11;

namespace byteps {
namespace {

Transport TransportByName(const std::string& name) {
  if (name == "tcp") return Transport::kTcp;
  if (name == "auto") return Transport::kRdmaOrTcp;
  if (name == "rdma") return Transport::kRdma;
  throw EngineError{InvalidArgument("unknown transport \"" + name + "\"; use tcp, rdma or auto")};
}

}  // namespace

void DefineOptions(py::module_& module) {
  py::class_<RdmaOptions>(module, "RdmaOptions", "What the engine is told about RDMA.")
      .def(py::init<>())
      .def_readwrite("devices", &RdmaOptions::devices)
      .def_readwrite("address", &RdmaOptions::address)
      .def_readwrite("gid_index", &RdmaOptions::gid_index)
      .def_readwrite("traffic_class", &RdmaOptions::traffic_class)
      .def_readwrite("service_level", &RdmaOptions::service_level)
      .def_readwrite("spin", &RdmaOptions::spin);
  py::class_<FlowOptions>(module, "FlowOptions", "How tensors are cut, and how many are in flight.")
      .def_readwrite("part_bytes", &FlowOptions::part_bytes)
      .def_readwrite("credit_bytes", &FlowOptions::credit_bytes)
      .def_readwrite("link_bytes_per_second", &FlowOptions::link_bytes_per_second)
      .def("credit", &FlowOptions::Credit, py::arg("longest_part_bytes"));
  py::class_<TimeoutOptions>(module, "TimeoutOptions", "How long things may take, in seconds.")
      .def_readwrite("connect_timeout", &TimeoutOptions::connect_timeout)
      .def_readwrite("operation_timeout", &TimeoutOptions::operation_timeout)
      .def_readwrite("stall_warning", &TimeoutOptions::stall_warning)
      .def_readwrite("stall_shutdown", &TimeoutOptions::stall_shutdown)
      .def_readwrite("heartbeat_interval", &TimeoutOptions::heartbeat_interval)
      .def_readwrite("heartbeat_timeout", &TimeoutOptions::heartbeat_timeout)
      .def_readwrite("shutdown_timeout", &TimeoutOptions::shutdown_timeout);
  py::class_<NetworkOptions>(module, "NetworkOptions", "How bytes get from process to process.")
      .def_property("transport", nullptr,
                    [](NetworkOptions& self, const std::string& name) {
                      self.transport = TransportByName(name);
                    })
      .def_readwrite("rdma", &NetworkOptions::rdma)
      .def_readwrite("connections_per_server", &NetworkOptions::connections_per_server)
      .def_readwrite("io_threads", &NetworkOptions::io_threads)
      .def_readwrite("read_peer_memory", &NetworkOptions::read_peer_memory)
      .def_readwrite("ports", &NetworkOptions::ports);
  py::class_<SecurityOptions>(module, "SecurityOptions", "Who may take part, and read.")
      .def_readwrite("secret", &SecurityOptions::secret)
      .def_readwrite("tls", &SecurityOptions::tls);
  py::class_<CompressionOptions>(module, "CompressionOptions", "What is sent in fewer bytes.")
      .def_readwrite("min_compress_bytes", &CompressionOptions::min_compress_bytes)
      .def_readwrite("narrow", &CompressionOptions::narrow);
  py::class_<EngineOptions>(module, "EngineOptions", "What can be set in the engine.")
      .def(py::init<>())
      .def_readwrite("flow", &EngineOptions::flow)
      .def_readwrite("timeouts", &EngineOptions::timeouts)
      .def_readwrite("network", &EngineOptions::network)
      .def_readwrite("security", &EngineOptions::security)
      .def_readwrite("compression", &EngineOptions::compression)
      .def_readwrite("deterministic", &EngineOptions::deterministic)
      .def_readwrite("max_lag", &EngineOptions::max_lag)
      .def_readwrite("server_failover", &EngineOptions::server_failover)
      .def_readwrite("nccl_libraries", &EngineOptions::nccl_libraries);
}

void DefineJob(py::module_& module) {
  py::class_<Endpoint>(module, "Endpoint", "Where a process listens.")
      .def(
          py::init([](std::string host, uint16_t port) { return Endpoint{std::move(host), port}; }),
          py::arg("host"), py::arg("port"))
      .def_readwrite("host", &Endpoint::host)
      .def_readwrite("port", &Endpoint::port)
      .def("__repr__", &Endpoint::ToString);
  py::class_<JobDescription>(module, "JobDescription",
                             "One membership epoch of a job: who takes part, and where.")
      .def(py::init<>())
      .def_readwrite("job_id", &JobDescription::job_id)
      .def_readwrite("epoch", &JobDescription::epoch)
      .def_readwrite("worker_hosts", &JobDescription::worker_hosts)
      .def_readwrite("server_hosts", &JobDescription::server_hosts)
      .def_readwrite("server_endpoints", &JobDescription::server_endpoints)
      .def_readwrite("server_workers", &JobDescription::server_workers)
      .def_readwrite("coordinator_endpoint", &JobDescription::coordinator_endpoint)
      .def_readwrite("gpus_share_hosts", &JobDescription::gpus_share_hosts)
      .def_readwrite("options", &JobDescription::options);
}

}  // namespace byteps
