// NewestPush: what a part that answers each worker by itself (part_store.h, part_table.h) knows of
// a worker's newest push, whatever the part makes of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cc/base/status.h"
#include "cc/server/aggregation.h"
#include "cc/server/buffer.h"
#include "cc/server/state/served_push.h"
#include "cc/server/worker_connection.h"
#include "cc/wire/frame.h"

namespace byteps {

// Not thread-safe: the part's mutex guards every call.
struct NewestPush {
  uint64_t pushed_rounds = 0;  // its round, plus one
  bool was_cut_off = false;    // it may come again
  std::shared_ptr<WorkerConnection> from;
  FrameHeader header;
  int64_t begin_time_ns = 0;
  int64_t receive_time_ns = 0;
  std::shared_ptr<Buffer> payload;
  Status error;             // once it is answered, and while it arrives: what is answered
  uint64_t generation = 0;  // of the connection over which it was answered: see Reply

  // Whether `push` may begin, which is not older. An error names `what` was pushed.
  Status CheckBegins(const Push& push, const std::string& what);
  void Begin(const Push& push);

  // Whether `asked`, a round that the worker asks for over `asker`, is this push. False: nothing is
  // to be done but what `received_bytes` says. An error names `title`, the tensor's.
  Status FindAsked(const std::shared_ptr<WorkerConnection>& asker, uint64_t asked,
                   const std::string& title, bool* is_this,
                   std::optional<uint64_t>* received_bytes) const;

  // An answer without a payload, and one that is `error`. The caller hands them out.
  Reply NewReply(const PartOptions& part, uint64_t key);
  Reply NewErrorReply(const PartOptions& part, uint64_t key);
};

}  // namespace byteps
