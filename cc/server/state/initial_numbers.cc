#include "cc/server/state/initial_numbers.h"

#include <cmath>

namespace byteps {
namespace {

uint64_t Mix(uint64_t x) {  // SplitMix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// In [0, 1), a multiple of 2^-53.
double Uniform(uint64_t key, uint64_t draw) {
  return static_cast<double>(Mix(key + draw * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}

// Of a number in (0, 1]. The library's may differ between machines in the last bit.
double Log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2;
    --exponent;
  }
  const double z = (mantissa - 1) / (mantissa + 1), square = z * z;
  double sum = 0;
  for (int power = 21; power >= 1; power -= 2) sum = sum * square + 1.0 / power;
  return 2 * z * sum + exponent * 0.69314718055994531;
}

// Marsaglia's polar method; `draw` counts on.
double Normal(uint64_t key, uint64_t* draw) {
  for (;;) {
    const double u = 2 * Uniform(key, *draw) - 1, v = 2 * Uniform(key, *draw + 1) - 1;
    *draw += 2;
    const double square = u * u + v * v;
    if (square > 0 && square < 1) return u * std::sqrt(-2 * Log(square) / square);
  }
}

}  // namespace

double InitialNumber(const TableSpec& spec, uint64_t row, uint64_t column) {
  if (spec.distribution == TableSpec::Distribution::kConstant) return spec.first;
  const uint64_t key = Mix(Mix(Mix(spec.seed) + row) + column);
  if (spec.distribution == TableSpec::Distribution::kUniform)
    return spec.first + (spec.second - spec.first) * Uniform(key, 0);
  uint64_t draw = 0;
  double normal = Normal(key, &draw);
  while (spec.distribution == TableSpec::Distribution::kTruncated && std::abs(normal) > 2)
    normal = Normal(key, &draw);
  return spec.first + spec.second * normal;
}

}  // namespace byteps
