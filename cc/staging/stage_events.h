// StageEvents: what happens while the device works at tensors, as those who have it work say it.
// Their group (local_group.h) decides what follows, and has them do it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/staging/staged_part.h"
#include "cc/staging/state/staged_tensor.h"

namespace byteps {

// Thread-safe. No call waits for the device.
class StageEvents {
 public:
  virtual ~StageEvents() = default;

  // Whether a step of the device that uses the tensor's memory may begin; EndStep follows if so.
  virtual bool BeginStep(const TensorPointer& tensor) = 0;
  // `next` is called if all has gone well.
  virtual void EndStep(const TensorPointer& tensor, const Status& status,
                       const std::function<void()>& next) = 0;
  // A tensor has so many parts left, or one less.
  virtual void SetParts(const TensorPointer& tensor, uint32_t parts) = 0;
  virtual void EndPart(const TensorPointer& tensor) = 0;
  // This rank's part has the servers' result.
  virtual void OnReplied(const TensorPointer& tensor, uint32_t part) = 0;
  // The exchange has failed on this rank.
  virtual void OnError(const TensorPointer& tensor, const Status& status) = 0;
  // The device is broken: no rank can count on this one any more.
  virtual void Fail(const Status& reason) = 0;

  // Until Release, what is ready waits for whatever else becomes ready meanwhile.
  virtual void Hold() = 0;
  virtual void Release() = 0;

  // What the caller's stream copies, if that waits for results: `SetArrivals` gives all at once.
  virtual void AddArrival(const TensorPointer& tensor, const ArrivalPointer& arrival) = 0;
  virtual void SetArrivals(const TensorPointer& tensor, std::vector<ArrivalPointer> arrivals) = 0;
  virtual std::vector<ArrivalPointer> ArrivalsOf(const TensorPointer& tensor) = 0;
  // Of a tensor whose parts have one each; null if it has ended.
  virtual ArrivalPointer ArrivalOf(const TensorPointer& tensor, uint32_t part) = 0;
  // One of its parts has come.
  virtual void OnArrived(StagedArrival* arrival) = 0;
  enum class Awaited { kNothing, kResults, kCopies };
  // What a tensor needs whose stream will not copy its results.
  virtual Awaited WhatIsAwaited(const TensorPointer& tensor) = 0;
  virtual Status FailureOf(const TensorPointer& tensor) = 0;

  // Keeps the group, and so whoever has it, for as long as it is locked.
  virtual std::weak_ptr<void> Self() = 0;
};

}  // namespace byteps
