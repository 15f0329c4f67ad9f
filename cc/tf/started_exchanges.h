// Exchanges that have been started and that somebody will wait for later. In between they belong to
// nobody's step, so that they can outlast the one that started them. What a program that XLA has
// compiled has started, an operation can wait for, and the other way round.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "cc/tf/exchange_kernels.h"
#include "cc/xla/stream_exchanges.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/tensor.h"

namespace byteps {

// An exchange that has been started. Thread-safe.
class StartedExchange : public ExchangeBuffers {
 public:
  // `allocator` is the device's, which outlives every step. With `in_place` the result comes to
  // where the input is. `on_stream` is not null if a GPU's stream may wait for the result.
  StartedExchange(const Tensor& input, tensorflow::Allocator* allocator, bool in_place = false,
                  StreamExchangePointer on_stream = nullptr)
      : ExchangeBuffers(input),
        allocator_(allocator),
        in_place_(in_place),
        on_stream_(std::move(on_stream)) {}

  const StreamExchangePointer& on_stream() const { return on_stream_; }
  // No stream will wait for it.
  void Release() const {
    if (on_stream_ != nullptr) AllStreamExchanges().Release({on_stream_});
  }

  void Finish(const absl::Status& status) override {
    std::function<void(const absl::Status&)> waiter;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      finished_ = true;
      status_ = status;
      waiter = std::move(waiter_);
    }
    if (waiter) Tell(waiter);
  }

  // Calls `waiter` when the exchange has ended, perhaps at once. At most one waits.
  void WhenFinished(std::function<void(const absl::Status&)> waiter) {
    Release();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!finished_) {
        waiter_ = std::move(waiter);
        return;
      }
    }
    Tell(waiter);
  }

 protected:
  absl::Status Allocate(const TensorShape& shape, Tensor* tensor) override {
    *tensor = in_place_ ? input() : Tensor(allocator_, dtype(), shape);
    if (tensor->IsInitialized()) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        "no memory for the result of an exchange, a tensor of shape " + shape.DebugString());
  }

 private:
  // After `finished_`. Nobody else may learn of an earlier one that a stream has waited for.
  void Tell(const std::function<void(const absl::Status&)>& waiter) const {
    if (!status_.ok() || on_stream_ == nullptr) return waiter(status_);
    waiter(ToAbslStatus(AllStreamExchanges().TakeLate(on_stream_)));
  }

  tensorflow::Allocator* const allocator_;
  const bool in_place_;
  const StreamExchangePointer on_stream_;
  std::mutex mutex_;
  bool finished_ = false;
  absl::Status status_;  // does not change after `finished_`
  std::function<void(const absl::Status&)> waiter_;
};

// The started exchanges of this process that nobody waits for yet, by name. One that is forgotten
// here goes on in the engine, as those of other workers need it, and its result is dropped.
// Thread-safe.
class StartedExchanges {
 public:
  // Keeps an exchange, and has it enqueued: at once, or when one of this name that was forgotten in
  // flight has ended, by the engine's thread.
  absl::Status Start(const std::string& name, std::shared_ptr<StartedExchange> exchange,
                     std::function<void()> enqueue) {
    std::shared_ptr<StartedExchange> before;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++starts_and_waits_;
      if (!exchanges_.emplace(name, std::move(exchange)).second) {
        return absl::FailedPreconditionError("the exchange '" + name +
                                             "' was started before and nobody has waited for it");
      }
      const auto found = forgotten_.find(name);
      if (found != forgotten_.end()) {
        before = found->second.lock();
        forgotten_.erase(found);
      }
    }
    if (before == nullptr)
      enqueue();
    else
      before->WhenFinished([enqueue = std::move(enqueue)](const absl::Status&) { enqueue(); });
    return absl::OkStatus();
  }

  // For who waits for it.
  absl::Status Take(const std::string& name, tensorflow::DataType type,
                    std::shared_ptr<StartedExchange>* exchange) {
    *exchange = Remove(name);
    if (*exchange == nullptr)
      return absl::FailedPreconditionError("nobody has started the exchange '" + name + "'");
    ++starts_and_waits_;
    if ((*exchange)->dtype() == type) return absl::OkStatus();
    return absl::InvalidArgumentError("the exchange '" + name + "' was started with " +
                                      tensorflow::DataTypeString((*exchange)->dtype()) +
                                      ", not with " + tensorflow::DataTypeString(type));
  }

  // Nobody will wait for it. Its name is free for another one.
  void Forget(const std::string& name) {
    const std::shared_ptr<StartedExchange> exchange = Remove(name);
    if (exchange == nullptr) return;
    exchange->Release();
    std::lock_guard<std::mutex> lock(mutex_);
    forgotten_[name] = exchange;
  }

  // How many have been added or taken so far.
  int64_t starts_and_waits() const { return starts_and_waits_; }

 private:
  // Null if there is none of this name.
  std::shared_ptr<StartedExchange> Remove(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = exchanges_.find(name);
    if (found == exchanges_.end()) return nullptr;
    std::shared_ptr<StartedExchange> exchange = std::move(found->second);
    exchanges_.erase(found);
    return exchange;
  }

  std::atomic<int64_t> starts_and_waits_{0};
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<StartedExchange>> exchanges_;
  // The last one of each name that was forgotten, for as long as the engine has it.
  std::unordered_map<std::string, std::weak_ptr<StartedExchange>> forgotten_;
};

inline StartedExchanges& AllStarted() {
  static auto* const all = new StartedExchanges;  // engine threads may outlive static objects
  return *all;
}

inline absl::Status CheckResultShape(const Tensor& result,
                                     const tensorflow::PartialTensorShape& expected) {
  if (expected.IsCompatibleWith(result.shape())) return absl::OkStatus();
  return absl::InvalidArgumentError("an exchange has a result of shape " +
                                    result.shape().DebugString() + ", not " +
                                    expected.DebugString());
}

}  // namespace byteps
