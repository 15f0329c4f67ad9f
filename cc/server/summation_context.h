// What a worker's connection carries as its context. For the files that implement SummationService.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "cc/server/served_part.h"
#include "cc/server/served_tensors.h"
#include "cc/server/summation_service.h"
#include "cc/server/worker_connection.h"

namespace byteps {

// The pushes are touched by the connection's own thread only.
struct SummationService::ConnectionContext {
  explicit ConnectionContext(std::shared_ptr<WorkerConnection> worker)
      : worker(std::move(worker)) {}

  const std::shared_ptr<WorkerConnection> worker;

  struct Arriving {
    Push push;
    FoundPart found;
  };
  // Pushes whose payloads are arriving; the last one ends first (ConnectionHandler::OnHeader).
  std::deque<Arriving> arriving;

  Arriving TakeLast() {
    Arriving last = std::move(arriving.back());
    arriving.pop_back();
    return last;
  }
};

}  // namespace byteps
