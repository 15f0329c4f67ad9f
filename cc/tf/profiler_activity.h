// Exchanges in TensorFlow's profiler, and so in Keras's TensorBoard callback.
//
// TensorFlow shows a kernel while it computes. Ours only hand a tensor over, and end later, on a
// thread of the engine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "cc/worker/state/exchange_request.h"
#include "tsl/profiler/lib/traceme.h"

namespace byteps {

// A running profile shows the exchange from now on until its `done`, which has been set before.
// Otherwise a look at one atomic number. The event is recorded at its end: with a start and an end
// that two threads record, which TensorFlow makes a pair of, processes crashed.
inline void ShowInProfiler(ExchangeRequest* request) {
  using tsl::profiler::TraceMeRecorder;
  if (!TraceMeRecorder::Active(tsl::profiler::kInfo)) return;
  const TensorDescription& tensor = request->tensor;
  const bool is_reduction = tensor.kind != ExchangeKind::kBroadcast && !tensor.HasOwnRows();
  std::string title = is_reduction ? "push_pull" : ExchangeKindName(tensor.kind);
  title += " " + tensor.name;
  request->done = [title, begin = tsl::profiler::GetCurrentTimeNanos(),
                   done = std::move(request->done)](const Status& status) {
    if (TraceMeRecorder::Active(tsl::profiler::kInfo))
      TraceMeRecorder::Record({title, begin, tsl::profiler::GetCurrentTimeNanos()});
    done(status);
  };
}

}  // namespace byteps
