// For tests: gradients that workers exchange compressed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/testing/test_job.h"

namespace byteps {

inline constexpr size_t kElements = 100003;
inline constexpr uint64_t kTestPartBytes = 64 * 1024;

inline EngineOptions Options() {
  EngineOptions options;
  options.flow.part_bytes = kTestPartBytes;
  options.deterministic = true;  // three contributions round by their order
  return options;
}

inline std::vector<float> Gradient(int rank, uint64_t round) {
  std::vector<float> values(kElements);
  uint32_t state = 12345 + rank * 977 + static_cast<uint32_t>(round) * 31;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = (static_cast<float>(state >> 8) / (1 << 24) - 0.5f) *
            static_cast<float>(1 << (state >> 28));
  }
  return values;
}

inline std::shared_ptr<Pending> SendAs(Worker& worker, const std::string& name,
                                       const std::string& codec, std::vector<float> values,
                                       bool average = false) {
  auto pending = std::make_shared<Pending>(std::move(values));
  ExchangeRequest request = Request(name, pending);
  request.tensor.codec = codec;
  request.tensor.average = average;
  worker.Enqueue(std::move(request));
  return pending;
}

}  // namespace byteps
