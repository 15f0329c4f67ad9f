// What a fuzz target defines. Two programs run it: libFuzzer's (tools/fuzz.sh, where clang is
// there), and cc/fuzz/driver.cc, which mutates the seeds deterministically, for `make test` and the
// sanitizers of g++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// Takes any bytes; aborts if something is wrong. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace byteps {

// Well-formed inputs to start from.
std::vector<std::string> FuzzSeeds();

inline void FuzzCheck(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

template <size_t N>
std::string FuzzText(const uint8_t (&bytes)[N]) {
  return std::string(reinterpret_cast<const char*>(bytes), N);
}

}  // namespace byteps
