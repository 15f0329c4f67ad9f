// A summation server and its workers' frames: headers that are right in form and anything in their
// fields. A frame that is refused ends its worker's connection, as in a Van.
#include <algorithm>

#include "cc/fuzz/fuzz.h"
#include "cc/server/fake_workers.h"
#include "cc/wire/frame.h"

namespace byteps {
namespace {

constexpr int32_t kWorkers = 3;
constexpr size_t kMostFrames = 40;

std::vector<TableEntry> Entries() {
  return {Entry(Tensor("sum", DType::kFloat32, {6}), 0, {4, 2}),
          Entry(Tensor("sum", DType::kFloat32, {3}), 1, {3}),
          Entry(Tensor("half", DType::kFloat16, {4})),
          Entry(Tensor("root", DType::kInt32, {4}, ExchangeKind::kBroadcast)),
          Entry(Tensor("rows", DType::kFloat32, {-1, 2}, ExchangeKind::kGather)),
          Entry(Tensor("none", DType::kInt8, {0}))};
}

// A frame of the input: who sends it, its header, and how many bytes of the payload arrive.
struct Step {
  uint8_t worker = 0;
  uint8_t payload_bytes = 0;
  uint8_t header[kFrameHeaderBytes];
};

std::string StepText(const FrameHeader& header) {
  Step step;
  step.worker = static_cast<uint8_t>(header.worker);
  step.payload_bytes = 255;
  EncodeFrameHeader(header, step.header);
  return std::string(reinterpret_cast<const char*>(&step), sizeof(step));
}

// Whether the connection lives on.
bool Play(FakeWorkers* workers, const Step& step) {
  FrameHeader header;
  if (!DecodeFrameHeader(step.header, &header).ok()) return false;
  const int32_t rank = step.worker % kWorkers;
  Connection& connection = *workers->connections[rank];
  std::shared_ptr<PayloadSink> sink;
  uint64_t left = header.payload_bytes;
  if (left > 0 && !workers->service.OnHeader(connection, header, &sink).ok()) return false;
  // Who announces more than an input has is cut off.
  const bool is_cut = left > 4096 || step.payload_bytes < 128;
  for (uint64_t arriving = is_cut ? std::min<uint64_t>(left, step.payload_bytes) : left;
       sink != nullptr && arriving > 0;) {
    const PayloadSink::Span span = sink->Prepare(left);
    FuzzCheck(span.bytes > 0, "a sink takes something");
    const size_t bytes = std::min<uint64_t>({span.bytes, arriving, left});
    std::fill_n(static_cast<uint8_t*>(span.data), bytes, step.payload_bytes);
    sink->Commit(bytes);
    arriving -= bytes;
    left -= bytes;
  }
  if (is_cut) return false;
  return workers->service.OnFrame(connection, header, std::move(sink)).ok();
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string all;
  std::vector<std::string> seeds;
  for (uint64_t round = 0; round < 2; ++round) {
    for (const TableEntry& entry : Entries()) {
      std::string one;
      for (int32_t worker = 0; worker < kWorkers; ++worker) {
        for (uint32_t part = 0; part < entry.parts.size(); ++part) {
          const bool has_payload = entry.tensor.kind != ExchangeKind::kBroadcast || worker == 0;
          const uint64_t elements =
              entry.tensor.kind == ExchangeKind::kGather ? 4 : entry.parts[part].element_count;
          const std::string payload(has_payload ? elements * DTypeSize(entry.tensor.dtype) : 0,
                                    '\1');
          one += StepText(FakeWorkers::Header(entry, worker, round, payload, part));
        }
      }
      if (entry.variant == 0) all += one;
      seeds.push_back(one);
    }
  }
  seeds.push_back(all);
  return seeds;
}

}  // namespace byteps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  FakeWorkers workers(kWorkers, {}, 1, size % 2 == 0);
  for (const TableEntry& entry : Entries()) workers.Add(entry);
  std::vector<bool> alive(kWorkers, true);
  const size_t steps = std::min(size / sizeof(Step), kMostFrames);
  for (size_t i = 0; i < steps; ++i) {
    Step step;
    std::memcpy(&step, data + i * sizeof(Step), sizeof(Step));
    const int32_t rank = step.worker % kWorkers;
    if (!alive[rank]) continue;
    if (Play(&workers, step)) continue;
    alive[rank] = false;
    workers.service.OnClosed(*workers.connections[rank], Unavailable("closed"));
  }
  const SummationCounters counters = workers.service.counters();
  FuzzCheck(counters.pushes <= steps, "each push counts once");
  return 0;
}
