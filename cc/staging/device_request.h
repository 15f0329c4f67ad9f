// DeviceRequest: a tensor in a device's memory, and what its exchange is to be.
#pragma once

#include <functional>

#include "cc/gpu/rank_device.h"
#include "cc/worker/state/exchange_request.h"

namespace byteps {

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

}  // namespace byteps
