#include "cc/staging/device_forms.h"

#include "cc/codec/thc_codec.h"

namespace byteps {

DeviceForm DeviceFormOf(const BlockCodec* codec, const PartSeed& seed) {
  DeviceForm form;
  if (codec == nullptr) return form;
  switch (codec->id()) {
    case CodecId::kInt8:
    case CodecId::kFloat8: form.element_bits = 8; break;
    case CodecId::kInt4:
    case CodecId::kThc: form.element_bits = 4; break;
    case CodecId::kThcSum: {
      const auto& sum = *static_cast<const ThcSumCodec*>(codec);
      form.element_bits = sum.element_bits();
      form.workers = static_cast<uint32_t>(sum.job().workers);
      form.divisor = sum.divisor();
      break;
    }
    default: return form;
  }
  form.codec = codec->id();
  form.block = static_cast<uint32_t>(codec->block_elements());
  form.is_stochastic = codec->is_stochastic();
  if (form.is_stochastic) form.random_state = CounterRandom(seed).state();
  return form;
}

}  // namespace byteps
