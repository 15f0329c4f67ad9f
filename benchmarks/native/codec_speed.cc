// What codecs do on one core, in blocks that stay in its cache, as a server and a worker use them.
//
//   codec_speed KERNELS CODEC...     prints JSON: GB of float32 per second of CPU time, the best of
//                                    15 runs
//
// KERNELS are those of cc/sum: scalar, avx2 or avx512. Codecs that take whole parts get one.
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_cpu.h"
#include "cc/codec/block_codec.h"
#include "cc/sum/sum.h"

namespace byteps {
namespace {

constexpr uint64_t kBlockElements = 32 * 1024;   // 128 KB, the server's block
constexpr uint64_t kPartElements = 1024 * 1024;  // 4 MB
constexpr uint64_t kElementsOfRun = 10 * kPartElements;
constexpr int kRuns = 15;

double Speed(uint64_t elements, const std::function<void()>& work) {
  const double seconds = LeastCpuSeconds(kRuns, [&] {
    for (uint64_t done = 0; done < kElementsOfRun; done += elements) work();
  });
  return 1e-9 * kElementsOfRun * sizeof(float) / seconds;
}

Status Measure(const std::string& name, bool first) {
  std::unique_ptr<Codec> codec;
  BYTEPS_RETURN_IF_ERROR(ParseCodec(name, &codec));
  const auto* const blocks = dynamic_cast<const BlockCodec*>(codec.get());
  const bool is_whole = blocks != nullptr && blocks->takes_whole_parts();
  const uint64_t elements = is_whole ? kPartElements : kBlockElements;
  std::mt19937 random;
  std::normal_distribution<float> normal(0, 1e-3f);
  std::vector<float> values(elements), sum(elements);
  for (float& value : values) value = normal(random);
  std::vector<uint8_t> bytes(codec->MaxEncodedBytes(elements));
  EncodedPart part;
  const double encode = Speed(
      elements, [&] { part = codec->Encode(values.data(), elements, PartSeed(), bytes.data()); });
  Status status;
  const double add = Speed(elements, [&] {
    std::unique_ptr<PartReceiver> receiver;
    status = codec->Receive(part, DecodeMode::kAdd, sum.data(), &receiver);
    if (status.ok()) status = receiver->Take(bytes.data(), part.bytes);
    if (status.ok()) status = receiver->Finish();
  });
  std::printf("%s\"%s\": {\"encode\": %.1f, \"decode_and_add\": %.1f}", first ? "" : ",\n ",
              codec->name().c_str(), encode, add);
  return status;
}

int Main(int argc, char** argv) {
  if (argc < 2 || !ForceSumKernels(argv[1])) {
    std::fprintf(stderr, "usage: codec_speed scalar|avx2|avx512 CODEC...\n");
    return 2;
  }
  std::vector<std::string> names(argv + 2, argv + argc);
  if (names.empty()) names = CodecNames();
  std::printf("{");
  for (const std::string& name : names) {
    const Status status = Measure(name, &name == &names.front());
    if (status.ok()) continue;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 2;
  }
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace byteps

int main(int argc, char** argv) { return byteps::Main(argc, argv); }
