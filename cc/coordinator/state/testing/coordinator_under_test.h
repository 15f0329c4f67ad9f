// CoordinatorUnderTest: a CoordinatorState with what a Coordinator has around it: peers that come
// and speak, a time that the test sets, and what each peer would have been sent.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/coordinator/state/coordinator_state.h"

namespace byteps {

inline constexpr int64_t kTestSecond = 1000000000;

class CoordinatorUnderTest {
 public:
  // Servers on hosts of their own; heartbeats every second, and 10 s of silence are a loss.
  static JobDescription Job(int32_t workers = 2, int32_t servers = 2) {
    JobDescription job;
    job.job_id = "a job";
    job.worker_hosts.assign(workers, "host");
    for (int32_t rank = 0; rank < servers; ++rank) {
      job.server_hosts.push_back("server host " + std::to_string(rank));
      job.server_endpoints.push_back({"10.0.1." + std::to_string(rank), 9});
    }
    job.options.flow.part_bytes = 1000;
    job.options.flow.credit_bytes = 4000;
    job.options.timeouts.heartbeat_interval = 1;
    job.options.timeouts.heartbeat_timeout = 10;
    job.options.timeouts.connect_timeout = 60;
    job.options.timeouts.shutdown_timeout = 20;
    return job;
  }
  explicit CoordinatorUnderTest(const JobDescription& job = Job())
      : state(job, job.options.timeouts, now_ns) {}

  // Has something happen now.
  template <class Event>
  CoordinatorEffects Do(const Event& event) {
    CoordinatorEffects effects;
    effects.now_ns = now_ns;
    event(&effects);
    return effects;
  }

  JobPeer* worker(int32_t rank) { return state.peers.Find(Role::kWorker, rank); }
  JobPeer* server(int32_t rank) { return state.peers.Find(Role::kServer, rank); }

  CoordinatorEffects Open(JobPeer* peer, bool again = false) {
    return Do([&](CoordinatorEffects* effects) {
      const std::string name =
          std::string(RoleName(peer->role)) + " " + std::to_string(peer->rank) + " at 10.0.0.1:1";
      state.connections.OnOpen(peer, name, again, effects);
    });
  }
  void OpenAll() {
    for (JobPeer& peer : state.peers) Open(&peer);
  }
  // UNAVAILABLE: it may come again.
  CoordinatorEffects Close(JobPeer* peer, const Status& reason) {
    return Do(
        [&](CoordinatorEffects* effects) { state.connections.OnClosed(peer, reason, effects); });
  }
  CoordinatorEffects CloseForGood(JobPeer* peer) {
    return Close(peer, FailedPrecondition("it broke"));
  }
  CoordinatorEffects Say(JobPeer* peer, const ControlMessage& message, Status* status = nullptr) {
    return Do([&](CoordinatorEffects* effects) {
      const Status said = state.messages.OnMessage(peer, message, effects);
      if (status != nullptr)
        *status = said;
      else
        EXPECT_TRUE(said.ok()) << said.ToString();
    });
  }
  std::string Refusal(JobPeer* peer, const ControlMessage& message) {
    Status status;
    Say(peer, message, &status);
    return status.message();
  }
  CoordinatorEffects Beat() {
    return Do([&](CoordinatorEffects* effects) { state.connections.OnBeat(effects); });
  }
  CoordinatorEffects Deferred() {
    return Do([&](CoordinatorEffects* effects) { state.OnDeferred(effects); });
  }
  Status Readmit(int32_t rank) {
    return state.losses.Readmit(rank, {"10.0.2.1", 9}, "another host", now_ns);
  }

  // Server 0 is lost, all workers have said so, and the other server has the new table.
  void FailOver() {
    CloseForGood(server(0));
    for (JobPeer& peer : state.peers) {
      if (peer.role == Role::kWorker) Say(&peer, PartProgress{state.failover.version(), {}});
    }
    Say(server(1), TableAck{state.updates.next_id() - 1});
  }

  // A worker declares a tensor of so many elements, of which the parts are at both servers.
  static DeclareRequest Declaration(const std::string& name, int64_t elements = 500) {
    DeclareRequest request;
    request.request_id = 1;
    TensorDescription tensor;
    tensor.name = name;
    tensor.shape = {elements};
    request.tensors.push_back(tensor);
    return request;
  }

  // What a peer is sent by that, without heartbeats.
  std::vector<ControlMessage> Heard(const CoordinatorEffects& effects, const JobPeer* peer) const {
    std::vector<ControlMessage> heard;
    for (const CoordinatorEffects::Outgoing& out : effects.frames) {
      if (out.peer != state.peers.IndexOf(*peer) || out.is_heartbeat) continue;
      const std::string bytes(static_cast<const char*>(out.frame.payload),
                              out.frame.header.payload_bytes);
      heard.emplace_back();
      EXPECT_TRUE(DecodeControl(bytes, &heard.back()).ok());
    }
    return heard;
  }
  // Whether these are all that it is sent, in that order.
  template <class... Messages>
  bool Hears(const CoordinatorEffects& effects, const JobPeer* peer) const {
    const std::vector<ControlMessage> heard = Heard(effects, peer);
    size_t next = 0;
    return heard.size() == sizeof...(Messages) &&
           (... && std::holds_alternative<Messages>(heard[next++]));
  }

  int64_t now_ns = 100 * kTestSecond;
  CoordinatorState state;
};

}  // namespace byteps
