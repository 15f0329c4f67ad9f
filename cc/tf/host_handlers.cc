// What compiled programs call on the CPU. Threads: XLA's call the handlers, which never wait; the
// engine's end the exchanges; what XLA does next runs on two threads of this file, because an
// engine thread must not compute.
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/copy.h"
#include "cc/base/work_threads.h"
#include "cc/engine/engine.h"
#include "cc/staging/compiled_runs.h"
#include "cc/tf/compiled_call.h"
#include "cc/tf/detached_start.h"
#include "cc/tf/profiler_activity.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/platform/denormal.h"
#include "tensorflow/core/platform/setround.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

constexpr int kThreads = 2;

// Never destroyed: threads of the engine and of XLA may outlive static objects. Numbers are treated
// as on XLA's own threads, so that a worker computes the same on whichever thread it goes on.
void CallLater(std::function<void()> continuation) {
  static auto* const threads = new WorkThreads("byteps-xla", kThreads);
  threads->Add([continuation = std::move(continuation)] {
    const tensorflow::port::ScopedFlushDenormal flush_denormals;
    const tensorflow::port::ScopedSetRound round_to_nearest(FE_TONEAREST);
    continuation();
  });
}

CompiledRuns& Runs() {
  const auto enqueue = [](ExchangeRequest request) {
    ShowInProfiler(&request);
    Enqueue(std::move(request));
  };
  static auto* const runs = new CompiledRuns(enqueue, CallLater);
  return *runs;
}

uint32_t NumberOf(const ffi::AnyBuffer& run) {
  return *static_cast<const uint32_t*>(run.untyped_data());
}

ffi::Error Run(ffi::Result<ffi::AnyBuffer> run) {
  static std::atomic<uint32_t> last{0};
  *static_cast<uint32_t*>(run->untyped_data()) = ++last;
  return ffi::Error::Success();
}

uint32_t RunOf(const ffi::RemainingArgs& operands) {
  return NumberOf(*operands.get<ffi::AnyBuffer>(0));
}

ffi::Error Start(CallAttributes attributes, ffi::RemainingArgs operands,
                 ffi::RemainingRets results) {
  std::vector<ExchangeRequest> requests;
  const Status status = DescribeStart(attributes, results, &requests);
  if (!status.ok()) return ToCallError(status);
  const uint32_t run = RunOf(operands);
  for (ExchangeRequest& request : requests) {
    int64_t all_rows = 0;
    if (request.tensor.kind == ExchangeKind::kGather)
      all_rows = (*results.get<ffi::AnyBuffer>(2))->dimensions().front();
    const Status started = Runs().Start(run, std::move(request), all_rows);
    if (!started.ok()) return ToCallError(started);
  }
  return ffi::Error::Success();
}

ffi::Error Gate(ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

ffi::Future Done(CallAttributes attributes, ffi::RemainingArgs operands,
                 ffi::RemainingRets results) {
  const std::vector<std::string> names = CallNames(attributes);
  const uint32_t run = RunOf(operands);
  ffi::CountDownPromise promise(static_cast<int64_t>(names.size()));
  ffi::Future future(promise);
  for (size_t i = 0; i < names.size(); ++i) {
    void* const to = (*results.get<ffi::AnyBuffer>(i))->untyped_data();
    Runs().WhenEnded(run, names[i], operands.get<ffi::AnyBuffer>(i + 1)->untyped_data(),
                     [promise, to](const Status& status, const void* from, uint64_t bytes) mutable {
                       if (status.ok()) CopyPastCache(to, from, bytes);
                       promise.CountDown(ToCallError(status));
                     });
  }
  return future;
}

ffi::Error StartDetached(CallAttributes attributes, ffi::RemainingArgs operands,
                         ffi::RemainingRets) {
  DetachedStart way;
  way.memory = tensorflow::cpu_allocator();
  way.copy = [](void* to, const void* from, size_t bytes) {
    CopyPastCache(to, from, bytes);
    return OkStatus();
  };
  way.enqueue = [](ExchangeRequest request, const StreamExchangePointer&) {
    Enqueue(std::move(request));
  };
  return ToCallError(StartDetachedTensors(attributes, operands, way));
}

// Nothing is written to XLA's memory once the future is complete, and before only after success.
ffi::Future Wait(std::string_view name, ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer> result) {
  ffi::CountDownPromise promise(1);
  ffi::Future future(promise);
  std::shared_ptr<StartedExchange> started;
  const absl::Status status = TakeStarted(name, result->element_type(), &started);
  if (!status.ok()) {
    promise.CountDown(ToCallError(status));
    return future;
  }
  started->WhenFinished([promise, started, shape = ShapeOfResult(*result),
                         to = result->untyped_data(),
                         bytes = result->size_bytes()](const absl::Status& ended) {
    // Older compilers would make the copy of a captured promise constant.
    CallLater([promise = ffi::CountDownPromise(promise), started, shape, to, bytes,
               outcome = ended]() mutable {
      if (outcome.ok()) outcome = CheckResultShape(started->output(), shape);
      if (outcome.ok()) CopyPastCache(to, started->output().data(), bytes);
      promise.CountDown(ToCallError(outcome));
    });
  });
  return future;
}

ffi::Error Place(int64_t what, ffi::Result<ffi::AnyBuffer> number) {
  int32_t found = 0;
  const Status status = ReadPlace(what, &found);
  if (status.ok()) *static_cast<int32_t*>(number->untyped_data()) = found;
  return ToCallError(status);
}

XLA_FFI_DEFINE_HANDLER(kRun, Run, ffi::Ffi::Bind().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(kStart, Start,
                       ffi::Ffi::Bind().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kGate, Gate, ffi::Ffi::Bind().RemainingArgs().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(kDone, Done,
                       ffi::Ffi::Bind().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kStartDetached, StartDetached,
                       ffi::Ffi::Bind().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(
    kWait, Wait,
    ffi::Ffi::Bind().Attr<std::string_view>("name").RemainingArgs().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(kRankInfo, Place,
                       ffi::Ffi::Bind().Attr<int64_t>("what").Ret<ffi::AnyBuffer>());

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kRunCall, "Host", kRun);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartCall, "Host", kStart);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kGateCall, "Host", kGate);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kDoneCall, "Host", kDone);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartDetachedCall, "Host", kStartDetached);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kWaitCall, "Host", kWait);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kRankInfoCall, "Host", kRankInfo);

}  // namespace
}  // namespace byteps
