#include "cc/worker/state/exchange_trace.h"

namespace byteps {

void PartTrace::OnReply(const FrameHeader& header, int64_t wall_ns) {
  arrival_begin_ns = header.begin_time_ns;
  arrival_end_ns = header.receive_time_ns;
  answer_ns = header.send_time_ns;
  reply_end_ns = wall_ns;
  // Nobody announces a reply without payload.
  if (reply_begin_ns == 0) reply_begin_ns = reply_end_ns;
}

void ExchangeTrace::OnPlaced(const TableEntry& entry, int64_t wall_ns) {
  place_ns = wall_ns;
  parts.resize(entry.parts.size());
  for (size_t part = 0; part < parts.size(); ++part) parts[part].server = entry.parts[part].server;
}

}  // namespace byteps
