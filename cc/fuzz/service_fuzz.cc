// A summation server and its workers' frames: headers that are right in form and anything in their
// fields. A frame that is refused ends its worker's connection, as in a Van, and so does one that
// is cut off. Whatever a worker sends next it sends over a new connection, on which it may first
// ask what has become of its pushes. An input is a sequence of steps: frames, and what else
// happens.
#include <algorithm>
#include <cstring>

#include "cc/fuzz/fuzz.h"
#include "cc/server/testing/fake_workers.h"
#include "cc/wire/control_frame.h"
#include "cc/wire/frame.h"

namespace byteps {
namespace {

constexpr int32_t kWorkers = 3;
constexpr size_t kMostFrames = 40;
constexpr uint64_t kMostBytes = 4096;  // of a payload; who announces more is cut off
constexpr uint8_t kLeastOfWhole = 128;

std::vector<TableEntry> Entries() {
  TableEntry most = Entry(Tensor("most", DType::kFloat32, {4}));
  most.tensor.average = true;
  most.tensor.backup_workers = 1;
  TableEntry encoded = Entry(Tensor("encoded", DType::kFloat32, {201}), 0, {200, 1});
  encoded.tensor.codec = "int8:block=32,stochastic=0";
  TableEntry sparse = Entry(Tensor("sparse", DType::kFloat32, {30}));
  sparse.tensor.codec = "topk:feedback=0,ratio=0.1";  // most bytes are refused
  return {Entry(Tensor("sum", DType::kFloat32, {6}), 0, {4, 2}),
          Entry(Tensor("sum", DType::kFloat32, {3}), 1, {3}),
          Entry(Tensor("half", DType::kFloat16, {4})),
          Entry(Tensor("root", DType::kInt32, {4}, ExchangeKind::kBroadcast)),
          Entry(Tensor("rows", DType::kFloat32, {-1, 2}, ExchangeKind::kGather)),
          Entry(Tensor("split", DType::kFloat32, {-1, 2}, ExchangeKind::kAllToAll)),
          Entry(Tensor("table", DType::kFloat32, {-1, 2}, ExchangeKind::kRowSum)),
          Entry(Tensor("none", DType::kInt8, {0})),
          most,
          encoded,
          sparse};
}

enum class Event : uint8_t {
  kFrame,       // a header follows
  kBreak,       // the worker's connection breaks
  kComesEarly,  // the worker has a new one before the server knows that the old one has broken
  kLeaves,      // the worker says goodbye to the coordinator
  kIsLost,      // the coordinator has given the worker up
  kBegins,      // a header follows, of a frame of which half arrives before others
  kGoesOn,      // the rest of the one that began last
  kCount
};

// How a step begins.
struct Step {
  uint8_t event = 0;
  uint8_t worker = 0;
  uint8_t payload = 255;  // what it is filled with; less than kLeastOfWhole: so much arrives of it
};

std::string StepText(Event event, int32_t worker, uint8_t payload = 255) {
  const Step step{static_cast<uint8_t>(event), static_cast<uint8_t>(worker), payload};
  return std::string(reinterpret_cast<const char*>(&step), sizeof(step));
}

std::string FrameText(int32_t worker, const FrameHeader& header, uint8_t payload = 255,
                      Event event = Event::kFrame) {
  uint8_t bytes[kFrameHeaderBytes];
  EncodeFrameHeader(header, bytes);
  return StepText(event, worker, payload) + FuzzText(bytes);
}

// A worker's question after a break, whose payload is part of the input.
std::string QueryText(int32_t worker, const std::vector<ResumeQuery::Push>& pushes) {
  const OutgoingFrame frame = ControlFrame(ResumeQuery{pushes});
  return FrameText(worker, frame.header) +
         std::string(static_cast<const char*>(frame.payload), frame.header.payload_bytes);
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool Take(void* out, size_t bytes) {
    if (left_ < bytes) return false;
    std::memcpy(out, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return true;
  }
  std::string TakeText(uint64_t bytes) {
    std::string text(std::min<uint64_t>(bytes, left_), '\0');
    Take(text.data(), text.size());
    return text;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

class Job {
 public:
  explicit Job(bool in_rank_order)
      : workers_(kWorkers, {}, 1, in_rank_order, 2, /*asks_for_parts=*/true) {
    for (const TableEntry& entry : Entries()) workers_.Add(entry);
  }

  // False at the end of the input.
  bool Play(Input* input) {
    Step step;
    if (!input->Take(&step, sizeof(step))) return false;
    const int32_t rank = step.worker % kWorkers;
    switch (static_cast<Event>(step.event % static_cast<uint8_t>(Event::kCount))) {
      case Event::kBreak: Close(rank, Unavailable("reset by peer")); break;
      case Event::kComesEarly:
        if (is_open_[rank]) ComeBeforeTheBreak(rank);
        break;
      case Event::kLeaves: workers_.service.OnWorkersLeft({rank}); break;
      case Event::kIsLost:
        workers_.service.OnWorkerLost(rank, Unavailable("worker is lost"));
        break;
      case Event::kGoesOn:
        if (!begun_[rank].empty()) GoOn(rank);
        break;
      default:
        uint8_t header[kFrameHeaderBytes];
        if (!input->Take(header, sizeof(header))) return false;
        if (static_cast<Event>(step.event % static_cast<uint8_t>(Event::kCount)) ==
            Event::kBegins) {
          BeginFrame(rank, header, step.payload);
        } else {
          PlayFrame(rank, header, step.payload, input);
        }
    }
    return true;
  }

  SummationCounters counters() const { return workers_.service.counters(); }

 private:
  FakeConnection& connection(int32_t rank) { return *workers_.connections[rank]; }

  // The Van's part: the last that is heard of a connection.
  void Close(int32_t rank, const Status& reason) {
    if (!is_open_[rank]) return;
    is_open_[rank] = false;
    begun_[rank].clear();
    workers_.service.OnClosed(connection(rank), reason);
  }

  bool ComeAgain(int32_t rank) {
    auto next = std::make_shared<FakeConnection>(rank, /*again=*/true);
    next->ExpectClose();
    if (!workers_.service.CheckReturn(next->peer()).ok()) return false;
    workers_.connections[rank] = next;
    workers_.service.OnOpen(next);
    is_open_[rank] = true;
    return true;
  }

  // The old connection ends when something has come over the new one already.
  void ComeBeforeTheBreak(int32_t rank) {
    const std::shared_ptr<FakeConnection> old = workers_.connections[rank];
    old->ExpectClose();
    begun_[rank].clear();
    if (!ComeAgain(rank)) return;
    const TableEntry entry = Entries()[0];
    const OutgoingFrame frame = ControlFrame(ResumeQuery{{{entry.key, 0, 0}}});
    const Status status =
        Deliver(rank, frame.header,
                std::string(static_cast<const char*>(frame.payload), frame.header.payload_bytes));
    workers_.service.OnClosed(*old, Unavailable("reset by peer"));
    if (!status.ok()) Close(rank, status);
  }

  void PlayFrame(int32_t rank, const uint8_t* bytes, uint8_t fill, Input* input) {
    FrameHeader header;
    if (!DecodeFrameHeader(bytes, &header).ok()) return Close(rank, InvalidArgument("a header"));
    if (!is_open_[rank] && !ComeAgain(rank)) return;
    const bool is_cut = header.payload_bytes > kMostBytes || fill < kLeastOfWhole;
    const uint64_t arriving =
        is_cut ? std::min<uint64_t>(header.payload_bytes, fill) : header.payload_bytes;
    std::string payload(arriving, static_cast<char>(fill));
    if (header.type == FrameType::kControl) {
      payload = input->TakeText(arriving);
      payload.resize(arriving);
    }
    const Status status = Deliver(rank, header, payload);
    if (!status.ok()) {
      Close(rank, status);
    } else if (is_cut) {
      Close(rank, Unavailable("reset by peer"));
    }
  }

  // A frame whose payload has not arrived as a whole.
  struct Begun {
    FrameHeader header;
    std::shared_ptr<PayloadSink> sink;
    uint64_t done = 0;
    char fill = 0;
  };

  void BeginFrame(int32_t rank, const uint8_t* bytes, uint8_t fill) {
    Begun begun;
    begun.fill = static_cast<char>(fill);
    if (!DecodeFrameHeader(bytes, &begun.header).ok())
      return Close(rank, InvalidArgument("a header"));
    const uint64_t payload = begun.header.payload_bytes;
    if (begun.header.type == FrameType::kControl || payload == 0 || payload > kMostBytes ||
        begun_[rank].size() >= kMaxBegunFrames)
      return;
    if (!is_open_[rank] && !ComeAgain(rank)) return;
    const Status status = workers_.service.OnHeader(connection(rank), begun.header, &begun.sink);
    if (!status.ok()) return Close(rank, status);
    Feed(&begun, payload / 2);
    begun_[rank].push_back(std::move(begun));
  }

  void GoOn(int32_t rank) {
    Begun begun = std::move(begun_[rank].back());
    begun_[rank].pop_back();
    Feed(&begun, begun.header.payload_bytes);
    const Status status =
        workers_.service.OnFrame(connection(rank), begun.header, std::move(begun.sink));
    if (!status.ok()) return Close(rank, status);
    workers_.service.OnDrained(connection(rank));
  }

  static void Feed(Begun* begun, uint64_t until) {
    while (begun->sink != nullptr && begun->done < until) {
      const PayloadSink::Span span =
          begun->sink->Prepare(begun->header.payload_bytes - begun->done);
      FuzzCheck(span.bytes > 0, "a sink takes something");
      const size_t bytes = std::min<uint64_t>(span.bytes, until - begun->done);
      std::memset(span.data, begun->fill, bytes);
      begun->sink->Commit(bytes);
      begun->done += bytes;
    }
  }

  // As much of a frame as `payload` has.
  Status Deliver(int32_t rank, const FrameHeader& header, const std::string& payload) {
    std::shared_ptr<PayloadSink> sink;
    SummationService& service = workers_.service;
    if (header.payload_bytes > 0)
      BYTEPS_RETURN_IF_ERROR(service.OnHeader(connection(rank), header, &sink));
    uint64_t done = 0;
    while (sink != nullptr && done < payload.size()) {
      const PayloadSink::Span span = sink->Prepare(header.payload_bytes - done);
      FuzzCheck(span.bytes > 0, "a sink takes something");
      const size_t bytes = std::min<uint64_t>(span.bytes, payload.size() - done);
      std::memcpy(span.data, payload.data() + done, bytes);
      sink->Commit(bytes);
      done += bytes;
    }
    if (payload.size() < header.payload_bytes) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(service.OnFrame(connection(rank), header, std::move(sink)));
    service.OnDrained(connection(rank));
    return OkStatus();
  }

  FakeWorkers workers_;
  bool is_open_[kWorkers] = {true, true, true};
  std::vector<Begun> begun_[kWorkers];  // the last one ends first
};

// What is in front of the rows of a contribution.
size_t HeadBytes(const TableEntry& entry) {
  if (entry.tensor.kind == ExchangeKind::kRowSum) return 3;  // two rows' indices
  return entry.tensor.kind == ExchangeKind::kAllToAll ? kWorkers * sizeof(int64_t) : 0;
}

// Of a right contribution to a part; if it has rows of its own, of two.
uint64_t PayloadBytes(const TableEntry& entry, uint32_t part) {
  const bool has_own_rows = entry.tensor.HasOwnRows();
  const uint64_t elements = has_own_rows ? 4 : entry.parts[part].element_count;
  const BlockCodec* const codec = FormsOf(entry.tensor).push(elements);
  return codec != nullptr ? codec->EncodedBytes(elements)
                          : HeadBytes(entry) + elements * DTypeSize(entry.tensor.dtype);
}

// Everybody's pushes of one round.
std::vector<std::string> Pushes(const TableEntry& entry, uint64_t round) {
  std::vector<std::string> texts;
  for (int32_t worker = 0; worker < kWorkers; ++worker) {
    for (uint32_t part = 0; part < entry.parts.size(); ++part) {
      const bool has_payload = entry.tensor.kind != ExchangeKind::kBroadcast || worker == 0;
      const std::string payload(has_payload ? PayloadBytes(entry, part) : 0, '\1');
      texts.push_back(FrameText(
          worker, FakeWorkers::Header(entry, worker, round, payload, part, HeadBytes(entry))));
    }
  }
  return texts;
}

// Each worker's push of one tensor is interrupted by that of the next one.
std::string Nested(uint64_t round) {
  std::string text;
  for (int32_t worker = 0; worker < kWorkers; ++worker) {
    int begun = 0;
    for (const TableEntry& entry : Entries()) {
      if (entry.variant > 0 || entry.tensor.kind == ExchangeKind::kBroadcast ||
          entry.tensor.ElementCount() == 0)
        continue;
      const std::string payload(PayloadBytes(entry, 0), '\1');
      text +=
          FrameText(worker, FakeWorkers::Header(entry, worker, round, payload, 0, HeadBytes(entry)),
                    255, Event::kBegins);
      ++begun;
    }
    for (; begun > 0; --begun) text += StepText(Event::kGoesOn, worker);
  }
  return text;
}

// Worker 1's push is cut off after `arrived` bytes; it comes again, asks, and sends the rest.
std::string CutAndResumed(const TableEntry& entry, uint8_t arrived, Event how) {
  const std::string payload(PayloadBytes(entry, 0), '\1');
  const FrameHeader whole = FakeWorkers::Header(entry, 1, 0, payload);
  FrameHeader rest = whole;
  rest.payload_offset = arrived;
  rest.payload_bytes -= arrived;
  const std::string asked = QueryText(1, {{entry.key, 0, 0}});
  std::string text = FrameText(1, whole, arrived) + StepText(how, 1);
  text += asked + FrameText(1, rest);
  for (const int32_t worker : {0, 2})
    text += FrameText(worker, FakeWorkers::Header(entry, worker, 0, payload));
  // The reply is lost, too, and is asked for.
  return text + StepText(Event::kBreak, 1) + asked;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string all;
  std::vector<std::string> seeds;
  for (uint64_t round = 0; round < 2; ++round) {
    for (const TableEntry& entry : Entries()) {
      std::string one;
      for (const std::string& text : Pushes(entry, round)) one += text;
      if (entry.variant == 0) all += one;
      seeds.push_back(one);
    }
  }
  seeds.push_back(all);
  seeds.push_back(Nested(0));
  seeds.push_back(Nested(0) + Nested(1));
  for (const TableEntry& entry : Entries()) {
    if (entry.tensor.kind != ExchangeKind::kSum || entry.tensor.ElementCount() == 0) continue;
    seeds.push_back(CutAndResumed(entry, 5, Event::kBreak));
    seeds.push_back(CutAndResumed(entry, 0, Event::kComesEarly));
    for (const Event how : {Event::kLeaves, Event::kIsLost})
      seeds.push_back(Pushes(entry, 0)[0] + StepText(how, 1) + Pushes(entry, 0)[0]);
    // A worker gives the round up.
    FrameHeader withdrawal = FakeWorkers::Header(entry, 2, 0, "no reason");
    withdrawal.status = StatusCode::kCancelled;
    withdrawal.codec = CodecId::kRaw;
    seeds.push_back(Pushes(entry, 0)[0] + FrameText(2, withdrawal));
  }
  return seeds;
}

}  // namespace byteps

// Its length says in which order sums are made.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  Job job(/*in_rank_order=*/size % 2 == 0);
  Input input(data, size);
  size_t steps = 0;
  while (steps < kMostFrames && job.Play(&input)) ++steps;
  const SummationCounters counters = job.counters();
  FuzzCheck(counters.pushes <= steps, "each push counts once");
  return 0;
}
