// RowRule: how a server updates a row of a table, and how much it keeps for a row. The arithmetic
// is in cc/server/state/row_updates.h; tf_byteps/tables/server_rules.py makes rules of optimizers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace byteps {

// A value, without pointers: any thread may have its own.
struct RowRule {
  // The order is that of server_rules.py.
  enum class Kind : uint32_t {
    kSgd,
    kAdagrad,
    kRowWiseAdagrad,
    kMomentum,
    kNesterov,
    kAdam,
    kAmsgrad,
    kFtrl,
    kRmsprop,
    kRmspropMomentum,
    kRmspropCentered,
    kRmspropCenteredMomentum,
    kAdadelta,
  };
  static constexpr uint32_t kNumKinds = 13;
  // That any kind keeps for a row.
  static constexpr uint32_t kMostStates = 3;

  Kind kind = Kind::kSgd;
  // What the first state begins with. Others begin with 0.
  double first_state = 0;
  // Of each kind as row_rule.cc names them, the others 0.
  std::array<double, 5> numbers = {};

  // How many states a row has, and how many numbers each of them has.
  uint32_t NumStates() const;
  uint64_t StateWidth(uint64_t width) const { return kind == Kind::kRowWiseAdagrad ? 1 : width; }

  // Whether it can be one: its numbers are finite, and at least 0.
  bool IsSane() const;
  // INVALID_ARGUMENT if this rule cannot update with the learning rate.
  Status CheckRate(double rate) const;

  bool operator==(const RowRule& other) const {
    return kind == other.kind && first_state == other.first_state && numbers == other.numbers;
  }
  // "LazyAdam (beta_1 0.9, beta_2 0.999, epsilon 1e-07)".
  std::string ToString() const;
};

}  // namespace byteps
