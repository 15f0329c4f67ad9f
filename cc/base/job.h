// What rendezvous hands to every process of a job. Built in Python (tf_byteps/config/ and
// tf_byteps/rendezvous/), the only place that reads the environment; the engine is configured by
// this struct and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace byteps {

// Where a process listens.
struct Endpoint {
  std::string host;  // an IPv4 or IPv6 address, or a name that resolves to one
  uint16_t port = 0;

  std::string ToString() const { return host + ":" + std::to_string(port); }
};

// How bytes travel between workers and servers.
enum class Transport {
  kTcp,
  kRdmaOrTcp,  // RDMA where both ends have it
  kRdma,       // or not at all
};

// What cc/van/rdma is told about the network; the defaults let it look by itself.
struct RdmaOptions {
  // "mlx5_0", "mlx5_0:1" (port), or several with commas, between which connections take turns.
  // Empty: the device that has `address`, else the first one whose port is up.
  std::string devices;
  std::string address;     // this process's own, in digits, or empty
  int32_t gid_index = -1;  // -1: RoCE v2 with the device's IPv4 address, if there is one
  int32_t traffic_class = 0;
  int32_t service_level = 0;
  double spin = 0;  // seconds that a thread goes on polling before it sleeps; 0: none
};

// How tensors are cut, and how much of them may be in flight. Sizes are bytes.
struct FlowOptions {
  uint64_t part_bytes = 0;    // longest part of a tensor; 0: see coordinator/state/placement.h
  uint64_t credit_bytes = 0;  // in flight to all servers (worker/part_queue.h); 0: see Credit
  uint64_t link_bytes_per_second = 0;  // of the slowest worker's link; 0: measured

  // The credit where the longest part has so many bytes. Sixteen parts keep all servers busy while
  // acknowledgements are in flight; more would only put more in front of what is urgent, and let
  // workers get far apart in what they have sent, so that sums wait.
  uint64_t Credit(uint64_t longest_part_bytes) const {
    if (credit_bytes > 0) return credit_bytes;
    constexpr uint64_t kLeast = uint64_t{2} << 20, kMost = uint64_t{16} << 20;
    return std::clamp(16 * longest_part_bytes, kLeast, kMost);
  }

  // What all servers together may keep back of it until a reply takes it along: little enough for
  // the least credit that there is (coordinator/state/tuning.h).
  uint64_t CreditKeptBack() const { return std::min<uint64_t>(Credit(0) / 8, 64 * 1024); }
};

// How long things may take, in seconds.
struct TimeoutOptions {
  double connect_timeout = 60;      // until a peer must have answered the handshake
  double operation_timeout = 1800;  // until an enqueued tensor must be done; 0: no limit
  double stall_warning = 60;        // a tensor that waits longer is reported; 0: none is
  double stall_shutdown = 0;        // one that waits longer ends the worker's job; 0: none does
  double heartbeat_interval = 5;
  double heartbeat_timeout = 30;  // a peer that is silent for so long is lost
  // How long a process that hosts a server waits for the others' goodbye.
  double shutdown_timeout = 60;
};

// How bytes get from process to process.
struct NetworkOptions {
  Transport transport = Transport::kTcp;
  RdmaOptions rdma;
  int32_t connections_per_server = 1;
  int32_t io_threads = 2;        // threads that move bytes, per Van
  bool read_peer_memory = true;  // between processes of one host, see van/van.h
  // Where no port is given, one of these that is free is listened at; empty: any.
  std::vector<uint16_t> ports;
};

struct SecurityOptions {
  std::string secret;  // what processes prove to each other that they know; empty: nothing
  bool tls = false;    // all that goes through sockets is encrypted; needs a secret
};

struct CompressionOptions {
  uint64_t min_compress_bytes = 64 * 1024;  // shorter tensors are sent as they are
  // Float32 that fits in 16 bits is sent so through sockets (codec/narrow.h).
  bool narrow = false;
};

// What can be set in the engine. tf_byteps/config/options.py takes its defaults from here. Python
// decides for each process what the transport is, how many threads there are, how long they spin,
// and `narrow`: their defaults here are those of C++ tests.
struct EngineOptions {
  FlowOptions flow;
  TimeoutOptions timeouts;
  NetworkOptions network;
  SecurityOptions security;
  CompressionOptions compression;
  bool deterministic = false;  // add contributions in rank order (server/reduction.cc)
  int32_t max_lag = 2;  // rounds of a tensor that a worker may be behind (server/round_history.h)
  // Training goes on when a server is lost, as long as there are others
  // (coordinator/state/failover.h).
  bool server_failover = true;
  std::vector<std::string> nccl_libraries;  // names to open NCCL by, in turn; empty: its usual one
};

// One membership epoch of a job: who takes part and where they are.
struct JobDescription {
  std::string job_id;
  uint32_t epoch = 0;
  std::vector<std::string> worker_hosts;   // host id (protocol rule 17) of each worker, by rank
  std::vector<std::string> server_hosts;   // host id of each server, by rank
  std::vector<Endpoint> server_endpoints;  // by rank
  // By rank: the worker whose process each server is in, or -1. May be empty: no worker hosts any.
  std::vector<int32_t> server_workers;
  Endpoint coordinator_endpoint;
  // Every worker has a GPU that it shares with no other worker, and some have a host in common:
  // those of a host reduce among themselves first (TensorDescription::per_host).
  bool gpus_share_hosts = false;
  EngineOptions options;

  int32_t num_workers() const { return static_cast<int32_t>(worker_hosts.size()); }
  int32_t num_servers() const { return static_cast<int32_t>(server_hosts.size()); }

  // Connections of a worker to each server.
  size_t PathsPerServer() const { return std::max(1, options.network.connections_per_server); }

  // The worker whose process a server is in, or -1.
  int32_t HostOfServer(int32_t server) const {
    return server_workers.empty() ? -1 : server_workers[server];
  }
  // " (in the process of worker 2)", or "": to go after a server's name.
  std::string InProcessOf(int32_t server) const {
    const int32_t worker = HostOfServer(server);
    return worker < 0 ? "" : " (in the process of worker " + std::to_string(worker) + ")";
  }

  // Whether training may go on when a server is lost: there is another, and one that does not end
  // with its worker.
  bool MayLoseServers() const {
    bool is_alone = server_workers.empty();
    for (const int32_t worker : server_workers) is_alone = is_alone || worker < 0;
    return options.server_failover && num_servers() > 1 && is_alone;
  }

  // Whether credit and parts follow what the links turn out to carry (coordinator/state/tuning.h).
  // Not on one host, where there are no links.
  bool TunesItself() const {
    return HasLinks() && (options.flow.credit_bytes == 0 || options.flow.part_bytes == 0);
  }

  // Whether tensors leave their hosts.
  bool HasLinks() const {
    if (num_servers() == 0) return false;
    std::set<std::string> hosts(worker_hosts.begin(), worker_hosts.end());
    hosts.insert(server_hosts.begin(), server_hosts.end());
    return hosts.size() > 1;
  }
};

}  // namespace byteps
