// LocalGroup: the workers of a host, a GPU each, and their exchanges in the order of one log.
//
// Every worker with a GPU has one. A tensor that is computed is reported to local rank 0, where the
// host's sequencer is; its log (gpu/launch_log.h) comes back to all, and every rank does what the
// log says, on streams of its own. The streams that compute never wait.
//
// One host: one collective gives all ranks the result (one_host_stages.h). Several hosts, for each
// part of a tensor: reduce to the part's owner -> copy out -> exchange with the servers -> copy in
// -> broadcast (host_stages.h). Each part goes its own way, so that all stages are busy with
// different parts at one time. A worker that is alone on its host skips what others would take part
// in, and the log. Where the streams of all ranks can wait for servers, there is no broadcast: the
// results come to memory that the ranks share, and each stream copies them from there
// (stream_results.h).
//
// What happens when is decided by a GroupState (staging/state), which has no lock, device, thread,
// connection or clock. LocalGroup has the mutex, tells the state what happens, and performs what
// that decides (LocalGroup::Transaction). Those who have the device work know no more of it than
// StageEvents.
//
// Threads. A call of the device's may take until a stream goes on that waits for servers: a module
// that CUDA loads meanwhile, for whoever uses the GPU, keeps all others out until then. So threads
// that bring what a stream waits for call nothing of the device's, nor wait for who does: those of
// the worker, which receive, and the one that sees copies to the host end. What follows from what
// they see, and needs the device, is done on one thread, launcher_. What the worker encodes, which
// takes longer than the copy to the host, is done on several, those of HostStages. Sums that the
// device decodes wait for each other, so one of their own gives them to it (DecodeQueue). Another
// one records what a stream has copied, if no exchange that begins does so before (StreamCopies).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/work_threads.h"
#include "cc/gpu/rank_device.h"
#include "cc/gpu/sequencer.h"
#include "cc/staging/device_request.h"
#include "cc/staging/host_channel.h"
#include "cc/staging/host_stages.h"
#include "cc/staging/one_host_stages.h"
#include "cc/staging/stage_events.h"
#include "cc/staging/state/group_state.h"
#include "cc/staging/state/host_place.h"
#include "cc/staging/state/launches.h"
#include "cc/staging/state/ready_together.h"
#include "cc/staging/stream_copies.h"
#include "cc/staging/stream_results.h"
#include "cc/worker/worker.h"

namespace byteps {

// Thread-safe.
class LocalGroup : public WorkerListener,
                   private StageEvents,
                   private HostChannel::Handler,
                   public std::enable_shared_from_this<LocalGroup> {
 public:
  // Begins to connect the host's workers; what is enqueued meanwhile waits. The worker keeps the
  // group and ends it, so that its own callbacks find it. `device` must be the only owner's.
  // `link`, to the other workers of the host: null for one by TCP.
  static Status Create(Worker* worker, std::shared_ptr<RankDevice> device,
                       std::shared_ptr<LocalGroup>* group, std::unique_ptr<Van> link = nullptr);
  ~LocalGroup() override;

  // Whether it can exchange a tensor: rows are gathered in jobs on one host only.
  bool CanExchange(const TensorDescription& tensor) const {
    return tensor.kind != ExchangeKind::kGather || place_.is_one_host();
  }

  // Exchanges tensors whose `input` and `output` (and what `allocate_output` returns) are in the
  // device's memory. `stream` is where the inputs are computed, possibly later, and in whose order
  // the outputs' memory became free. Otherwise as Enqueue of engine/engine.h; input and output may
  // be the same memory. Tensors of one call cost the host less than one by one: they have one event
  // on the stream, one report and, where all ranks have them at one time, one collective.
  void Enqueue(CudaStreamHandle stream, std::vector<DeviceRequest> together);
  void Enqueue(CudaStreamHandle stream, ExchangeRequest request,
               std::function<void(const DeviceEvent& end)> on_submitted = nullptr) {
    std::vector<DeviceRequest> one(1);
    one[0].request = std::move(request);
    one[0].on_submitted = std::move(on_submitted);
    Enqueue(stream, std::move(one));
  }

  void OnRelay(int32_t from, const std::string& bytes) override;
  void OnGivenUp(uint64_t key, uint64_t round, const Status& reason) override;
  bool GivesUpInTurn(const std::string& name, const std::string& reason) override;
  void OnFailure(const Status& reason) override { Fail(reason); }
  void OnStop() override;

 private:
  class Transaction;

  LocalGroup(Worker* worker, std::shared_ptr<RankDevice> device);
  Status Start(std::unique_ptr<Van> link);

  // ---- local_group.cc: connecting, the log, the end
  Status OnInvitation(const GroupInvitation& invitation) override;
  Status OnSlice(const LogSlice& slice) override;
  void OnEndPublished() override;
  void OnRankLost(int32_t local_rank, const Status& reason) override;
  void OnChannelError(const Status& reason) override { Fail(reason); }
  Status Follow(const LaunchEntry& entry);
  Status MayConnect();
  // Whether all ranks have come to the log's end.
  bool LeaveInOrder();
  // Whether a condition of the state is reached in time.
  template <class Condition>
  bool WaitUntil(const Condition& is_reached);
  void StopThreads();

  // ---- local_group_tensors.cc: tensors, from Enqueue to their ends
  // Null if its request was refused.
  TensorPointer NewTensor(CudaStreamHandle stream, DeviceRequest request);
  bool StreamCanWait(const TensorDescription& tensor, bool shares_results);
  Status WhenComputed(CudaStreamHandle stream, const std::vector<TensorPointer>& tensors);
  void OnComputed(const TensorPointer& tensor, const Status& status);
  // The worker places it: at once, or in turn with others of its name.
  void PlaceInTurn(const TensorPointer& tensor);
  void ContinuePlacing();
  void PlaceWaiting();
  void Place(const TensorPointer& tensor);
  void OnPlaced(const TensorPointer& tensor, const std::shared_ptr<Exchange>& exchange);

  bool BeginStep(const TensorPointer& tensor) override;
  void EndStep(const TensorPointer& tensor, const Status& status,
               const std::function<void()>& next) override;
  void SetParts(const TensorPointer& tensor, uint32_t parts) override;
  void EndPart(const TensorPointer& tensor) override;
  void OnReplied(const TensorPointer& tensor, uint32_t part) override;
  void OnError(const TensorPointer& tensor, const Status& status) override;
  void Fail(const Status& reason) override;
  void AddArrival(const TensorPointer& tensor, const ArrivalPointer& arrival) override;
  void SetArrivals(const TensorPointer& tensor, std::vector<ArrivalPointer> arrivals) override;
  std::vector<ArrivalPointer> ArrivalsOf(const TensorPointer& tensor) override;
  ArrivalPointer ArrivalOf(const TensorPointer& tensor, uint32_t part) override;
  void OnArrived(StagedArrival* arrival) override;
  Awaited WhatIsAwaited(const TensorPointer& tensor) override;
  Status FailureOf(const TensorPointer& tensor) override;
  std::weak_ptr<void> Self() override { return weak_from_this(); }

  // ---- local_group_transaction.cc: what the state has decided is done
  // Before the mutex is free.
  void PerformFirst(const GroupEffects& effects) BYTEPS_REQUIRES(mutex_);
  // After that.
  void Perform(GroupEffects* effects) BYTEPS_EXCLUDES(mutex_);
  void FailTensor(const TensorPointer& tensor, const Status& reason) BYTEPS_EXCLUDES(mutex_);
  void Finish(const TensorPointer& tensor, const Status& status) BYTEPS_EXCLUDES(mutex_);
  void Begin(const TensorPointer& tensor) BYTEPS_EXCLUDES(mutex_);

  // ---- local_group_reports.cc: what is ready, to the sequencer
  void Hold() override;
  void Release() override;
  void ReportTensor(LaunchReport::Kind kind, const StagedTensor& tensor, uint32_t part,
                    const Status& reason, bool takes_shared = false);
  void Report(LaunchReport report);
  void SendReady() BYTEPS_REQUIRES(ready_mutex_);

  Worker* const worker_;                // outlives OnStop
  std::shared_ptr<RankDevice> device_;  // only a connection that never came about keeps it, too
  const HostPlace place_;
  WorkThreads launcher_{"byteps-launch", 1};
  DeviceSteps steps_;
  StreamCopies copies_;
  StreamResults results_;
  HostStages stages_;
  OneHostStages one_host_stages_;
  std::unique_ptr<HostChannel> channel_;  // null if alone
  LogFollower follower_;                  // these two: of the channel's thread
  Launches launches_;

  // What is sent is so before this mutex is free: a later report of a tensor must not overtake an
  // earlier one. Taken without the other mutex.
  Mutex ready_mutex_;
  ReadyTogether ready_ BYTEPS_GUARDED_BY(ready_mutex_);

  Mutex mutex_;
  CondVar changed_;
  GroupState state_ BYTEPS_GUARDED_BY(mutex_);  // and what it says of tensors
};

}  // namespace byteps
