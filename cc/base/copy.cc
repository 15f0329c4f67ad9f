#include "cc/base/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace byteps {

#if defined(__SSE2__)

namespace {

// Fewer bytes stay in the cache together with all else.
constexpr size_t kLeastBytes = 256 * 1024;
constexpr size_t kLineBytes = 64;

void StreamLine(uint8_t* to, const uint8_t* from) {
  const auto* const in = reinterpret_cast<const __m128i*>(from);
  auto* const out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
  const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

}  // namespace

void CopyPastCache(void* to, const void* from, size_t bytes) {
  if (bytes < kLeastBytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  // Up to the first whole line.
  const size_t head = (kLineBytes - reinterpret_cast<uintptr_t>(out) % kLineBytes) % kLineBytes;
  std::memcpy(out, in, head);
  const size_t lines = (bytes - head) / kLineBytes;
  out += head;
  in += head;
  for (size_t line = 0; line < lines; ++line, out += kLineBytes, in += kLineBytes)
    StreamLine(out, in);
  std::memcpy(out, in, bytes - head - lines * kLineBytes);
  _mm_sfence();  // before anybody is told that the copy is there
}

#else

void CopyPastCache(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

#endif

}  // namespace byteps
