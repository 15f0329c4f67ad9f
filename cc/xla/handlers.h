// The handlers of the custom calls of compiled_call.h, by their names in libtf_byteps_xla.so: C
// functions, which whoever runs XLA's programs registers with its XLA. TensorFlow's is told by
// tf/registered_handlers.cc, JAX's by tf_byteps/jax/custom_calls.py.
//
// One build serves all versions of XLA whose XLA_FFI_API_MAJOR is that of its headers, if theirs
// are not older.
#pragma once

#include "cc/xla/export.h"
#include "xla/ffi/api/c_api.h"

extern "C" {

BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_run_on_host(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_start_on_host(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_barrier_on_host(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_done_on_host(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_rank_info_on_host(XLA_FFI_CallFrame* frame);

BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_run_on_cuda(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_start_on_cuda(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_barrier_on_cuda(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_done_on_cuda(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_start_detached_on_cuda(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_wait_on_cuda(XLA_FFI_CallFrame* frame);
BYTEPS_XLA_EXPORT XLA_FFI_Error* byteps_rank_info_on_cuda(XLA_FFI_CallFrame* frame);

}  // extern "C"
