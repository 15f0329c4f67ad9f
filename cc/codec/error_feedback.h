// ErrorFeedback: what encoding has lost of a part's gradients is added to its next gradient. So it
// arrives later instead of never, and codecs converge that lose most of each gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/codec/block_codec.h"

namespace byteps {

// Of one part of one tensor on one worker. Thread-safe; a call waits for another's encoding.
class ErrorFeedback {
 public:
  // Encodes values + residual; then residual = values + residual - what that decodes to. The first
  // residual is zero.
  //
  // Rounds increase. In a round that it has encoded it returns the same bytes again; in one before,
  // whose exchange is over, any bytes: neither changes the residual. Nor do values that are not
  // finite anywhere; what they are encoded as says so.
  std::shared_ptr<const uint8_t[]> Encode(const BlockCodec& codec, const float* values,
                                          uint64_t elements, const PartSeed& seed);

  // The residual, of `elements`; copied.
  void Read(uint64_t elements, float* residual) const;
  // Begins with this residual, before the first Encode.
  void Begin(const float* residual, uint64_t elements);

 private:
  mutable Mutex mutex_;
  std::vector<float> residual_ BYTEPS_GUARDED_BY(mutex_);  // empty: zero
  uint64_t round_ BYTEPS_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const uint8_t[]> encoded_
      BYTEPS_GUARDED_BY(mutex_);  // of round_; null: there was none yet
};

}  // namespace byteps
