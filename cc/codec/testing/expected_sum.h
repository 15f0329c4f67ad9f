// For tests: what workers and servers make of a part whose tensor is compressed, written down as
// what each of them does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cc/codec/codec.h"

namespace byteps {

inline std::unique_ptr<Codec> CodecNamed(const std::string& text) {
  std::unique_ptr<Codec> codec;
  return ParseCodec(text, &codec).ok() ? std::move(codec) : nullptr;
}

// Its full name in a job.
inline std::string InJob(const std::string& text, size_t workers, bool average) {
  return CodecNamed(text)->NameInJob(workers, average);
}

// The bytes that `sender` makes of a part.
inline std::string EncodedBy(const std::string& codec_name, const std::vector<float>& values,
                             PartSeed seed, uint64_t sender) {
  const std::unique_ptr<Codec> codec = CodecNamed(codec_name);
  std::string bytes(codec->MaxEncodedBytes(values.size()), '\0');
  seed.sender = sender;
  bytes.resize(
      codec->Encode(values.data(), values.size(), seed, reinterpret_cast<uint8_t*>(bytes.data()))
          .bytes);
  return bytes;
}

// Stores or adds the elements of such bytes, in one go.
inline void DecodeTo(const std::string& codec_name, const std::string& bytes, DecodeMode mode,
                     std::vector<float>* target) {
  const std::unique_ptr<Codec> codec = CodecNamed(codec_name);
  const bool is_raw = bytes.size() == target->size() * sizeof(float);
  const EncodedPart part = {is_raw ? CodecId::kRaw : codec->id(), target->size(), bytes.size()};
  std::unique_ptr<PartReceiver> receiver;
  if (!codec->Receive(part, mode, target->data(), &receiver).ok()) return;
  (void)receiver->Take(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// The bytes of the reply to a part that each of `workers` has pushed, in this order.
inline std::string ExpectedReply(const std::string& codec_name,
                                 const std::vector<std::vector<float>>& workers, PartSeed seed,
                                 bool average = false) {
  std::vector<float> sum(workers[0].size());
  for (size_t rank = 0; rank < workers.size(); ++rank)
    DecodeTo(codec_name, EncodedBy(codec_name, workers[rank], seed, rank),
             rank == 0 ? DecodeMode::kStore : DecodeMode::kAdd, &sum);
  for (float& element : sum) {
    if (average) element /= static_cast<float>(workers.size());
  }
  return EncodedBy(CodecNamed(codec_name)->SumCodec(), sum, seed, workers.size());
}

// And what all of them make of it.
inline std::vector<float> ExpectedSum(const std::string& codec_name,
                                      const std::vector<std::vector<float>>& workers, PartSeed seed,
                                      bool average = false) {
  std::vector<float> result(workers[0].size());
  DecodeTo(CodecNamed(codec_name)->SumCodec(), ExpectedReply(codec_name, workers, seed, average),
           DecodeMode::kStore, &result);
  return result;
}

// Those that are sent, with all options, and without error feedback.
inline std::vector<std::string> SentCodecs() {
  std::vector<std::string> names;
  for (const char* text :
       {"fp16", "bf16", "int8", "int8:block=256,stochastic=1", "fp8", "int4", "onebit:feedback=0",
        "topk:feedback=0", "randomk:feedback=0", "dithering",
        "dithering:bits=3,block=32,l2=1,natural=1", "thc:workers=3"})
    names.push_back(CodecNamed(text)->name());
  return names;
}

}  // namespace byteps
