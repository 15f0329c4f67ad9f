// Where TensorFlow's XLA is told of handlers.
#ifndef TF_BYTEPS_CC_TF_FFI_API_H_
#define TF_BYTEPS_CC_TF_FFI_API_H_

#include "xla/ffi/api/ffi.h"

namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();  // of TensorFlow's library
}

#endif  // TF_BYTEPS_CC_TF_FFI_API_H_
