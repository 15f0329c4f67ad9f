// Effects: what is to be done because something has happened, collected by those who decide it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/wire/control.h"
#include "cc/wire/outgoing_frame.h"
#include "cc/worker/state/exchange.h"
#include "cc/worker/state/moment.h"

namespace byteps {

class Connection;

// Of one event. Who performs them is Worker::Transaction, in the order of the fields. Those that
// every exchange has are allocated one by one, as far as there are any; the others are rare.
struct Effects {
  struct Outgoing {
    Outgoing(std::shared_ptr<Connection> over, OutgoingFrame sent,
             std::shared_ptr<Exchange> prepared_by = nullptr)
        : connection(std::move(over)), frame(std::move(sent)), preparer(std::move(prepared_by)) {}
    std::shared_ptr<Connection> connection;
    OutgoingFrame frame;
    std::shared_ptr<Exchange> preparer;  // of a push whose payload is to be made; else null
  };
  struct Close {
    std::shared_ptr<Connection> connection;
    Status reason;
  };
  // What has not left of an exchange is to be taken back. Returns as PathEvents::OnRevoked.
  struct Revocation {
    std::shared_ptr<Connection> connection;
    int32_t server = 0;
    uint32_t path = 0;
    std::shared_ptr<Exchange> exchange;
  };
  struct UnsentLimit {
    std::shared_ptr<Connection> connection;
    uint64_t bytes = 0;
  };
  // A server has been started again.
  struct Revival {
    int32_t server = 0;
    Status reason;
  };
  // The link's rate is known; what the coordinator is told of the connections is to be added.
  struct LinkFound {
    uint64_t bytes_per_second = 0;
    std::vector<std::shared_ptr<Connection>> connections;
  };
  // Servers are told that this worker has given up a round that it has not begun.
  struct GivenUp {
    uint64_t key = 0;
    uint64_t round = 0;
    Status reason;
  };
  // To a server, which a connection has come again to.
  struct Query {
    std::shared_ptr<Connection> connection;
    ResumeQuery query;
  };
  struct PathNumber {
    int32_t server = 0;
    uint32_t path = 0;
  };
  // For the log.
  struct Notice {
    enum class Kind { kServerLost, kServerRejoined, kStraggler };
    Kind kind = Kind::kServerLost;
    int32_t rank = 0;
    std::string text;
    int64_t lag_ms = 0, step_ms = 0;  // kStraggler
  };

  Moment now;  // when the event happens

  std::vector<Notice> notices;
  std::optional<PathNumber> progress;  // something came over a path that had broken
  std::vector<Close> closes;
  std::vector<Revival> revivals;
  std::vector<UnsentLimit> limits;
  std::vector<Revocation> revocations;
  std::vector<ControlMessage> messages;  // to the coordinator
  std::optional<LinkFound> link;
  std::vector<Query> queries;
  std::vector<Outgoing> frames;
  std::vector<GivenUp> given_up;
  std::vector<std::shared_ptr<Exchange>> placed;  // by parts
  std::vector<std::function<void()>> parts_done;
  std::vector<std::pair<std::shared_ptr<Exchange>, Status>> finished;
  std::vector<std::function<void(bool)>> parts_dropped;  // never to be called
  std::vector<std::shared_ptr<const void>> dropped;      // callers' memory
};

}  // namespace byteps
