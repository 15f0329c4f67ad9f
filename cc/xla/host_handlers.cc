// What compiled programs call on the CPU. Threads: XLA's call the handlers, which never wait; the
// engine's end the exchanges; what XLA does next runs on those of host_threads.h, because an engine
// thread must not compute.
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/copy.h"
#include "cc/engine/engine.h"
#include "cc/staging/compiled_runs.h"
#include "cc/xla/compiled_call.h"
#include "cc/xla/handlers.h"
#include "cc/xla/host_threads.h"
#include "cc/xla/rank_info.h"
#include "cc/xla/request_watch.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

// Never destroyed, as the threads.
CompiledRuns& Runs() {
  const auto enqueue = [](ExchangeRequest request) {
    ShowToWatch(&request);
    Enqueue(std::move(request));
  };
  static auto* const runs = new CompiledRuns(enqueue, ComputeLater);
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
  for (size_t i = 0; i < requests.size(); ++i) {
    ExchangeRequest& request = requests[i];
    request.input = PlaceOf(**results.get<ffi::AnyBuffer>(i));
    int64_t all_rows = 0;
    if (request.tensor.kind == ExchangeKind::kGather)
      all_rows = (*results.get<ffi::AnyBuffer>(2))->dimensions().front();
    const Status started = Runs().Start(run, std::move(request), all_rows);
    if (!started.ok()) return ToCallError(started);
  }
  return ffi::Error::Success();
}

ffi::Error Barrier(ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer>) {
  return ffi::Error::Success();
}

ffi::Future Done(CallAttributes attributes, ffi::RemainingArgs operands,
                 ffi::RemainingRets results) {
  const std::vector<std::string> names = CallNames(attributes);
  const uint32_t run = RunOf(operands);
  ffi::CountDownPromise promise(static_cast<int64_t>(names.size()));
  ffi::Future future(promise);
  for (size_t i = 0; i < names.size(); ++i) {
    void* const to = (*results.get<ffi::AnyBuffer>(i))->untyped_data();
    Runs().WhenEnded(run, names[i], PlaceOf(*operands.get<ffi::AnyBuffer>(i + 1)),
                     [promise, to](const Status& status, const void* from, uint64_t bytes) mutable {
                       if (status.ok()) CopyPastCache(to, from, bytes);
                       promise.CountDown(ToCallError(status));
                     });
  }
  return future;
}

ffi::Error Place(int64_t what, ffi::Result<ffi::AnyBuffer> number) {
  int32_t found = 0;
  const Status status = ReadPlace(what, &found);
  if (status.ok()) *static_cast<int32_t*>(number->untyped_data()) = found;
  return ToCallError(status);
}

}  // namespace
}  // namespace byteps

XLA_FFI_DEFINE_HANDLER_SYMBOL(byteps_run_on_host, byteps::Run,
                              byteps::ffi::Ffi::Bind().Ret<byteps::ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    byteps_start_on_host, byteps::Start,
    byteps::ffi::Ffi::Bind().Attrs<byteps::CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    byteps_barrier_on_host, byteps::Barrier,
    byteps::ffi::Ffi::Bind().RemainingArgs().Ret<byteps::ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    byteps_done_on_host, byteps::Done,
    byteps::ffi::Ffi::Bind().Attrs<byteps::CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    byteps_rank_info_on_host, byteps::Place,
    byteps::ffi::Ffi::Bind().Attr<int64_t>("what").Ret<byteps::ffi::AnyBuffer>());
