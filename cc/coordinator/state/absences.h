// Absences: when somebody looks whether those live whose connection has broken, and what follows
// from what is found. The host of a process that has ended refuses connections to the port where it
// listened, and whoever lives comes again within kReconnectSeconds (protocol rule 20).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cc/base/job.h"

namespace byteps {

// Not thread-safe. Peers go by their index in PeerTable.
class Absences {
 public:
  struct Look {
    size_t peer = 0;
    Endpoint listens_at;  // port 0: unknown, and nobody can be asked
    uint64_t id = 0;      // of the absence
    bool is_last = false;
  };

  // `listens_at`: where the process listens as long as it lives; port 0: unknown.
  void Add(size_t peer, const Endpoint& listens_at, int64_t now_ns);
  // It is there again.
  void Remove(size_t peer) { absent_.erase(peer); }

  // When the next one is due; none while all are there.
  std::optional<int64_t> NextLookNanos() const;
  // The one that is due.
  Look BeginLook();
  // Why the peer will not come again; "" if it may, or has come meanwhile.
  std::string EndLook(const Look& look, bool is_refused);

 private:
  struct Absence {
    Endpoint listens_at;
    int64_t begin_ns = 0;
    int looks = 0;
    uint64_t id = 0;
  };
  using Absent = std::map<size_t, Absence>;

  static int64_t NextLookNanos(const Absence& absence);
  Absent::const_iterator Next() const;

  Absent absent_;
  uint64_t last_id_ = 0;
};

}  // namespace byteps
