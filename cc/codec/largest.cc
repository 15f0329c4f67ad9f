#include "cc/codec/largest.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "cc/codec/scale.h"

namespace byteps::codec_internal {
namespace {

// Elements at a time, of which most have no large one.
constexpr uint64_t kChunk = 32;

constexpr uint64_t kLeastSamples = 1024;
constexpr uint64_t kMostSamples = 8192;

// As integers they have the order of the magnitudes.
uint32_t MagnitudeBits(float value) { return BitCast<uint32_t>(value) & 0x7fffffff; }

// What a few more than `count` elements are probably larger than: from a sample, one element of
// each of many sections of equal length, not always at the same place of it, since gradients have
// rows. The larger `slack`, the surer.
uint32_t GuessThreshold(const float* values, uint64_t elements, uint64_t count, double slack) {
  const uint64_t samples =
      std::min(elements, std::clamp(elements / 32, kLeastSamples, kMostSamples));
  const double expected =
      static_cast<double>(count) * static_cast<double>(samples) / static_cast<double>(elements);
  const double rank = expected + slack * (1 + std::sqrt(expected));
  if (rank >= static_cast<double>(samples)) return 0;
  std::vector<uint32_t> sample(samples);
  const uint64_t section = elements / samples;
  for (uint64_t i = 0; i < samples; ++i) {
    const uint64_t place = (i * 0x9e3779b97f4a7c15u >> 32) * section >> 32;
    sample[i] = MagnitudeBits(values[i * section + place]);
  }
  const auto nth = sample.begin() + static_cast<int64_t>(rank);
  std::nth_element(sample.begin(), nth, sample.end(), std::greater<>());
  return *nth;
}

std::vector<uint64_t> IndicesAbove(const float* values, uint64_t elements, uint32_t threshold,
                                   uint64_t expected) {
  std::vector<uint64_t> indices(expected + kChunk);
  uint64_t found = 0;
  for (uint64_t begin = 0; begin < elements; begin += kChunk) {
    const uint64_t end = std::min(begin + kChunk, elements);
    if (LargestBits(values + begin, end - begin) <= threshold) continue;
    if (indices.size() < found + kChunk) indices.resize(2 * indices.size());
    for (uint64_t i = begin; i < end; ++i) {
      indices[found] = i;
      found += MagnitudeBits(values[i]) > threshold;
    }
  }
  indices.resize(found);
  return indices;
}

// The first ones, at most `most`.
std::vector<uint64_t> IndicesEqual(const float* values, uint64_t elements, uint32_t magnitude,
                                   uint64_t most) {
  std::vector<uint64_t> indices;
  for (uint64_t i = 0; i < elements && indices.size() < most; ++i) {
    if (MagnitudeBits(values[i]) == magnitude) indices.push_back(i);
  }
  return indices;
}

// Leaves the `count` largest of `indices`.
void KeepLargest(const float* values, uint64_t count, std::vector<uint64_t>* indices) {
  std::vector<uint32_t> magnitudes(indices->size());
  for (size_t i = 0; i < magnitudes.size(); ++i)
    magnitudes[i] = MagnitudeBits(values[(*indices)[i]]);
  const auto last = magnitudes.begin() + static_cast<int64_t>(count) - 1;
  std::nth_element(magnitudes.begin(), last, magnitudes.end(), std::greater<>());
  const uint32_t threshold = *last;
  int64_t equal =
      1 + std::count(magnitudes.begin(), last, threshold);  // those in front are not smaller
  const auto is_left_out = [&](uint64_t index) {
    const uint32_t magnitude = MagnitudeBits(values[index]);
    return magnitude < threshold || (magnitude == threshold && equal-- <= 0);
  };
  // In order of the indices.
  size_t kept = 0;
  for (const uint64_t index : *indices) {
    if (!is_left_out(index)) (*indices)[kept++] = index;
  }
  indices->resize(kept);
}

}  // namespace

// Most elements are looked at once, and found smaller than a threshold that is a guess. Whether the
// guess is right is known afterwards.
std::vector<uint64_t> LargestMagnitudes(const float* values, uint64_t elements, uint64_t count) {
  for (double slack = 4;; slack *= 8) {
    const uint32_t threshold = GuessThreshold(values, elements, count, slack);
    std::vector<uint64_t> indices =
        IndicesAbove(values, elements, threshold, std::min(elements, 2 * count));
    if (indices.size() >= count) {
      KeepLargest(values, count, &indices);
      return indices;
    }
    // Gradients may be zero nearly everywhere.
    const uint64_t missing = count - indices.size();
    const std::vector<uint64_t> equal = IndicesEqual(values, elements, threshold, missing);
    if (equal.size() < missing) continue;
    std::vector<uint64_t> merged;
    merged.reserve(count);
    std::merge(indices.begin(), indices.end(), equal.begin(), equal.end(),
               std::back_inserter(merged));
    return merged;
  }
}

}  // namespace byteps::codec_internal
