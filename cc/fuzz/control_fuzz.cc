// Control messages, and the rows of the table in them.
#include "cc/fuzz/fuzz.h"
#include "cc/wire/control.h"

namespace byteps {
namespace {

TableEntry SomeEntry() {
  TableEntry entry;
  entry.tensor.name = "weights";
  entry.tensor.shape = {10, 3};
  entry.key = KeyOfName(entry.tensor.name);
  entry.parts = {{20, 0}, {10, 1}};
  return entry;
}

void CheckRow(const TableEntry& entry) {
  if (!CheckEntry(entry, 3, 2).ok()) return;
  uint64_t elements = 0;
  for (const PartPlacement& part : entry.parts) {
    elements += part.element_count;
    FuzzCheck(part.server >= 0 && part.server < 2, "a server is one of the job");
  }
  FuzzCheck(
      entry.tensor.HasOwnRows() || elements == static_cast<uint64_t>(entry.tensor.ElementCount()),
      "parts make up the tensor");
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const TableEntry entry = SomeEntry();
  std::vector<std::string> seeds;
  for (const ControlMessage& message : std::vector<ControlMessage>{
           DeclareRequest{1, {entry.tensor, entry.tensor}},
           DeclareReply{1, {{OkStatus(), entry}, {InvalidArgument("no"), {}}}},
           TableUpdate{2, {entry}},
           TableAck{3},
           Heartbeat{{1, 7}},
           Goodbye{{1, 2}},
           PeerLost{Role::kServer, 1, "server 1 is lost"},
           JobEnded{},
           Relay{0, 1, "bytes"},
           StallQuery{1, 0, 1, false, {{"weights", 3, "float32[2] sum", 60}}},
           StallAnswer{1, 1, {1}, "waits"},
           StallNotice{0, "worker 0 waits"},
           LinkReport{125000000, 30000, 17000000000},
           PauseRounds{},
           RoundProgress{{{entry.key, 3}}},
           Retune{1 << 20, 1 << 19, {{entry, 4}}},
           ArrivalReport{{{1, {5, 0, 100, 20, 60}}}},
           Reachable{"10.0.0.7", 40312},
           ResumeQuery{{{entry.key, 1, 7}}},
           ResumeAnswer{{{entry.key, 1, 7, 12}}},
           ServerLost{1, 1},
           PartProgress{1, {{entry.key, 1, 7, true}}},
           PartsMoved{4, 1, {entry}, {{entry.key, 1, 7, 2}}},
           ResultProgress{{{entry.key, 7}}}}) {
    seeds.push_back(EncodeControl(message));
  }
  return seeds;
}

}  // namespace byteps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace byteps;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  ControlMessage message;
  if (!DecodeControl(bytes, &message).ok()) return 0;
  const std::string again = EncodeControl(message);
  ControlMessage decoded;
  FuzzCheck(DecodeControl(again, &decoded).ok(), "what was decoded can be encoded");
  FuzzCheck(EncodeControl(decoded) == again, "no field is lost");
  if (const auto* update = std::get_if<TableUpdate>(&message)) {
    for (const TableEntry& entry : update->entries) CheckRow(entry);
  } else if (const auto* reply = std::get_if<DeclareReply>(&message)) {
    for (const DeclareResult& result : reply->results) CheckRow(result.entry);
  } else if (const auto* moved = std::get_if<PartsMoved>(&message)) {
    for (const TableEntry& entry : moved->entries) CheckRow(entry);
  } else if (const auto* retune = std::get_if<Retune>(&message)) {
    for (const NewCut& cut : retune->cuts) CheckRow(cut.entry);
  } else if (const auto* request = std::get_if<DeclareRequest>(&message)) {
    for (const TensorDescription& tensor : request->tensors) {
      if (tensor.Validate(3).ok())
        FuzzCheck(tensor.ElementCount() >= 0, "a size is not an overflow");
      tensor.ToString();
    }
  }
  return 0;
}
