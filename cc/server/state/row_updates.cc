#include "cc/server/state/row_updates.h"

#include <algorithm>
#include <cmath>

namespace byteps {
namespace {

template <typename T>
void Sgd(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  (void)rule;
  for (uint64_t i = 0; i < width; ++i) row[i] -= gradient[i] * rate;
}

template <typename T>
void Adagrad(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  const T epsilon = static_cast<T>(rule.numbers[0]);
  T* const accumulators = row + width;
  for (uint64_t i = 0; i < width; ++i) {
    accumulators[i] += gradient[i] * gradient[i];
    row[i] -= rate * gradient[i] / std::sqrt(accumulators[i] + epsilon);
  }
}

template <typename T>
void RowWiseAdagrad(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  T squares = 0;
  for (uint64_t i = 0; i < width; ++i) squares += gradient[i] * gradient[i];
  T& accumulator = row[width];
  accumulator += squares / static_cast<T>(width);
  const T divisor = std::sqrt(accumulator) + static_cast<T>(rule.numbers[0]);
  for (uint64_t i = 0; i < width; ++i) row[i] -= rate * gradient[i] / divisor;
}

template <typename T, bool is_nesterov>
void Momentum(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  const T momentum = static_cast<T>(rule.numbers[0]);
  T* const moved = row + width;
  for (uint64_t i = 0; i < width; ++i) {
    const T step = gradient[i] * rate;
    moved[i] = moved[i] * momentum - step;
    row[i] += is_nesterov ? moved[i] * momentum - step : moved[i];
  }
}

template <typename T, bool is_amsgrad>
void Adam(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  const T new_of_first = static_cast<T>(1 - rule.numbers[0]);
  const T new_of_second = static_cast<T>(1 - rule.numbers[1]);
  const T epsilon = static_cast<T>(rule.numbers[2]);
  T* const first = row + width;
  T* const second = first + width;
  T* const largest = is_amsgrad ? second + width : second;
  for (uint64_t i = 0; i < width; ++i) {
    first[i] += (gradient[i] - first[i]) * new_of_first;
    second[i] += (gradient[i] * gradient[i] - second[i]) * new_of_second;
    largest[i] = std::max(largest[i], second[i]);
    row[i] -= first[i] * rate / (std::sqrt(largest[i]) + epsilon);
  }
}

template <typename T>
void Ftrl(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  const auto [power, l1, l2, shrinkage, beta] = rule.numbers;
  const T exponent = static_cast<T>(power), limit = static_cast<T>(l1);
  const T twice_l2 = 2 * (static_cast<T>(l2) + static_cast<T>(beta) / (2 * rate));
  const T shrinks = static_cast<T>(2 * shrinkage);
  T* const accumulators = row + width;
  T* const linear = accumulators + width;
  for (uint64_t i = 0; i < width; ++i) {
    const T before = std::pow(accumulators[i], exponent);
    accumulators[i] += gradient[i] * gradient[i];
    const T after = std::pow(accumulators[i], exponent);
    linear[i] += gradient[i] + shrinks * row[i] - (after - before) / rate * row[i];
    row[i] = (std::clamp(linear[i], -limit, limit) - linear[i]) / (after / rate + twice_l2);
  }
}

template <typename T, bool has_momentum, bool is_centered>
void Rmsprop(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  const T rho = static_cast<T>(rule.numbers[0]), rest = static_cast<T>(1 - rule.numbers[0]);
  const T epsilon = static_cast<T>(rule.numbers[1]);
  const T momentum = static_cast<T>(rule.numbers[2]);
  T* const squares = row + width;
  T* const moved = squares + width;
  T* const averages = has_momentum ? moved + width : moved;
  for (uint64_t i = 0; i < width; ++i) {
    squares[i] = rho * squares[i] + rest * (gradient[i] * gradient[i]);
    T variance = squares[i];
    if constexpr (is_centered) {
      averages[i] = rho * averages[i] + rest * gradient[i];
      variance -= averages[i] * averages[i];
    }
    T step = rate * gradient[i] / std::sqrt(variance + epsilon);
    if constexpr (has_momentum) step = moved[i] = momentum * moved[i] + step;
    row[i] -= step;
  }
}

template <typename T>
void Adadelta(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row) {
  const T rho = static_cast<T>(rule.numbers[0]), rest = static_cast<T>(1 - rule.numbers[0]);
  const T epsilon = static_cast<T>(rule.numbers[1]);
  T* const squares = row + width;
  T* const changes = squares + width;
  for (uint64_t i = 0; i < width; ++i) {
    squares[i] = rho * squares[i] + rest * (gradient[i] * gradient[i]);
    const T change =
        -(std::sqrt(changes[i] + epsilon) * gradient[i] / std::sqrt(squares[i] + epsilon));
    changes[i] = rho * changes[i] + rest * (change * change);
    row[i] += rate * change;
  }
}

}  // namespace

template <typename T>
RowUpdate<T> RowUpdateOf(RowRule::Kind kind) {
  switch (kind) {
    case RowRule::Kind::kSgd: return Sgd<T>;
    case RowRule::Kind::kAdagrad: return Adagrad<T>;
    case RowRule::Kind::kRowWiseAdagrad: return RowWiseAdagrad<T>;
    case RowRule::Kind::kMomentum: return Momentum<T, false>;
    case RowRule::Kind::kNesterov: return Momentum<T, true>;
    case RowRule::Kind::kAdam: return Adam<T, false>;
    case RowRule::Kind::kAmsgrad: return Adam<T, true>;
    case RowRule::Kind::kFtrl: return Ftrl<T>;
    case RowRule::Kind::kRmsprop: return Rmsprop<T, false, false>;
    case RowRule::Kind::kRmspropMomentum: return Rmsprop<T, true, false>;
    case RowRule::Kind::kRmspropCentered: return Rmsprop<T, false, true>;
    case RowRule::Kind::kRmspropCenteredMomentum: return Rmsprop<T, true, true>;
    case RowRule::Kind::kAdadelta: return Adadelta<T>;
  }
  return Sgd<T>;
}

template RowUpdate<float> RowUpdateOf<float>(RowRule::Kind kind);
template RowUpdate<double> RowUpdateOf<double>(RowRule::Kind kind);

}  // namespace byteps
