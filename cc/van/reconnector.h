// Reconnector: brings a connection back that has broken while both of its processes live (protocol
// rule 20).
#pragma once

#include <cstdint>
#include <functional>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/thread.h"

namespace byteps {

// One for each connection, on the side that connects. Thread-safe. Its thread exists from the first
// break on.
class Reconnector {
 public:
  // Connects again, within so many seconds. OK: the new connection is open. UNAVAILABLE and
  // DEADLINE_EXCEEDED: perhaps a little later. Anything else: never.
  using Attempt = std::function<Status(double seconds)>;
  // At most one call, the last that is made before Revive. `reason` says what broke the connection,
  // and why there is no new one; `life`, how often Revive had been called then.
  using OnLost = std::function<void(const Status& reason, int life)>;

  // Asked when the time for connecting again is over, and the peer has not refused: true to go on
  // trying, as somebody else will decide whether it is lost.
  using MayGoOn = std::function<bool()>;

  Reconnector(Attempt attempt, OnLost on_lost, MayGoOn may_go_on = nullptr);
  ~Reconnector();

  // The connection has ended. UNAVAILABLE: it broke. CANCELLED: this side is stopping, nothing
  // happens. Anything else is final: `on_lost` is called at once, in the caller's thread. `life`:
  // how often Revive had been called then; one of an earlier life is no news.
  void OnClosed(const Status& reason, int life = 0);

  // The present connection is good for something: one that breaks again and again before that is
  // given up.
  void NoteProgress();

  // It was lost, and the peer has been started again: connects to it. `reason` is part of what
  // `on_lost` gets if that fails. From any thread; what an earlier attempt brings
  // does not count.
  void Revive(const Status& reason);

  // Waits for a running attempt. Idempotent; not from inside the two functions.
  void Stop();

 private:
  bool over() const BYTEPS_REQUIRES(mutex_) { return lost_ || stopped_; }
  void Wake(const Status& reason) BYTEPS_REQUIRES(mutex_);
  void Run();
  Status ConnectAgain() BYTEPS_REQUIRES(mutex_);

  const Attempt attempt_;
  const OnLost on_lost_;
  const MayGoOn may_go_on_;
  Mutex mutex_;
  CondVar changed_;
  Thread thread_;
  bool broken_ BYTEPS_GUARDED_BY(mutex_) = false;
  bool lost_ BYTEPS_GUARDED_BY(mutex_) = false;  // until Revive
  bool stopped_ BYTEPS_GUARDED_BY(mutex_) = false;
  int lives_ BYTEPS_GUARDED_BY(mutex_) = 0;      // calls of Revive
  Status reason_ BYTEPS_GUARDED_BY(mutex_);      // of the last break
  int fruitless_ BYTEPS_GUARDED_BY(mutex_) = 0;  // breaks since the last progress
};

}  // namespace byteps
