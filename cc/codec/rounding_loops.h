// The loops of codec/rounding.h. Included inside a region compiled for an instruction set, as
// cc/sum/vector_loops.h, so it includes nothing itself and has no include guard. Functions of the
// standard library stay out: one that is not inlined would be compiled for all.

uint32_t Largest(const float* values, uint64_t count) {
  int32_t largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const int32_t bits = BitCast<int32_t>(values[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return static_cast<uint32_t>(largest);
}

void Levels(uint8_t* __restrict out, const float* __restrict values, uint64_t count,
            const Rounding& rounding, uint64_t index) {
  const CounterRandom random = rounding.random;
  const float inverse = rounding.inverse, most = static_cast<float>(rounding.most);
  const int32_t offset = rounding.offset;
  const auto first = static_cast<uint32_t>(index), end = static_cast<uint32_t>(count);
  for (uint32_t i = 0; i < end; ++i) {
    const float exact = values[i] * inverse;
    // All ones if it is finite: no branch.
    const int32_t mask = ((BitCast<int32_t>(exact) & 0x7fffffff) - 0x7f800000) >> 31;
    float value = exact < most ? exact : most;  // that of a NaN
    value = value > -most ? value : -most;
    const int32_t level = RoundStochastic(value, random.DrawUniform(first + i)) + offset;
    out[i] = static_cast<uint8_t>(level & mask);
  }
}

void Pack(uint8_t* __restrict out, const uint8_t* __restrict nibbles, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; ++i)
    out[i] = static_cast<uint8_t>(nibbles[2 * i] | nibbles[2 * i + 1] << 4);
}

void Unpack(uint8_t* __restrict nibbles, const uint8_t* __restrict bytes, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; ++i) {
    nibbles[2 * i] = bytes[i] & 0xf;
    nibbles[2 * i + 1] = bytes[i] >> 4;
  }
}

// A NaN for 0, without a branch: all bits but one, of which adding makes the quiet one.
template <DecodeMode mode, typename Code>
void PutLevels(float* __restrict target, const Code* __restrict codes, uint64_t count,
               int32_t offset) {
  for (uint64_t i = 0; i < count; ++i) {
    const int32_t code = codes[i];
    const int32_t nan = (code - 1) >> 31 & 0x7fc00000;
    const float level = static_cast<float>(code - offset);
    Put<mode>(&target[i], BitCast<float>(BitCast<int32_t>(level) | nan));
  }
}

template <DecodeMode mode>
void PutQuotients(float* __restrict target, const float* __restrict values,
                  const uint32_t* __restrict signs, uint64_t count, float divisor) {
  for (uint64_t i = 0; i < count; ++i)
    Put<mode>(&target[i], BitCast<float>(BitCast<uint32_t>(values[i]) ^ signs[i]) / divisor);
}

void Codes(uint16_t* __restrict out, const float* __restrict values, uint64_t count, float factor,
           int32_t top) {
  const auto limit = static_cast<float>(top);
  for (uint64_t i = 0; i < count; ++i) {
    const float exact = values[i] * factor;
    const int32_t mask = ((BitCast<int32_t>(exact) & 0x7fffffff) - 0x7f800000) >> 31;
    float value = exact < limit ? exact : limit;  // that of a NaN
    value = value > -limit ? value : -limit;
    out[i] = static_cast<uint16_t>((RoundNearest(value) + top + 1) & mask);
  }
}

// Codes of eight bits lose the gaps between them: in pairs, in fours, in eights.
void Narrow(uint64_t* __restrict words, const uint16_t* __restrict codes, uint64_t count,
            uint32_t bits) {
  const uint32_t gap = 8 - bits;
  uint8_t bytes[kRotatedElements];
  for (uint64_t i = 0; i < 8 * count; ++i) bytes[i] = static_cast<uint8_t>(codes[i]);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t word = LoadElement<uint64_t>(bytes + 8 * i);
    word = (word & 0x00ff00ff00ff00ff) | (word & 0xff00ff00ff00ff00) >> gap;
    word = (word & 0x0000ffff0000ffff) | (word & 0xffff0000ffff0000) >> 2 * gap;
    words[i] = (word & 0x00000000ffffffff) | (word & 0xffffffff00000000) >> 4 * gap;
  }
}

void Widen(uint16_t* __restrict codes, const uint64_t* __restrict words, uint64_t count,
           uint32_t bits) {
  const uint32_t gap = 8 - bits;
  const uint64_t four = (uint64_t{1} << 4 * bits) - 1;
  const uint64_t two = ((uint64_t{1} << 2 * bits) - 1) * 0x0000000100000001;
  const uint64_t one = ((uint64_t{1} << bits) - 1) * 0x0001000100010001;
  uint8_t bytes[kRotatedElements];
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t word = words[i];
    word = (word & four) | (word & four << 4 * bits) << 4 * gap;
    word = (word & two) | (word & two << 2 * bits) << 2 * gap;
    StoreElement(bytes + 8 * i, (word & one) | (word & one << bits) << gap);
  }
  for (uint64_t i = 0; i < 8 * count; ++i) codes[i] = bytes[i];
}

// The Hadamard transform of 8 rows that are kStep elements apart, in three steps; 64 columns.
template <uint64_t kStep>
void RotateEight(float* rows) {
  for (uint64_t j = 0; j < 64; ++j) {
    float* const x = rows + j;
    const float a0 = x[0] + x[4 * kStep], a4 = x[0] - x[4 * kStep];
    const float a1 = x[kStep] + x[5 * kStep], a5 = x[kStep] - x[5 * kStep];
    const float a2 = x[2 * kStep] + x[6 * kStep], a6 = x[2 * kStep] - x[6 * kStep];
    const float a3 = x[3 * kStep] + x[7 * kStep], a7 = x[3 * kStep] - x[7 * kStep];
    const float b0 = a0 + a2, b2 = a0 - a2, b1 = a1 + a3, b3 = a1 - a3;
    const float b4 = a4 + a6, b6 = a4 - a6, b5 = a5 + a7, b7 = a5 - a7;
    x[0] = b0 + b1;
    x[kStep] = b0 - b1;
    x[2 * kStep] = b2 + b3;
    x[3 * kStep] = b2 - b3;
    x[4 * kStep] = b4 + b5;
    x[5 * kStep] = b4 - b5;
    x[6 * kStep] = b6 + b7;
    x[7 * kStep] = b6 - b7;
  }
}

// All columns of 64 x 64 elements.
void RotateColumns(float* x) {
  for (uint64_t row = 0; row < 8; ++row) RotateEight<8 * 64>(x + 64 * row);
  for (uint64_t row = 0; row < 64; row += 8) RotateEight<64>(x + 64 * row);
}

// Four rows of four at a time.
void Transpose(float* __restrict to, const float* __restrict from) {
  for (uint64_t i = 0; i < 64; i += 4) {
    for (uint64_t j = 0; j < 64; j += 4) {
      const float* const x = from + 64 * i + j;
      float* const y = to + 64 * j + i;
#if defined(__SSE__)
      __m128 row0 = _mm_loadu_ps(x), row1 = _mm_loadu_ps(x + 64);
      __m128 row2 = _mm_loadu_ps(x + 128), row3 = _mm_loadu_ps(x + 192);
      _MM_TRANSPOSE4_PS(row0, row1, row2, row3);
      _mm_storeu_ps(y, row0);
      _mm_storeu_ps(y + 64, row1);
      _mm_storeu_ps(y + 128, row2);
      _mm_storeu_ps(y + 192, row3);
#else
      for (uint64_t k = 0; k < 16; ++k) y[64 * (k / 4) + k % 4] = x[64 * (k % 4) + k / 4];
#endif
    }
  }
}

// Columns, then rows, which the transposition makes columns: so it is its own inverse.
void Rotate(float* __restrict to, float* __restrict from) {
  RotateColumns(from);
  Transpose(to, from);
  RotateColumns(to);
}

constexpr RoundingLoops LoopsNamed(const char* name) {
  return {name,
          &Largest,
          &Levels,
          &Pack,
          &Unpack,
          {&PutLevels<DecodeMode::kStore, uint8_t>, &PutLevels<DecodeMode::kAdd, uint8_t>},
          &PutLevels<DecodeMode::kStore, uint16_t>,
          &Codes,
          &Narrow,
          &Widen,
          {&PutQuotients<DecodeMode::kStore>, &PutQuotients<DecodeMode::kAdd>},
          &Rotate};
}
