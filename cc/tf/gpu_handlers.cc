// What compiled programs call on a GPU. The calls of a program come one after the other, on the
// host thread that puts the program on the GPU's stream; they put on it what must be in the
// stream's order.
//
// A done makes the program's stream wait for the result: for the end of the collective that gives
// it to all ranks of a host, or for what servers send to a worker that is alone on its host. All
// starts come before it (compiled_call.h), so that the host waits for other threads at most, not
// for the GPU. What a stream waits for must have been given to the GPU before, or the two could
// wait for each other: so no stream waits for servers before everything that has been started is on
// its way. Where several ranks of a host share what servers send, collectives follow later, and
// done waits for the end of the exchange.
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/gpu/cuda_driver.h"
#include "cc/gpu/device.h"
#include "cc/staging/compiled_runs.h"
#include "cc/staging/gpu_exchanger.h"
#include "cc/tf/compiled_call.h"
#include "cc/tf/profiler_activity.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

using Stream = ffi::PlatformStream<CudaStreamHandle>;

// An exchange of a program. Its memory is XLA's, which frees it in the order of the stream.
struct GpuExchange {
  std::string name;
  const void* input = nullptr;
  CudaStreamHandle stream = nullptr;

  std::weak_ptr<Worker> worker = CurrentWorker();

  // ---- guarded by Exchanges::mutex_
  bool ended = false;
  Status status;
  DeviceMark end;           // null: it is not on its way to an end that the stream could wait for
  bool is_held_up = false;  // a done has made the stream wait for it
  bool is_left = false;     // its program has failed: no done will
};

// The exchanges of this process's programs, from start to done. Thread-safe.
class Exchanges {
 public:
  void Begin(const std::shared_ptr<GpuExchange>& exchange) {
    std::lock_guard<std::mutex> lock(mutex_);
    Stream& stream = streams_[exchange->stream];
    ++stream.at_work;
    ++stream.unplaced;
    begun_[{exchange->name, exchange->input}].push_back(exchange);
  }

  void SetOnItsWay(const std::shared_ptr<GpuExchange>& exchange, const DeviceMark& end) {
    bool is_left = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (exchange->ended) return;
      exchange->end = end;
      --streams_[exchange->stream].unplaced;
      is_left = exchange->is_left;
    }
    changed_.notify_all();
    if (is_left) end->GiveUp();
  }

  void End(const std::shared_ptr<GpuExchange>& exchange, const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      exchange->ended = true;
      exchange->status = status;
      Stream& stream = streams_[exchange->stream];
      --stream.at_work;
      if (exchange->end == nullptr) --stream.unplaced;
      if (exchange->is_held_up && !status.ok()) stream.late = exchange;
    }
    changed_.notify_all();
  }

  // Blocks until the exchange that was begun with this name and memory has ended, or is on its way:
  // then `end` is what the stream is to wait for. If that is the host, all else that was begun on
  // the stream is on its way, too.
  // Also fails if one that the stream was made to wait for has failed since.
  Status Wait(CudaStreamHandle stream, const std::string& name, const void* input,
              DeviceMark* end) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto found = begun_.find({name, input});
    if (found == begun_.end()) {
      return Internal("tensor \"" + name +
                      "\": XLA has moved it between the begin and the end of its exchange");
    }
    const std::shared_ptr<GpuExchange> exchange = found->second.front();
    Stream& state = streams_[stream];
    changed_.wait(lock, [&] {
      if (exchange->ended || exchange->end == nullptr) return exchange->ended;
      return state.unplaced == 0 || !exchange->end->IsOfHost();
    });
    // An earlier worker's failure is no news.
    if (const auto late = std::exchange(state.late, nullptr);
        late != nullptr && late->worker.lock() == exchange->worker.lock())
      return late->status;
    if (exchange->ended && !exchange->status.ok()) return exchange->status;
    found->second.pop_front();
    if (found->second.empty()) begun_.erase(found);
    exchange->is_held_up = true;
    if (!exchange->ended) *end = exchange->end;
    return OkStatus();
  }

  // After a failure: no done will come for what the stream's programs have begun. Blocks until
  // nothing is at work with their memory: XLA will free it.
  void Leave(CudaStreamHandle stream) {
    std::vector<DeviceMark> ends;
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto it = begun_.begin(); it != begun_.end();) {
      if (it->second.front()->stream != stream) {
        ++it;
        continue;
      }
      for (const std::shared_ptr<GpuExchange>& exchange : it->second) {
        exchange->is_left = true;
        if (exchange->end != nullptr && !exchange->ended) ends.push_back(exchange->end);
      }
      it = begun_.erase(it);
    }
    lock.unlock();
    for (const DeviceMark& end : ends) end->GiveUp();
    lock.lock();
    Stream& state = streams_[stream];
    changed_.wait(lock, [&] { return state.at_work == 0; });
    state.late = nullptr;
  }

 private:
  struct Stream {
    int at_work = 0;
    int unplaced = 0;                   // of these: neither on their way nor ended
    std::shared_ptr<GpuExchange> late;  // has failed after the stream was made to wait for it
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<CudaStreamHandle, Stream> streams_;
  std::map<std::pair<std::string, const void*>, std::deque<std::shared_ptr<GpuExchange>>> begun_;
};

Exchanges& AllExchanges() {
  static auto* const all = new Exchanges;  // engine threads may outlive static objects
  return *all;
}

// The end of the exchange, on an engine's or a device's thread. A gather's result has its place.
void SetEnd(const std::shared_ptr<GpuExchange>& exchange, ffi::RemainingRets results,
            ExchangeRequest* request) {
  const auto mistake = std::make_shared<Status>();
  if (request->tensor.kind == ExchangeKind::kGather) {
    ffi::Result<ffi::AnyBuffer> all = *results.get<ffi::AnyBuffer>(2);
    request->allocate_output = [mistake, name = exchange->name, own_rows = request->gather_rows,
                                all_rows = all->dimensions().front(),
                                memory = all->untyped_data()](const std::vector<int64_t>& rows) {
      *mistake = CheckGatheredRows(name, own_rows, all_rows, rows);
      return mistake->ok() ? memory : nullptr;
    };
  } else {
    request->output = const_cast<void*>(request->input);
  }
  request->done = [exchange, mistake](const Status& result) {
    AllExchanges().End(exchange, mistake->ok() ? result : *mistake);
  };
}

ffi::Error Start(CudaStreamHandle stream, CallAttributes attributes, ffi::RemainingArgs,
                 ffi::RemainingRets results) {
  std::vector<ExchangeRequest> requests;
  GpuExchanger* exchanger = nullptr;
  Status status = DescribeStart(attributes, results, &requests);
  if (status.ok()) status = GpuExchanger::OfStream(stream, &exchanger);
  if (!status.ok()) return ToCallError(status);
  std::vector<DeviceRequest> together(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto exchange = std::make_shared<GpuExchange>();
    exchange->name = requests[i].tensor.name;
    exchange->input = requests[i].input;
    exchange->stream = stream;
    SetEnd(exchange, results, &requests[i]);
    ShowInProfiler(&requests[i]);
    together[i].request = std::move(requests[i]);
    together[i].on_its_way = [exchange](const DeviceMark& end) {
      AllExchanges().SetOnItsWay(exchange, end);
    };
    AllExchanges().Begin(exchange);
  }
  exchanger->Enqueue(stream, std::move(together));
  return ffi::Error::Success();
}

ffi::Error Run(ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

ffi::Error Gate(ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

ffi::Error Done(CudaStreamHandle stream, CallAttributes attributes, ffi::RemainingArgs operands,
                ffi::RemainingRets) {
  const std::vector<std::string> names = CallNames(attributes);
  DeviceMark last;
  for (size_t i = 0; i < names.size(); ++i) {
    DeviceMark end;
    Status status = AllExchanges().Wait(stream, names[i],
                                        operands.get<ffi::AnyBuffer>(i + 1)->untyped_data(), &end);
    // Several of them have the end of one collective.
    if (status.ok() && end != nullptr && end != last) status = end->HoldUp(stream);
    if (!status.ok()) {
      AllExchanges().Leave(stream);
      return ToCallError(status);
    }
    last = end;
  }
  return ffi::Error::Success();
}

ffi::Error Place(CudaStreamHandle stream, int64_t what, ffi::Result<ffi::AnyBuffer> number) {
  const CudaDriver* driver = nullptr;
  int32_t found = 0;
  Status status = CudaDriver::Get(&driver);
  if (status.ok()) status = ReadPlace(what, &found);
  if (status.ok()) {
    const auto address = reinterpret_cast<CudaAddress>(number->untyped_data());
    status = driver->Check(driver->cuMemsetD32Async(address, found, 1, stream), "cuMemsetD32Async");
  }
  return ToCallError(status);
}

XLA_FFI_DEFINE_HANDLER(kRun, Run, ffi::Ffi::Bind().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(
    kStart, Start,
    ffi::Ffi::Bind().Ctx<Stream>().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kGate, Gate, ffi::Ffi::Bind().RemainingArgs().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(
    kDone, Done,
    ffi::Ffi::Bind().Ctx<Stream>().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kPlace, Place,
                       ffi::Ffi::Bind().Ctx<Stream>().Attr<int64_t>("what").Ret<ffi::AnyBuffer>());

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kRunCall, "CUDA", kRun);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartCall, "CUDA", kStart);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kGateCall, "CUDA", kGate);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kDoneCall, "CUDA", kDone);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kPlaceCall, "CUDA", kPlace);

}  // namespace
}  // namespace byteps
