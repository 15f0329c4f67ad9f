// For tests: a process of a job whose connection to the coordinator is in memory. What it is sent
// is counted.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/van/van.h"
#include "cc/wire/control.h"
#include "cc/wire/control_frame.h"

namespace byteps {

// Thread-safe, but for what one peer says.
class FakePeer {
 public:
  FakePeer(ConnectionAcceptor* coordinator, const std::string& job_id, Role role, int32_t rank)
      : coordinator_(coordinator) {
    hello_.job_id = job_id;
    hello_.role = role;
    hello_.rank = rank;
    hello_.to_rank = 0;
  }

  // The handshake. A connection before this one stays, for all that the coordinator knows.
  Status Connect() {
    BYTEPS_RETURN_IF_ERROR(coordinator_->OnHello(hello_, "10.0.0.1", &handler_));
    connection_ = std::make_shared<FakeConnection>(this, hello_);
    handler_->OnOpen(connection_);
    return OkStatus();
  }

  Status Say(const ControlMessage& message) {
    OutgoingFrame frame = ControlFrame(message);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      frame.header.watermark = heard_;
    }
    if (!std::holds_alternative<Heartbeat>(message)) frame.header.round = ++said_;
    std::shared_ptr<PayloadSink> sink;
    BYTEPS_RETURN_IF_ERROR(handler_->OnHeader(*connection_, frame.header, &sink));
    sink->Take(frame.payload, frame.header.payload_bytes, frame.header.payload_bytes);
    return handler_->OnFrame(*connection_, frame.header, std::move(sink));
  }

  void Break() { handler_->OnClosed(*connection_, FailedPrecondition("it broke for good")); }

  // Since the last call, without heartbeats.
  std::vector<ControlMessage> TakeHeard() {
    std::vector<OutgoingFrame> frames;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      frames.swap(frames_);
    }
    std::vector<ControlMessage> messages(frames.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      const std::string bytes(static_cast<const char*>(frames[i].payload),
                              frames[i].header.payload_bytes);
      EXPECT_TRUE(DecodeControl(bytes, &messages[i]).ok());
    }
    return messages;
  }
  // How many of these, without decoding them; in the same memory, those that were encoded once.
  std::vector<const void*> TakePayloads() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<const void*> payloads;
    for (const OutgoingFrame& frame : frames_) payloads.push_back(frame.payload);
    kept_.insert(kept_.end(), frames_.begin(), frames_.end());
    frames_.clear();
    return payloads;
  }

 private:
  class FakeConnection : public Connection {
   public:
    FakeConnection(FakePeer* owner, const Hello& hello)
        : owner_(owner), hello_(hello), name_(hello.PeerName() + " at 10.0.0.1:1") {}
    void Send(OutgoingFrame frame) override {
      if (frame.header.round == 0) return;
      std::lock_guard<std::mutex> lock(owner_->mutex_);
      owner_->heard_ = frame.header.round;
      owner_->frames_.push_back(std::move(frame));
    }
    void Close(const Status&) override {}
    const Hello& peer() const override { return hello_; }
    const std::string& peer_name() const override { return name_; }

   private:
    FakePeer* const owner_;
    const Hello hello_;
    const std::string name_;
  };

  ConnectionAcceptor* const coordinator_;
  Hello hello_;
  ConnectionHandler* handler_ = nullptr;
  std::shared_ptr<FakeConnection> connection_;
  uint64_t said_ = 0;
  std::mutex mutex_;  // guards all below
  uint64_t heard_ = 0;
  std::vector<OutgoingFrame> frames_;
  std::vector<OutgoingFrame> kept_;  // so that no two payloads have the same address
};

}  // namespace byteps
