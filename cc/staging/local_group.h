// LocalGroup: the workers of a host, a GPU each, and their exchanges in the order of one log.
//
// Every worker with a GPU has one. A tensor that is computed is reported to local rank 0, where the
// host's sequencer is; its log (gpu/launch_log.h) comes back to all, and every rank does what the
// log says, on streams of its own. The streams that compute never wait.
//
// One host: one collective gives all ranks the result. Several hosts, for each part of a tensor:
// reduce to the part's owner -> copy out -> exchange with the servers -> copy in -> broadcast. Each
// part goes its own way, so that all stages are busy with different parts at one time. A worker
// that is alone on its host skips what others would take part in, and the log. Where the streams of
// all ranks can wait for servers, there is no broadcast: the results come to memory that the ranks
// share, and each stream copies them from there.
//
// Threads. A call of the device's may take until a stream goes on that waits for servers: a module
// that CUDA loads meanwhile, for whoever uses the GPU, keeps all others out until then. So threads
// that bring what a stream waits for call nothing of the device's, nor wait for who does: those of
// the worker, which receive, and the one that sees copies to the host end. What follows from what
// they see, and needs the device, is done on one thread, launcher_. What the worker encodes, which
// takes longer than the copy to the host, is done on several, encoders_. Sums that the device
// decodes wait for each other, so one of their own, decoder_, gives them to it. Another one,
// event_recorder_, records what a stream has copied, if no exchange that begins does so before.
#ifndef TF_BYTEPS_CC_STAGING_LOCAL_GROUP_H_
#define TF_BYTEPS_CC_STAGING_LOCAL_GROUP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/work_threads.h"
#include "cc/gpu/rank_device.h"
#include "cc/gpu/sequencer.h"
#include "cc/staging/local_link.h"
#include "cc/staging/shared_results.h"
#include "cc/staging/staged_part.h"
#include "cc/staging/state/host_place.h"
#include "cc/worker/worker.h"

namespace byteps {

// A tensor in a device's memory, and what its exchange is to be.
struct DeviceRequest {
  ExchangeRequest request;
  // If given: the caller's stream can wait by itself. Then this is called, before the input is
  // computed, with what the stream is to wait for. In a job on one host that is a collective that
  // gives all ranks the result, once all ranks have come so far; otherwise what servers send, once
  // the reduction and the copy of the input are on their streams. An error that comes later is told
  // by `request.done` only, and the result is wrong then, in whole or in part. With null the copy
  // of the input is on its stream, too, but the caller's cannot wait for the result: the device
  // will decode it, or another rank's stream cannot wait. Where no stream can wait there is only
  // `request.done`.
  // The next such exchange of the name may be given before this one has ended: it waits for that.
  std::function<void(const DeviceEvent& end)> on_submitted;
};

// Thread-safe.
class LocalGroup : public WorkerCompanion, public std::enable_shared_from_this<LocalGroup> {
 public:
  // Begins to connect the host's workers; what is enqueued meanwhile waits. The worker keeps the
  // group and ends it, so that its own callbacks find it. `device` must be the only owner's.
  static Status Create(Worker* worker, std::shared_ptr<RankDevice> device,
                       std::shared_ptr<LocalGroup>* group);
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
  void OnFailure(const Status& reason) override { Fail(reason); }
  void OnStop() override;

 private:
  // What the caller's stream waits for, if that is what servers send.
  class ResultEvent;

  LocalGroup(Worker* worker, std::shared_ptr<RankDevice> device);
  Status Start();
  bool alone() const { return place_.alone(); }

  // ---- local_group.cc: connecting, the log, the end
  void Run();
  Status Handle(const LocalMessage& message);
  Status Receive(LocalMessage message);
  Status Connect(const GroupInvitation& invitation);
  Status ConnectToRankZero(const std::string& port);
  Status Follow(const LaunchEntry& entry);
  void Report(LaunchReport report);
  // Until Release, what is ready waits in held_, for whatever else becomes ready meanwhile.
  void Hold();
  void Release();
  void ReportTensor(LaunchReport::Kind kind, const Exchange& exchange, uint32_t part,
                    const Status& reason, bool takes_shared = false);
  void Publish(const LogSlice& slice);
  void OnLost(int32_t local_rank, const Status& reason);
  void Fail(const Status& reason);
  Status failure();

  // ---- local_group_stages.cc: the stages of a tensor
  // Null if its request was refused.
  TensorPointer NewTensor(CudaStreamHandle stream, DeviceRequest request);
  Status WhenComputed(CudaStreamHandle stream, const std::vector<TensorPointer>& tensors);
  void OnComputed(const TensorPointer& tensor, const Status& status);
  void OnEnded(const TensorPointer& tensor, const Status& status);
  void ReportIfReady(const TensorPointer& tensor);
  // `for_all`: the result comes to memory that all ranks share.
  void StartReduce(const TensorPointer& tensor, uint32_t part, bool for_all);
  void Reduce(const PartPointer& part);
  void NoteComputed(const PartPointer& part);
  // Consecutive parts of one tensor.
  void CopyOut(const std::vector<PartPointer>& parts);
  void OnCopiedOut(const PartPointer& part);
  void Send(const PartPointer& part);
  void CopyIn(const PartPointer& part);
  void OnCopiedIn(const PartPointer& part);
  void StartBroadcast(const TensorPointer& tensor, uint32_t part);
  void OnPartDone(const TensorPointer& tensor);
  void FinishIfDone(const TensorPointer& tensor);
  // Has the device do a step that uses the tensor's memory; `next` is called if all goes well.
  using StartStep = std::function<Status(const RankDevice::Done&)>;
  void Step(const TensorPointer& tensor, const StartStep& start, std::function<void()> next);
  // Calls `ended` in any case, once it has ended.
  void Launch(const StartStep& start, const RankDevice::Done& ended);
  // Whether it may begin one; EndStep follows if so.
  bool BeginStep(const TensorPointer& tensor);
  void EndStep(const TensorPointer& tensor, const Status& status,
               const std::function<void()>& next);
  void FailTensor(const TensorPointer& tensor, const Status& reason);
  void FinishTensor(const TensorPointer& tensor, const Status& status);

  // ---- local_group_turns.cc: when the worker places an exchange
  void PlaceInTurn(const TensorPointer& tensor);
  void EndTurn(const TensorPointer& tensor);
  void PlaceWaiting();
  void ContinuePlacing();
  void Place(const TensorPointer& tensor);
  void OnPlaced(const TensorPointer& tensor, const std::shared_ptr<Exchange>& exchange);

  // ---- local_group_decode.cc: the way back of sums that the device decodes
  void DecodeSoon(const PartPointer& part, bool is_encoded);
  void DecodeArrived();
  std::vector<PartPointer> TakeArrived();
  void Decode(const std::vector<PartPointer>& parts);

  // ---- local_group_alone.cc: a worker that is alone on its host
  void StartAlone(const TensorPointer& tensor);
  Status TakeOutput(const std::vector<PartPointer>& parts, size_t bytes, PinnedPool::Block* output);

  // ---- local_group_shared.cc: results for all workers of a host
  SharedFile NewSharedResults(const NcclUniqueId& id);
  bool OpenSharedResults(const GroupInvitation& invitation);
  bool TakesShared(const TensorPointer& tensor) const;
  Status PlaceShared(const TensorPointer& tensor);
  // False if the tensor has failed.
  bool SetArrival(const PartPointer& part);

  // ---- local_group_arrivals.cc: streams that wait for what servers send
  bool StreamCanWait(const TensorDescription& tensor);
  void SetOnSubmitted(const TensorPointer& tensor);
  void OnArrived(const PartPointer& part);
  // What ResultEvent does.
  Status MakeStreamWait(const TensorPointer& tensor, CudaStreamHandle stream, void* to);
  // Calls `done` when the stream has done all that it holds now. An event on it for each call would
  // take longer than the call: RecordCopied sets one for all so far.
  void WhenCopied(CudaStreamHandle stream, RankDevice::Done done);
  void RecordCopied(CudaStreamHandle stream);
  // Whether the tensor needs it no longer: false while results have to come.
  bool EndByItself(const TensorPointer& tensor);
  // Copies results that have come, for which no stream waits.
  void CopyArrivals(const TensorPointer& tensor);
  void OnArrivalsCopied(const TensorPointer& tensor);
  // Lets a stream go on whose results will not come. With mutex_ held.
  static void ReleaseStream(const StagedTensor& tensor);

  // ---- local_group_one_host.cc: the only stage in a job on one host
  void StartExchanges(const std::vector<TensorPointer>& tensors);
  Status StartCollective(const std::vector<TensorPointer>& tensors, const RankDevice::Done& done);
  void OnExchanged(const TensorPointer& tensor);
  void StartGather(const TensorPointer& tensor, const std::vector<int64_t>& rows);

  Worker* const worker_;                // outlives OnStop
  std::shared_ptr<RankDevice> device_;  // only a connection that never came about keeps it, too
  const HostPlace place_;
  std::unique_ptr<LocalLink> link_;       // null if alone
  std::unique_ptr<Sequencer> sequencer_;  // of local rank 0
  // Null where there are no servers, no other ranks, or no way to share. Of the thread.
  std::shared_ptr<SharedResults> shared_results_;
  LogFollower follower_;                 // of the thread
  std::vector<TensorPointer> together_;  // of the thread: for one collective
  std::thread thread_;
  WorkThreads launcher_{"byteps-launch", 1};
  WorkThreads decoder_{"byteps-decode", 1};
  WorkThreads event_recorder_{"byteps-copied", 1};
  WorkThreads encoders_;

  std::mutex held_mutex_;  // guards these three; taken without mutex_
  int holding_ = 0;
  std::vector<LaunchReport> held_reports_;
  std::vector<TensorPointer> held_tensors_;  // if alone

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<LocalMessage> inbox_;
  std::string rank_zero_port_;  // what rank 0 has told
  bool connected_ = false;
  bool shares_results_ = false;
  std::unordered_map<uint64_t, TensorPointer> live_;  // by key, once placed
  // Exchanges for which the caller's stream waits by itself: the names of those in flight, and
  // those that wait until an earlier one of their name, or one that waits before them, has ended.
  std::unordered_set<std::string> in_flight_;
  std::deque<TensorPointer> waiting_;
  bool placing_ = false;  // a thread goes through waiting_
  // Sums that the device is to decode; and what tells decoder_ that they fill a launch.
  std::deque<PartPointer> arrived_;
  std::condition_variable fills_launch_;
  // What is called when a stream has copied results, and has no event yet.
  std::unordered_map<CudaStreamHandle, std::vector<RankDevice::Done>> copied_;
  Status failure_;
  bool leaving_ = false;
  bool end_published_ = false;
  bool log_ended_ = false;
  int32_t lost_count_ = 0;  // connections that have ended
  bool stopping_ = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_STAGING_LOCAL_GROUP_H_
