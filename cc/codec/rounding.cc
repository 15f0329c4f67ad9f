#include "cc/codec/rounding.h"

#include <cstring>

#include "cc/codec/scale.h"
#include "cc/sum/sum.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace byteps::codec_internal {
namespace {

#include "cc/codec/rounding_loops.h"

}  // namespace

const RoundingLoops& ActiveRoundingLoops() {
  static constexpr RoundingLoops scalar = LoopsNamed("scalar");
  const char* name = ActiveSumKernels().name;
  for (const RoundingLoops* loops : {Avx2RoundingLoops(), Avx512RoundingLoops()}) {
    if (loops != nullptr && std::strcmp(loops->name, name) == 0) return *loops;
  }
  return scalar;
}

void RoundBlocks(const float* values, uint64_t elements, uint64_t block, const Rounding& rounding,
                 uint64_t index, BFloat16* scales, uint8_t* levels) {
  const RoundingLoops& loops = ActiveRoundingLoops();
  float scaled[kMostRounded];
  const float reciprocal = 1.0f / static_cast<float>(rounding.most);
  for (uint64_t begin = 0; begin < elements; begin += block) {
    const uint64_t count = elements - begin < block ? elements - begin : block;
    const Scale scale = ScaleFor(loops.largest(values + begin, count), reciprocal);
    *scales++ = scale.wire;
    for (uint64_t i = begin; i < begin + count; ++i)
      scaled[i] = scale.inverse == 0 ? 0.0f : values[i] * scale.inverse;
  }
  loops.levels(levels, scaled, elements, {rounding.random, 1, rounding.most, rounding.offset},
               index);
}

}  // namespace byteps::codec_internal
