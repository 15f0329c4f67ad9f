// HostChannel: between the workers of a host: reports to local rank 0, where the host's sequencer
// is, and its log to all.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/thread.h"
#include "cc/gpu/sequencer.h"
#include "cc/staging/local_link.h"
#include "cc/staging/state/host_place.h"
#include "cc/worker/worker.h"

namespace byteps {

// Thread-safe. Not for a worker that is alone on its host.
class HostChannel {
 public:
  // What the group is told. The first two come on the channel's thread, in order, and may block; an
  // error of theirs is OnChannelError's.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual Status OnInvitation(const GroupInvitation& invitation) = 0;
    virtual Status OnSlice(const LogSlice& slice) = 0;
    // Local rank 0 is about to send the log's last entry.
    virtual void OnEndPublished() = 0;
    // A connection has ended, not by Stop.
    virtual void OnRankLost(int32_t local_rank, const Status& reason) = 0;
    virtual void OnChannelError(const Status& reason) = 0;
  };

  // The first three outlive it. `link`: as of LocalLink.
  HostChannel(Worker* worker, const HostPlace& place, Handler* handler, std::unique_ptr<Van> link);
  ~HostChannel() { End(); }

  // Begins to connect. `invitation`: of local rank 0, to all.
  Status Start(const GroupInvitation& invitation);
  // What local rank 0 has relayed: where it listens.
  void OnPort(const std::string& port);
  // Returns at once; in the order of the calls.
  void Send(std::vector<LaunchReport> reports);

  // Ends all connections, without waiting.
  void Close(const Status& reason) { link_.Close(reason); }
  // Closes them; no call about them comes after it. Idempotent.
  void Stop() { link_.Stop(); }
  // Ends the threads, too. Not from inside a call of the handler's. Idempotent.
  void End();

 private:
  LocalLink::Options LinkOptions();
  Status StartRankZero(const GroupInvitation& invitation);
  Status Receive(LocalMessage message);
  void Publish(const LogSlice& slice);
  void Run();
  bool WaitForPort(std::string* port);
  bool WaitForMessage(LocalMessage* message);
  Status ConnectToRankZero(const std::string& port);
  Status Handle(const LocalMessage& message);

  Worker* const worker_;
  const HostPlace& place_;
  Handler& handler_;
  LocalLink link_;
  std::unique_ptr<Sequencer> sequencer_;  // of local rank 0
  Thread thread_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<LocalMessage> inbox_ BYTEPS_GUARDED_BY(mutex_);
  std::string port_ BYTEPS_GUARDED_BY(mutex_);  // of local rank 0; "": not known
  bool ending_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps
