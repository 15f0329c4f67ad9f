// For tests: a SummationService with workers whose connections are in memory. Payloads arrive in
// pieces of any size, and what the service sends can be looked at, and held as a slow network would
// hold it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/codec/part_forms.h"
#include "cc/server/kept_tables.h"
#include "cc/server/summation_service.h"

namespace byteps {

inline constexpr uint32_t kTestEpoch = 7;
inline constexpr uint32_t kTestPlacement = 3;

// A frame that the service has sent.
struct SentFrame {
  FrameHeader header;
  std::string payload;
  OutgoingFrame original;  // its keep_alive is what a Van would hold

  template <typename T>
  std::vector<T> values() const {
    std::vector<T> result(payload.size() / sizeof(T));
    if (!result.empty()) std::memcpy(result.data(), payload.data(), payload.size());
    return result;
  }
};

class FakeConnection : public Connection {
 public:
  explicit FakeConnection(int32_t rank, bool again = false, uint32_t path = 0)
      : name_("worker " + std::to_string(rank) + " at 127.0.0.1") {
    peer_.role = Role::kWorker;
    peer_.rank = rank;
    peer_.path = path;
    peer_.again = again;
  }
  void Send(OutgoingFrame frame) override {
    SentFrame sent;
    sent.header = frame.header;
    sent.payload.assign(static_cast<const char*>(WholePayload(frame)), frame.header.payload_bytes);
    sent.original = std::move(frame);
    std::lock_guard<std::mutex> lock(mutex_);
    sent_.push_back(std::move(sent));
  }
  void Close(const Status& reason) override {
    EXPECT_TRUE(is_close_expected_) << "closed: " << reason.ToString();
  }
  void ExpectClose() { is_close_expected_ = true; }
  bool is_idle() const override { return idle; }
  const Hello& peer() const override { return peer_; }
  const std::string& peer_name() const override { return name_; }
  void set_role(Role role) { peer_.role = role; }

  bool idle = true;

  std::vector<SentFrame> TakeSent() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(sent_, {});
  }

 private:
  Hello peer_;
  const std::string name_;
  bool is_close_expected_ = false;
  std::mutex mutex_;
  std::vector<SentFrame> sent_;
};

// A push that is being received. The steps are those of a Van.
class FakePush {
 public:
  FakePush(SummationService* service, Connection* connection, const FrameHeader& header,
           std::string payload)
      : service_(service), connection_(connection), header_(header), payload_(std::move(payload)) {}

  Status Begin() {
    return header_.payload_bytes > 0 ? service_->OnHeader(*connection_, header_, &sink_)
                                     : OkStatus();
  }
  // Delivers the next bytes; a null sink drops them.
  void Feed(size_t bytes) {
    bytes = std::min(bytes, payload_.size() - fed_);
    while (bytes > 0) {
      size_t step = bytes;
      if (sink_ != nullptr) {
        const PayloadSink::Span span = sink_->Prepare(payload_.size() - fed_);
        ASSERT_GT(span.bytes, 0u);
        ASSERT_LE(span.bytes, payload_.size() - fed_);
        step = std::min(step, span.bytes);
        std::memcpy(span.data, payload_.data() + fed_, step);
        sink_->Commit(step);
      }
      fed_ += step;
      bytes -= step;
    }
  }
  Status End() {
    Feed(payload_.size());
    return service_->OnFrame(*connection_, header_, std::move(sink_));
  }
  // In pieces of odd sizes, so that elements are cut.
  Status DeliverAll() {
    BYTEPS_RETURN_IF_ERROR(Begin());
    size_t piece = 1;
    while (fed_ < payload_.size()) {
      Feed(piece);
      piece = piece * 3 % 1000003;
    }
    return End();
  }

 private:
  SummationService* const service_;
  Connection* const connection_;
  const FrameHeader header_;
  const std::string payload_;
  std::shared_ptr<PayloadSink> sink_;
  size_t fed_ = 0;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline TensorDescription Tensor(const std::string& name, DType dtype, std::vector<int64_t> shape,
                                ExchangeKind kind = ExchangeKind::kSum) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.kind = kind;
  return tensor;
}

// A table row with one part for each element count given, all on server 0; without any, one part
// with everything.
inline TableEntry Entry(const TensorDescription& tensor, uint32_t variant = 0,
                        std::vector<uint64_t> parts = {}) {
  TableEntry entry;
  entry.tensor = tensor;
  entry.key = KeyOfName(tensor.name);
  entry.variant = variant;
  if (parts.empty()) parts = {static_cast<uint64_t>(tensor.ElementCount())};
  for (const uint64_t elements : parts) entry.parts.push_back({elements, 0, kTestPlacement});
  return entry;
}

class FakeWorkers {
 public:
  explicit FakeWorkers(int32_t count, std::vector<std::string> hosts = {},
                       uint64_t least_credit_frame = 1, bool in_rank_order = false,
                       int32_t max_lag = 2, bool asks_for_parts = false,
                       std::shared_ptr<KeptTables> kept = nullptr)
      : service({0, count, kTestEpoch, std::move(hosts), least_credit_frame, in_rank_order, max_lag,
                 asks_for_parts, nullptr, std::move(kept)}) {
    for (int32_t rank = 0; rank < count; ++rank) {
      connections.push_back(std::make_shared<FakeConnection>(rank));
      service.OnOpen(connections.back());
    }
  }

  void Add(const TableEntry& entry) {
    const Status status = service.AddEntries({entry});
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  // A right header for a contribution of `payload` to a part. `split_bytes`: of an alltoall, those
  // in front.
  static FrameHeader Header(const TableEntry& entry, int32_t worker, uint64_t round,
                            const std::string& payload, uint32_t part = 0, size_t split_bytes = 0) {
    FrameHeader header;
    header.type = FrameType::kPush;
    header.epoch = kTestEpoch;
    header.key = entry.key;
    header.part = part;
    header.variant = entry.variant;
    header.round = round;
    header.placement_version = entry.parts[part].version;
    header.worker = worker;
    header.priority = 100 + worker;
    header.element_count = entry.tensor.HasOwnRows()
                               ? (payload.size() - split_bytes) / DTypeSize(entry.tensor.dtype)
                               : entry.parts[part].element_count;
    const int64_t row_elements = entry.tensor.ElementCount();
    if (entry.tensor.HasOwnRows() && row_elements > 0) {
      header.row_count = header.element_count / row_elements;
    }
    header.payload_bytes = payload.size();
    if (FormsOf(entry.tensor).push(header.element_count) != nullptr)
      header.codec = FormsOf(entry.tensor).push(header.element_count)->id();
    return header;
  }

  FakePush NewPush(const TableEntry& entry, int32_t worker, uint64_t round,
                   const std::string& payload, uint32_t part = 0) {
    const size_t split_bytes =
        entry.tensor.kind == ExchangeKind::kAllToAll ? connections.size() * sizeof(int64_t) : 0;
    return {&service, connections[worker].get(),
            Header(entry, worker, round, payload, part, split_bytes), payload};
  }
  FakePush NewPush(const FrameHeader& header, int32_t connection) {
    return {&service, connections[connection].get(), header,
            std::string(header.payload_bytes, '\1')};
  }

  void Push(const TableEntry& entry, int32_t worker, uint64_t round, const std::string& payload,
            uint32_t part = 0) {
    const Status status = NewPush(entry, worker, round, payload, part).DeliverAll();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  // The replies among what has been sent to `worker` since the last call.
  std::vector<SentFrame> TakeReplies(int32_t worker) {
    std::vector<SentFrame> frames = connections[worker]->TakeSent();
    frames.erase(std::remove_if(
                     frames.begin(), frames.end(),
                     [](const SentFrame& frame) { return frame.header.type != FrameType::kReply; }),
                 frames.end());
    return frames;
  }

  // The only one; a failure if there are more or none.
  SentFrame TakeReply(int32_t worker) {
    std::vector<SentFrame> replies = TakeReplies(worker);
    EXPECT_EQ(replies.size(), 1u) << "replies to worker " << worker;
    return replies.size() == 1 ? std::move(replies[0]) : SentFrame();
  }

  std::vector<std::shared_ptr<FakeConnection>> connections;
  SummationService service;  // outlived by nothing: connections own no part of it
};

}  // namespace byteps
