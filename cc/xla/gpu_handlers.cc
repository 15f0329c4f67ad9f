// What compiled programs call on a GPU. The calls of a program come one after the other, on the
// host thread that puts the program on the GPU's stream; they put on it what must be in the
// stream's order.
//
// A done makes the program's stream wait for the result: for the end of the collective that gives
// it to all ranks of a host, or for what servers send to a worker that is alone on its host. All
// starts come before it (compiled_call.h), so that the host waits for other threads at most, not
// for the GPU. Where several ranks of a host share what servers send, each stream copies it from
// the memory that they share (staging/shared_results.h), and no collective follows.
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
#include "cc/xla/compiled_call.h"
#include "cc/xla/detached_exchanges.h"
#include "cc/xla/export.h"
#include "cc/xla/handlers.h"
#include "cc/xla/rank_info.h"
#include "cc/xla/request_watch.h"
#include "cc/xla/stream_exchanges.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

using Stream = ffi::PlatformStream<CudaStreamHandle>;

// The exchanges of this process's programs, from start to done. Their memory is XLA's, which frees
// it in the order of the stream. Thread-safe.
class Begun {
 public:
  // Returns what was begun with this name and memory: a program has its memory from start to done,
  // unless it has failed in between.
  std::vector<StreamExchangePointer> Add(const StreamExchangePointer& exchange, const void* input) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& queue = begun_[{exchange->name, input}];
    std::vector<StreamExchangePointer> given_up;
    if (input != nullptr) {
      given_up.assign(queue.begin(), queue.end());
      queue.clear();
    }
    queue.push_back(exchange);
    return given_up;
  }

  // The one that was begun first with this name and memory, for its done; null: there is none.
  StreamExchangePointer Claim(const std::string& name, const void* input) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = begun_.find({name, input});
    if (found == begun_.end()) return nullptr;
    StreamExchangePointer exchange = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) begun_.erase(found);
    return exchange;
  }

  // Null: of all streams.
  std::vector<StreamExchangePointer> ClaimAllOf(CudaStreamHandle stream) {
    std::vector<StreamExchangePointer> all;
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = begun_.begin(); it != begun_.end();) {
      if (stream != nullptr && it->second.front()->stream != stream) {
        ++it;
        continue;
      }
      all.insert(all.end(), it->second.begin(), it->second.end());
      it = begun_.erase(it);
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, const void*>, std::deque<StreamExchangePointer>> begun_;
};

Begun& AllBegun() {
  static auto* const all = new Begun;  // engine threads may outlive static objects
  return *all;
}

// The end of the exchange, on an engine's or a device's thread. A gather's result has its place.
void SetEnd(const StreamExchangePointer& exchange, ffi::RemainingRets results,
            ExchangeRequest* request) {
  const auto mistake = std::make_shared<Status>();
  if (request->tensor.kind == ExchangeKind::kGather) {
    request->has_fixed_rows = true;
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
    AllStreamExchanges().End(exchange, mistake->ok() ? result : *mistake);
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
    const auto exchange = std::make_shared<StreamExchange>(requests[i].tensor.name, stream,
                                                           /*uses_programs_memory=*/true);
    const std::vector<StreamExchangePointer> given_up =
        AllBegun().Add(exchange, PlaceOf(**results.get<ffi::AnyBuffer>(i)));
    AllStreamExchanges().EndGivenUp(given_up);
    SetEnd(exchange, results, &requests[i]);
    ShowToWatch(&requests[i]);
    together[i].request = std::move(requests[i]);
    AllStreamExchanges().Begin(exchange, &together[i]);
  }
  exchanger->Enqueue(stream, std::move(together));
  return ffi::Error::Success();
}

ffi::Error Run(ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

ffi::Error Barrier(ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer>) {
  return ffi::Error::Success();
}

// Makes the stream wait for the exchange that was begun with this name and memory, if it has not
// ended. `last` is what the stream has been made to wait for just now.
Status MakeStreamWait(CudaStreamHandle stream, const std::string& name, const void* input,
                      DeviceEvent* last) {
  const StreamExchangePointer exchange = AllBegun().Claim(name, input);
  if (exchange == nullptr) {
    return Internal("tensor \"" + name +
                    "\": XLA has moved it between the begin and the end of its exchange");
  }
  DeviceEvent end;
  Status status = AllStreamExchanges().WaitUntilSubmitted(exchange, &end);
  // Several of them have the end of one collective.
  if (status.ok() && end != nullptr && end != *last) status = end->MakeStreamWait(stream);
  if (!status.ok()) AllStreamExchanges().Release({exchange});
  *last = end;
  return status;
}

ffi::Error Done(CudaStreamHandle stream, CallAttributes attributes, ffi::RemainingArgs operands,
                ffi::RemainingRets) {
  const std::vector<std::string> names = CallNames(attributes);
  DeviceEvent last;
  for (size_t i = 0; i < names.size(); ++i) {
    const Status status =
        MakeStreamWait(stream, names[i], PlaceOf(*operands.get<ffi::AnyBuffer>(i + 1)), &last);
    if (status.ok()) continue;
    // No done will come for what else the stream's programs have begun, and XLA will free their
    // memory.
    AllStreamExchanges().Release(AllBegun().ClaimAllOf(stream));
    AllStreamExchanges().WaitForProgramsMemory(stream);
    return ToCallError(status);
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

}  // namespace
}  // namespace byteps

// Blocks until all exchanges that programs have begun on streams have ended, but for those that no
// stream waits for yet, which are left to a later program. Returns "", or code
// and sentence of one that failed when its stream had been made to wait for it already. Valid until
// the thread's next call.
extern "C" BYTEPS_XLA_EXPORT const char* byteps_wait_for_exchanges_on_cuda() {
  thread_local std::string text;
  byteps::AllDetached().WaitUntilTakenEnded();
  const byteps::Status status = byteps::AllStreamExchanges().WaitUntilAllEnded();
  text = status.ok() ? "" : status.ToString();
  return text.c_str();
}

// To be called when a program has failed, before others use its memory. Of what has begun and has
// no end, nothing will come: blocks until the engine has let go of it.
extern "C" BYTEPS_XLA_EXPORT void byteps_end_failed_programs_on_cuda() {
  byteps::AllStreamExchanges().EndGivenUp(byteps::AllBegun().ClaimAllOf(nullptr));
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(byteps_run_on_cuda, byteps::Run,
                              byteps::ffi::Ffi::Bind().Ret<byteps::ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(byteps_start_on_cuda, byteps::Start,
                              byteps::ffi::Ffi::Bind()
                                  .Ctx<byteps::Stream>()
                                  .Attrs<byteps::CallAttributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    byteps_barrier_on_cuda, byteps::Barrier,
    byteps::ffi::Ffi::Bind().RemainingArgs().Ret<byteps::ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(byteps_done_on_cuda, byteps::Done,
                              byteps::ffi::Ffi::Bind()
                                  .Ctx<byteps::Stream>()
                                  .Attrs<byteps::CallAttributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(byteps_rank_info_on_cuda, byteps::Place,
                              byteps::ffi::Ffi::Bind()
                                  .Ctx<byteps::Stream>()
                                  .Attr<int64_t>("what")
                                  .Ret<byteps::ffi::AnyBuffer>());
