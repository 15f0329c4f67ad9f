// Payloads of all codecs: a header of four bytes (codec, length of pieces, number of elements),
// then the payload.
#include <algorithm>
#include <cstring>

#include "cc/codec/codec.h"
#include "cc/fuzz/fuzz.h"

namespace byteps {
namespace {

constexpr size_t kHeaderBytes = 4;
constexpr size_t kMostElements = 9000;
constexpr float kGuard = 12345;

const std::vector<std::unique_ptr<Codec>>& Codecs() {
  static const std::vector<std::unique_ptr<Codec>> codecs = [] {
    std::vector<std::unique_ptr<Codec>> made;
    std::vector<std::string> names = CodecNames();
    names.push_back("int8:block=256,stochastic=1");
    names.push_back("topk:ratio=0.3");  // with a bitmap
    names.push_back("dithering:bits=3,block=32,natural=1");
    for (const std::string& name : names) {
      made.emplace_back();
      FuzzCheck(ParseCodec(name, &made.back()).ok(), "its own names parse");
    }
    return made;
  }();
  return codecs;
}

// The elements that a payload gives; empty if it is refused, by its length or by its bytes.
std::vector<float> Decode(const Codec& codec, const EncodedPart& part, const uint8_t* data,
                          size_t piece) {
  const std::vector<float> before(part.elements + 1, kGuard);
  std::vector<float> target = before;
  std::unique_ptr<PartReceiver> receiver;
  if (!codec.Receive(part, DecodeMode::kAdd, target.data(), &receiver).ok()) return {};
  for (size_t done = 0; done < part.bytes;) {
    FuzzCheck(!receiver->Finish().ok(), "a part with missing bytes is not finished");
    const size_t length = std::min<size_t>(piece, part.bytes - done);
    if (!receiver->Take(data + done, length).ok()) {
      FuzzCheck(target == before, "nothing is done with bytes that are refused");
      return {};
    }
    done += length;
  }
  FuzzCheck(receiver->Finish().ok(), "a part with all bytes is finished");
  FuzzCheck(!receiver->Take(data, 1).ok(), "more bytes than the part has are refused");
  FuzzCheck(target.back() == kGuard, "nothing is written behind the part");
  return target;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (size_t codec = 0; codec < Codecs().size(); ++codec) {
    for (const uint16_t elements : {0, 1, 31, 33, 257, 1500}) {
      std::vector<float> values(elements);
      for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f - static_cast<float>(i % 7);
      std::string payload(Codecs()[codec]->MaxEncodedBytes(elements), '\0');
      const EncodedPart part = Codecs()[codec]->Encode(values.data(), elements, PartSeed(),
                                                       reinterpret_cast<uint8_t*>(payload.data()));
      payload.resize(part.bytes);
      std::string seed(kHeaderBytes, '\0');
      seed[0] = static_cast<char>(codec);
      seed[1] = 13;
      std::memcpy(&seed[2], &elements, sizeof(elements));
      seeds.push_back(seed + payload);
    }
  }
  return seeds;
}

}  // namespace byteps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  if (size < kHeaderBytes) return 0;
  const Codec& codec = *Codecs()[data[0] % Codecs().size()];
  const size_t piece = data[1] + size_t{1};
  uint16_t elements;
  std::memcpy(&elements, data + 2, sizeof(elements));
  // A copy of its own, so that a sanitizer sees what reads behind it.
  const std::vector<uint8_t> payload(data + kHeaderBytes, data + size);
  for (const CodecId id : {codec.id(), CodecId::kRaw}) {
    const EncodedPart part = {id, elements % kMostElements, payload.size()};
    const std::vector<float> pieces = Decode(codec, part, payload.data(), piece);
    const std::vector<float> whole = Decode(codec, part, payload.data(), payload.size());
    FuzzCheck(pieces.size() == whole.size(), "pieces are refused as the whole is");
    FuzzCheck(pieces.empty() ||
                  std::memcmp(pieces.data(), whole.data(), whole.size() * sizeof(float)) == 0,
              "pieces give the same bits as the whole");
  }
  return 0;
}
