// What compiled programs call on a GPU. The calls of a program come one after the other, on the
// host thread that puts the program on the GPU's stream; they put on it what must be in the
// stream's order.
//
// A done returns when the collective that gives all ranks the result is on a stream, for whose end
// it makes the program's stream wait: all starts come before it (compiled_call.h), so that the host
// waits for other hosts' threads at most, not for the GPU. With servers it waits for the end of the
// exchange: work that the GPU waits for must have been given to it before, or the two could wait
// for each other.
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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

  // ---- guarded by Exchanges::mutex_
  bool ended = false;
  Status status;
  DeviceMark end;  // null: it is not on its way to an end that the stream could wait for
};

// The exchanges of this process's programs, from start to done. Thread-safe.
class Exchanges {
 public:
  void Begin(const std::shared_ptr<GpuExchange>& exchange) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++at_work_[exchange->stream];
    begun_[{exchange->name, exchange->input}].push_back(exchange);
  }

  void SetOnItsWay(const std::shared_ptr<GpuExchange>& exchange, DeviceMark end) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      exchange->end = std::move(end);
    }
    changed_.notify_all();
  }

  void End(const std::shared_ptr<GpuExchange>& exchange, const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      exchange->ended = true;
      exchange->status = status;
      --at_work_[exchange->stream];
    }
    changed_.notify_all();
  }

  // Blocks until the exchange that was begun with this name and memory has ended, or is on its way
  // to `end`. If it has failed, until nothing that the stream's programs have begun is at work with
  // their memory: XLA will free it.
  Status Wait(CudaStreamHandle stream, const std::string& name, const void* input,
              DeviceMark* end) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto found = begun_.find({name, input});
    if (found == begun_.end()) {
      return Internal("tensor \"" + name +
                      "\": XLA has moved it between the begin and the end of its exchange");
    }
    const std::shared_ptr<GpuExchange> exchange = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) begun_.erase(found);
    changed_.wait(lock, [&] { return exchange->ended || exchange->end != nullptr; });
    if (!exchange->ended) {
      *end = exchange->end;
      return OkStatus();
    }
    if (exchange->status.ok()) return OkStatus();
    changed_.wait(lock, [&] { return at_work_[stream] == 0; });
    for (auto it = begun_.begin(); it != begun_.end();) {
      it = it->second.front()->stream == stream ? begun_.erase(it) : std::next(it);
    }
    return exchange->status;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<CudaStreamHandle, int> at_work_;
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
    together[i].on_its_way = [exchange](DeviceMark end) {
      AllExchanges().SetOnItsWay(exchange, std::move(end));
    };
    AllExchanges().Begin(exchange);
  }
  exchanger->Enqueue(stream, std::move(together));
  return ffi::Error::Success();
}

ffi::Error Run(ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

ffi::Error Gate(ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

ffi::Error Done(CudaStreamHandle stream, CallAttributes attributes, ffi::RemainingArgs values,
                ffi::RemainingRets) {
  const std::vector<std::string> names = CallNames(attributes);
  DeviceMark last;
  for (size_t i = 0; i < names.size(); ++i) {
    DeviceMark end;
    Status status =
        AllExchanges().Wait(stream, names[i], values.get<ffi::AnyBuffer>(i)->untyped_data(), &end);
    // Several of them have the end of one collective.
    if (status.ok() && end != nullptr && end != last)
      status = static_cast<CudaEvent*>(end.get())->HoldUp(stream);
    if (!status.ok()) return ToCallError(status);
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
