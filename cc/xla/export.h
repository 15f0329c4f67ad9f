// libtf_byteps_xla.so exports what is declared with this, and nothing of XLA: a process may have
// the headers of two versions of XLA, TensorFlow's and JAX's, whose inline functions must not mix.
#pragma once

#define BYTEPS_XLA_EXPORT __attribute__((visibility("default")))
