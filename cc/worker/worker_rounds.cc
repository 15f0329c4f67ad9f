// Workers that part within a training and meet again. One leaves it because of an error that its
// program catches; the others wait for it, at tensors that only they know. So it gives up the next
// round of all the training's tensors. Then workers are not at the same rounds any more: where they
// meet again they tell each other their rounds, and all go on from the highest.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {

std::map<std::string, uint64_t> Worker::NextRounds() const {
  MutexLock lock(mutex_);
  std::map<std::string, uint64_t> rounds;
  for (const auto& [name, key] : keys_.by_name()) rounds[name] = key->next_round;
  return rounds;
}

void Worker::GiveUpRounds(const std::vector<std::string>& names, const std::string& reason) {
  Transaction transaction(this);
  Actions* const actions = transaction.actions();
  if (local_ || !Refusal().ok()) return;
  for (const std::string& name : names) {
    Key* const key = keys_.Find(name);
    if (key == nullptr || key->live != nullptr) continue;
    for (const Variant& variant : key->variants) {
      const std::shared_ptr<const TableEntry>& entry = variant.EntryFor(key->next_round);
      if (entry == nullptr) continue;
      ExchangeRequest request;
      request.tensor = variant.tensor;
      request.done = [](const Status&) {};
      auto exchange = std::make_shared<Exchange>(std::move(request));
      exchange->Begin(key->next_round++, MonotonicNanos());
      exchange->Place(entry);
      key->live = exchange;
      Finish(exchange, Cancelled(reason), actions);
      break;
    }
  }
}

std::map<std::string, Residual> Worker::Residuals() const {
  std::vector<std::pair<std::string, std::shared_ptr<TensorFeedback>>> feedbacks;
  std::map<std::string, Residual> residuals;
  {
    MutexLock lock(mutex_);
    for (const auto& [name, key] : keys_.by_name()) {
      if (key->restored != nullptr)
        residuals[name] = *key->restored;
      else if (key->feedback != nullptr)
        feedbacks.emplace_back(name, key->feedback);
    }
  }
  for (const auto& [name, feedback] : feedbacks) residuals[name] = feedback->residual();
  return residuals;
}

void Worker::RestoreResiduals(std::map<std::string, Residual> residuals) {
  MutexLock lock(mutex_);
  for (auto& [name, residual] : residuals)
    keys_.FindOrAdd(name).restored = std::make_unique<Residual>(std::move(residual));
}

void Worker::SkipToRounds(const std::map<std::string, uint64_t>& rounds) {
  MutexLock lock(mutex_);
  for (const auto& [name, round] : rounds) {
    Key& key = keys_.FindOrAdd(name);
    if (key.live != nullptr || key.next_round >= round) continue;
    key.next_round = round;
    key.has_failed = true;
  }
}

}  // namespace byteps
