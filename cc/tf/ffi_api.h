// Where TensorFlow's XLA is told of handlers.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();  // of TensorFlow's library
}
