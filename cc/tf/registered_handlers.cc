// Tells TensorFlow's XLA of the handlers in libtf_byteps_xla.so, and them of its profiler.
#include "cc/tf/ffi_api.h"
#include "cc/tf/profiler_activity.h"
#include "cc/xla/compiled_call.h"
#include "cc/xla/handlers.h"
#include "cc/xla/request_watch.h"

namespace byteps {
namespace {

using xla::ffi::GetXlaFfiApi;

XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kRunCall, "Host", byteps_run_on_host);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kStartCall, "Host", byteps_start_on_host);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kBarrierCall, "Host", byteps_barrier_on_host);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kDoneCall, "Host", byteps_done_on_host);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kRankInfoCall, "Host", byteps_rank_info_on_host);

XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kRunCall, "CUDA", byteps_run_on_cuda);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kStartCall, "CUDA", byteps_start_on_cuda);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kBarrierCall, "CUDA", byteps_barrier_on_cuda);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kDoneCall, "CUDA", byteps_done_on_cuda);
XLA_FFI_REGISTER_HANDLER(GetXlaFfiApi(), kRankInfoCall, "CUDA", byteps_rank_info_on_cuda);

[[maybe_unused]] const bool is_watched = [] {
  SetRequestWatch(ShowInProfiler);
  return true;
}();

}  // namespace
}  // namespace byteps
