// PartRounds: a part whose rounds all workers share. RoundsState (server/state/rounds.h) decides
// who has pushed, who waits, and when a round is complete or has failed; RoundArithmetic adds up.
// This class has their mutex, the time, and the memory of results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/server/round_arithmetic.h"
#include "cc/server/served_part.h"
#include "cc/server/state/rounds.h"

namespace byteps {

// Thread-safe. Replies are handed out, not sent, so that no call into a Van happens under the
// mutex.
class PartRounds : public ServedPart {
 public:
  explicit PartRounds(Options options);

  Status Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
               std::vector<Reply>* replies) override;
  PushOutcome End(const Push& push, std::vector<Reply>* replies) override;
  PushOutcome OnTime(std::vector<Reply>* replies) override;
  PushOutcome OnJoined(std::vector<Reply>* replies) override;
  Status Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) override;
  void Withdraw(int32_t worker, const TableEntry& entry, uint64_t round, const Status& status,
                std::vector<Reply>* replies) override;
  void GoOnFrom(const PartsMoved::Part& agreed) override;
  Status BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) override;
  void EndResult(Push* push, std::vector<Reply>* replies) override;
  void OnResultProgress(uint64_t next_round) override;
  void OnLost(std::vector<Reply>* replies) override;
  void OnDeparted(const std::vector<DepartedWorker>& departed,
                  std::vector<Reply>* replies) override;

 private:
  // After anything that may have ended the round.
  static void NoteSumTime(const PushOutcome& outcome, std::vector<Reply>* replies);

  const Options options_;
  Mutex mutex_;
  RoundArithmetic arithmetic_ BYTEPS_GUARDED_BY(mutex_);
  RoundsState state_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps
