// CoordinatorEffects: what is to be done because something has happened at the coordinator,
// collected by those who decide it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/job.h"
#include "cc/wire/handshake.h"
#include "cc/wire/outgoing_frame.h"

namespace byteps {

// Of one event. Who performs them is Coordinator::Transaction, in the order of the fields. Peers go
// by their index in PeerTable.
struct CoordinatorEffects {
  // For the log.
  struct Notice {
    enum class Level { kInfo, kWarning, kError };
    Level level = Level::kInfo;
    std::string text;
    const char* event = "";                        // docs/logs.md has their names
    std::optional<std::pair<Role, int32_t>> peer;  // of whom it tells, and its rank
    std::vector<std::pair<const char*, int64_t>> figures;
  };
  struct Outgoing {
    size_t peer = 0;
    OutgoingFrame frame;
    bool is_heartbeat = false;
  };
  struct Absence {
    size_t peer = 0;
    Endpoint listens_at;  // port 0: unknown
  };

  int64_t now_ns = 0;  // when the event happens, by a clock that never jumps

  std::vector<Notice> notices;
  std::vector<size_t> forgotten;   // these are lost: nothing is kept for them any more
  std::vector<Outgoing> frames;    // in this order, those to different peers too
  std::optional<Absence> absence;  // somebody is to look whether it lives
  bool begins_deferred = false;    // something is worth collecting for a moment (OnDeferred)
  bool wakes_waiter = false;       // who waits for the end of the job has something to look at
};

}  // namespace byteps
