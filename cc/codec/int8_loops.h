// Loops of int8 over an instruction set `Isa`. Included inside a region compiled for it, as
// cc/sum/vector_loops.h, so it includes nothing itself and has no include guard. `Isa` has
//   kLanes, Vector, Largest(const float*, block), Broadcast(float), Quantize(out, values, inverse),
//   LoadInt8(bytes), LoadFloat, StoreFloat, Quieted(Vector).

template <typename Isa>
struct Int8Loops {
  static void Encode(uint8_t* out, const float* values, uint64_t blocks, uint64_t block) {
    for (; blocks > 0; --blocks, out += kScaleBytes + block, values += block) {
      const uint32_t largest = Isa::Largest(values, block);
      if (largest - 1 >= 0x7f800000 - 1) {  // zero or not finite
        EncodeInt8Block(out, values, block);
        continue;
      }
      const Scale scale = ScaleFor(largest, 1.0f / 127);
      StoreElement(out, scale.wire);
      for (uint64_t i = 0; i < block; i += 32) {
        Isa::Quantize(out + kScaleBytes + i, values + i, scale.inverse);
      }
    }
  }

  template <DecodeMode mode>
  static void Decode(float* target, const uint8_t* data, uint64_t blocks, uint64_t block) {
    for (; blocks > 0; --blocks, data += kScaleBytes + block, target += block) {
      uint16_t bits;
      __builtin_memcpy(&bits, data, sizeof(bits));
      const auto scale = Isa::Broadcast(static_cast<uint32_t>(bits) << 16);
      for (uint64_t i = 0; i < block; i += Isa::kLanes) {
        auto value = Isa::LoadInt8(data + kScaleBytes + i) * scale;
        if (mode == DecodeMode::kAdd) value = Isa::LoadFloat(target + i) + value;
        Isa::StoreFloat(target + i, Isa::Quieted(value));
      }
    }
  }

  static constexpr Int8Kernels Named(const char* name) {
    return {name, &Encode, &Decode<DecodeMode::kStore>, &Decode<DecodeMode::kAdd>};
  }
};
