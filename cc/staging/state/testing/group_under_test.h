// GroupUnderTest: a GroupState with what a LocalGroup has around it: tensors, and a worker that
// places their exchanges.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cc/staging/state/group_state.h"

namespace byteps {

class GroupUnderTest {
 public:
  // Connected to the other ranks, or without any.
  explicit GroupUnderTest(bool alone = false) : state(alone) {
    state.phase.Connect(/*shares_results=*/true);
  }

  template <class Event>
  GroupEffects Do(const Event& event) {
    GroupEffects effects;
    event(&effects);
    return effects;
  }

  static TensorPointer NewTensor(const std::string& name = "a") {
    const auto tensor = std::make_shared<StagedTensor>();
    tensor->gpu.tensor.name = name;
    tensor->gpu.tensor.shape = {10};
    return tensor;
  }
  // Of parts of 10 elements, as a worker places it.
  static std::shared_ptr<Exchange> NewExchange(const std::string& name = "a", uint64_t round = 1,
                                               uint32_t parts = 1) {
    PartedExchangeRequest request;
    request.tensor.name = name;
    request.tensor.shape = {10 * int64_t{parts}};
    const auto exchange = std::make_shared<Exchange>(std::move(request));
    exchange->Begin(round, 0);
    TableEntry entry;
    entry.tensor = exchange->request.tensor;
    entry.key = KeyOfName(name);
    for (uint32_t part = 0; part < parts; ++part) entry.parts.push_back({10, 0, 0});
    exchange->Place(std::make_shared<const TableEntry>(std::move(entry)), {});
    return exchange;
  }

  GroupEffects Compute(const TensorPointer& tensor) {
    return Do([&](GroupEffects* effects) { state.tensors.OnComputed(tensor, effects); });
  }
  GroupEffects Place(const TensorPointer& tensor, const std::shared_ptr<Exchange>& placed) {
    return Do([&](GroupEffects* effects) { state.tensors.OnPlaced(tensor, placed, effects); });
  }
  GroupEffects Error(const TensorPointer& tensor) {
    return Do(
        [&](GroupEffects* effects) { state.tensors.OnError(tensor, Internal("bad"), effects); });
  }
  GroupEffects Fail(const TensorPointer& tensor) {
    return Do([&](GroupEffects* effects) { state.tensors.Fail(tensor, Internal("bad"), effects); });
  }
  GroupEffects FailGroup() {
    return Do([&](GroupEffects* effects) { state.tensors.FailGroup(Internal("lost"), effects); });
  }
  // Of one part; its stages have begun.
  TensorPointer Started(const std::string& name = "a", uint32_t parts = 1) {
    TensorPointer tensor = NewTensor(name);
    Compute(tensor);
    EXPECT_EQ(Place(tensor, NewExchange(name, 1, parts)).started, tensor);
    return tensor;
  }
  TensorPointer TensorIn(StagedTensor::State to) {
    using State = StagedTensor::State;
    TensorPointer tensor = NewTensor();
    if (to == State::kEnqueued) return tensor;
    if (to == State::kPlaced) {
      Place(tensor, exchange);
      return tensor;
    }
    Compute(tensor);
    if (to == State::kComputed) return tensor;
    Place(tensor, exchange);
    if (to == State::kFailing) tensor->BeginStep();
    if (to == State::kFailing || to == State::kEnded) Fail(tensor);
    return tensor;
  }

  GroupState state;
  const std::shared_ptr<Exchange> exchange = NewExchange();
};

}  // namespace byteps
