// Exchanges that compiled programs have started on a GPU's stream, and whether the stream can wait
// for them: those of one program (gpu_handlers.cc), and those that a program leaves to a later one
// (gpu_detached_start.cc of JAX, tf/gpu_detached_start.cc).
//
// What a stream waits for must have been given to the GPU before, or the two could wait for each
// other: so no stream waits for servers before everything that has been started on it is on its
// way.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/gpu/cuda_driver.h"
#include "cc/gpu/rank_device.h"
#include "cc/staging/local_group.h"
#include "cc/worker/worker.h"
#include "cc/xla/export.h"

namespace byteps {

// Kept by whoever will wait for it, and by its request.
struct StreamExchange {
  StreamExchange(std::string of_name, CudaStreamHandle of_stream, bool uses_programs_memory)
      : name(std::move(of_name)), stream(of_stream), in_programs_memory(uses_programs_memory) {}

  const std::string name;
  const CudaStreamHandle stream;
  // Whether its memory is XLA's, which frees it, after a failure, as soon as the program has ended.
  const bool in_programs_memory;
  const std::weak_ptr<Worker> worker = CurrentWorker();

  // ---- guarded by StreamExchanges::mutex_
  bool ended = false;
  Status status;
  bool is_submitted = false;
  DeviceEvent end;             // null: there is none yet that the stream could wait for
  bool is_waited_for = false;  // the stream has been made to wait for it
  bool is_let_go = false;      // no stream will wait for it
};
using StreamExchangePointer = std::shared_ptr<StreamExchange>;

// Thread-safe.
class StreamExchanges {
 public:
  // Begins the exchange of a request, and lets it say when it is submitted. Its `done` is to call
  // End.
  void Begin(const StreamExchangePointer& exchange, DeviceRequest* request) {
    request->on_submitted = [this, exchange](const DeviceEvent& end) {
      SetOnSubmitted(exchange, end);
    };
    std::lock_guard<std::mutex> lock(mutex_);
    Stream& stream = streams_[exchange->stream];
    if (exchange->in_programs_memory) ++stream.in_programs_memory;
    ++stream.unplaced;
  }

  void End(const StreamExchangePointer& exchange, const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Stream& stream = streams_[exchange->stream];
      if (exchange->in_programs_memory) --stream.in_programs_memory;
      if (!exchange->is_submitted) --stream.unplaced;
      exchange->end = nullptr;  // it keeps the request, which keeps the exchange
      if (exchange->is_waited_for && !status.ok()) stream.late = exchange;
      exchange->ended = true;
      exchange->status = status;
    }
    changed_.notify_all();
  }

  // The failure of another exchange that this one's stream was made to wait for, told once. For who
  // has waited for this one on the host.
  Status TakeLate(const StreamExchangePointer& exchange) {
    std::lock_guard<std::mutex> lock(mutex_);
    return TakeLateOf(&streams_[exchange->stream], *exchange);
  }

  // Blocks until the exchange has ended, or is in flight to an `end`: what its stream is to wait
  // for now. If that is the host, all else that was begun on the stream is in flight, too.
  // Also fails if one that the stream was made to wait for has failed since.
  Status WaitUntilSubmitted(const StreamExchangePointer& exchange, DeviceEvent* end) {
    std::unique_lock<std::mutex> lock(mutex_);
    Stream& stream = streams_[exchange->stream];
    changed_.wait(lock, [&] {
      if (exchange->ended || exchange->end == nullptr) return exchange->ended;
      return stream.unplaced == 0 || !exchange->end->IsOfHost();
    });
    BYTEPS_RETURN_IF_ERROR(TakeLateOf(&stream, *exchange));
    if (exchange->ended) return exchange->status;
    exchange->is_waited_for = true;
    *end = exchange->end;
    return OkStatus();
  }

  // Blocks until all exchanges of compiled programs have ended. Fails if one has failed after its
  // stream was made to wait for it; told once. For who uses results as soon as the streams allow.
  Status WaitUntilAllEnded() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] {
      return std::all_of(streams_.begin(), streams_.end(),
                         [](const auto& each) { return each.second.in_programs_memory == 0; });
    });
    Status failure;
    for (auto& [handle, stream] : streams_) {
      const StreamExchangePointer late = std::exchange(stream.late, nullptr);
      if (late != nullptr && late->worker.lock() == CurrentWorker()) failure = late->status;
    }
    return failure;
  }

  // Blocks until all of these have ended.
  void WaitUntilEnded(const std::vector<StreamExchangePointer>& exchanges) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] {
      return std::all_of(exchanges.begin(), exchanges.end(),
                         [](const auto& exchange) { return exchange->ended; });
    });
  }

  // Takes those out that have ended.
  void RemoveEnded(std::vector<StreamExchangePointer>* exchanges) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto end = std::remove_if(exchanges->begin(), exchanges->end(),
                                    [](const auto& exchange) { return exchange->ended; });
    exchanges->erase(end, exchanges->end());
  }

  // No stream will wait for these: they end by themselves.
  void Release(const std::vector<StreamExchangePointer>& exchanges) {
    std::vector<DeviceEvent> ends;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const StreamExchangePointer& exchange : exchanges) {
        exchange->is_let_go = true;
        if (exchange->end != nullptr) ends.push_back(exchange->end);
      }
    }
    for (const DeviceEvent& end : ends) end->EndByItself();
  }

  // Ends what a program has begun that failed before its dones: blocks until all have ended. With
  // none of them it returns at once.
  void EndGivenUp(const std::vector<StreamExchangePointer>& exchanges) {
    if (exchanges.empty()) return;
    Release(exchanges);
    WaitUntilEnded(exchanges);
  }

  // Blocks until nothing is at work with the memory of the stream's programs.
  void WaitForProgramsMemory(CudaStreamHandle stream) {
    std::unique_lock<std::mutex> lock(mutex_);
    Stream& state = streams_[stream];
    changed_.wait(lock, [&] { return state.in_programs_memory == 0; });
    state.late = nullptr;
  }

 private:
  struct Stream {
    int in_programs_memory = 0;  // exchanges that have not ended
    int unplaced = 0;            // that are neither submitted nor ended
    StreamExchangePointer late;  // has failed after the stream was made to wait for it
  };

  void SetOnSubmitted(const StreamExchangePointer& exchange, const DeviceEvent& end) {
    bool is_let_go = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (exchange->ended) return;
      exchange->is_submitted = true;
      exchange->end = end;
      --streams_[exchange->stream].unplaced;
      is_let_go = exchange->is_let_go && end != nullptr;
    }
    changed_.notify_all();
    if (is_let_go) end->EndByItself();
  }

  // An earlier worker's failure is no news. With mutex_ held.
  static Status TakeLateOf(Stream* stream, const StreamExchange& exchange) {
    const StreamExchangePointer late = std::exchange(stream->late, nullptr);
    const bool is_news = late != nullptr && late->worker.lock() == exchange.worker.lock();
    return is_news ? late->status : OkStatus();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<CudaStreamHandle, Stream> streams_;
};

// The process's.
BYTEPS_XLA_EXPORT StreamExchanges& AllStreamExchanges();

}  // namespace byteps
