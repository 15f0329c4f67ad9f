// Codecs: the compressed forms of a part of a gradient. A part is float32; each is compressed by
// itself.
//
// A codec holds its options and nothing else: all calls are const, from any thread, and never
// block. Memory belongs to the caller. The same input, options and PartSeed give the same bytes on
// every CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/codec_id.h"
#include "cc/base/status.h"

namespace byteps {

// What a frame says of its payload.
struct EncodedPart {
  CodecId codec = CodecId::kRaw;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

// What random numbers depend on: never on a clock, a thread or the order of calls.
struct PartSeed {
  uint64_t job = 0;
  uint64_t key = 0;
  uint64_t part = 0;
  uint64_t round = 0;
  // The worker's rank, or the number of workers for a server's sum, so that rounding errors of
  // different senders are independent.
  uint64_t sender = 0;
};

enum class DecodeMode {
  kStore,  // target = decoded
  kAdd,    // target += decoded; a NaN that comes out is always the same quiet one
};

// Decodes one part as its bytes arrive. Used by one thread at a time.
class PartReceiver {
 public:
  virtual ~PartReceiver() = default;

  // The next bytes of the payload, in pieces of any length; decodes all that is complete and keeps
  // at most one block of the rest. More bytes than the part has, or such as no encoder writes:
  // INVALID_ARGUMENT, and nothing is done with them.
  virtual Status Take(const uint8_t* data, size_t bytes) = 0;

  // INVALID_ARGUMENT if bytes are missing.
  virtual Status Finish() const = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;

  virtual CodecId id() const = 0;

  // With all options, as ParseCodec takes it: "int8:block=32,stochastic=0".
  virtual std::string name() const = 0;

  // That of the tensors of a job of so many workers, whose sums are divided by their number or not.
  virtual std::string NameInJob(uint64_t workers, bool is_average) const {
    (void)workers;
    (void)is_average;
    return name();
  }

  // Never more than the elements' own bytes.
  virtual uint64_t MaxEncodedBytes(uint64_t elements) const = 0;

  // Writes at most MaxEncodedBytes(elements) bytes. The result's codec is kRaw where the encoded
  // form would not be shorter. A block with NaN or infinity decodes to NaN or infinity.
  virtual EncodedPart Encode(const float* values, uint64_t elements, const PartSeed& seed,
                             uint8_t* out) const = 0;

  // A receiver into `target`, which has part.elements elements and outlives it, as do the codec
  // itself. Refuses a part that is neither of this codec nor raw, or whose bytes do not fit its
  // elements.
  virtual Status Receive(const EncodedPart& part, DecodeMode mode, float* target,
                         std::unique_ptr<PartReceiver>* receiver) const = 0;

  // Whether workers add what encoding loses of a gradient to the next one (codec/error_feedback.h).
  virtual bool wants_feedback() const { return false; }

  // How to send the sum of what this codec has sent, as ParseCodec takes it. A codec that decodes
  // any bytes.
  virtual std::string SumCodec() const { return name(); }
};

// Parses "name" or "name:option=value,option=value". INVALID_ARGUMENT names the value that is wrong
// and what could stand there.
Status ParseCodec(const std::string& text, std::unique_ptr<Codec>* codec);

// Names that ParseCodec knows.
std::vector<std::string> CodecNames();

}  // namespace byteps
