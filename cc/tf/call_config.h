// What the compiler (xla_kernels.cc) writes into the custom calls of xla/compiled_call.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/tf/named_exchange.h"
#include "cc/xla/call_text.h"

namespace byteps {

// The attributes as XLA takes them.
inline std::string ToCallConfig(const std::vector<NamedExchange>& exchanges) {
  std::string names, codecs, priorities;
  for (const NamedExchange& exchange : exchanges) {
    const char* const dot = &exchange == &exchanges.front() ? "" : ".";
    names += dot + ToDigits(exchange.tensor.name);
    codecs += dot + ToDigits(exchange.tensor.codec);
    priorities += dot + std::to_string(exchange.priority);
  }
  const auto number = [](const char* key, int64_t value) {
    return std::string(", ") + key + " = " + std::to_string(value) + " : i64";
  };
  const TensorDescription& first = exchanges.front().tensor;
  return "{names = \"" + names + "\", codecs = \"" + codecs + "\", priorities = \"" + priorities +
         "\"" + number("kind", static_cast<int64_t>(first.kind)) +
         number("average", first.average) + number("root_rank", first.root_rank) +
         number("backup_workers", first.backup_workers) + "}";
}

}  // namespace byteps
