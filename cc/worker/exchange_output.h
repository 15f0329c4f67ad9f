// The bytes of exchanges: what is encoded before it is sent, and the sinks that receive results
// into the caller's memory. No mutex of the worker's is held here.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "cc/codec/part_forms.h"
#include "cc/van/van.h"
#include "cc/worker/state/exchange.h"

namespace byteps {

// An exchange with the lock that its output has while bytes are written to it. All exchanges that
// results arrive for are of this type.
struct ExchangeWithOutput final : Exchange {
  using Exchange::Exchange;

  // Of an alltoall, before it begins: the rows of the worker at this place among those that take
  // part, which is the one here, are not sent.
  void KeepOwnRows(size_t place);

  // Calls memory.allocate_output, unless CloseOutput has been called: then `done` may have been
  // called too, the caller's function must not be, and `output` is null. A reply that comes again
  // goes where it went before; INTERNAL if that is memory for other rows. `own_begin`: where in the
  // output the rows are put that have been kept here, in bytes.
  Status AllocateOutput(const std::vector<int64_t>& rows, uint8_t** output, uint64_t own_begin = 0);
  void CloseOutput() override;
  // Holds CloseOutput up for as long as it lives, which is while bytes are written to the output;
  // without its mutex if the output is closed.
  std::shared_lock<std::shared_mutex> OpenOutput();

  OutgoingFrame ResultFrame(const std::shared_ptr<Exchange>& self, uint32_t part, int32_t rank,
                            uint32_t epoch) const override;

 private:
  mutable std::shared_mutex output_mutex_;
  bool output_closed_ = false;
  void* allocated_ = nullptr;
  std::vector<int64_t> rows_;  // what allocate_output was called with
};

// Makes the payload of an exchange's push: compresses it, or puts its splits in front; from any
// thread. A part gives the same bytes each time, so that a push can go on in the middle.
void PreparePush(const Exchange& exchange, OutgoingFrame* frame);

// Receives a part of a result.
class ResultSink : public PayloadSink {
 public:
  // After the last byte: what was wrong with it.
  virtual Status status() const { return OkStatus(); }
};

// Receives a part of the result where the caller wants it; nothing after CloseOutput.
class RegionSink : public ResultSink {
 public:
  RegionSink(std::shared_ptr<ExchangeWithOutput> exchange, uint32_t part);
  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;
  size_t Take(const void* data, size_t bytes, uint64_t remaining) override;

 private:
  const std::shared_ptr<ExchangeWithOutput> exchange_;
  uint8_t* next_;
  std::shared_lock<std::shared_mutex> open_;  // from Prepare to Commit
  std::vector<uint8_t> discard_;              // for what comes after the exchange has ended
};

// The same for one that is compressed: decodes what comes, block by block.
class DecodingSink : public ResultSink {
 public:
  // Refuses what is not the form of the part's sum. Makes a RegionSink where the caller takes it
  // encoded.
  static Status New(const std::shared_ptr<ExchangeWithOutput>& exchange, const FrameHeader& header,
                    std::shared_ptr<PayloadSink>* sink);

  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;
  size_t Take(const void* data, size_t bytes, uint64_t remaining) override;

 private:
  explicit DecodingSink(std::shared_ptr<ExchangeWithOutput> exchange)
      : exchange_(std::move(exchange)) {}

  void Decode(const uint8_t* data, size_t bytes);

  const std::shared_ptr<ExchangeWithOutput> exchange_;
  std::unique_ptr<PartReceiver> receiver_;
  std::vector<uint8_t> received_;  // where bytes come from a socket
};

// Receives a result of rows (TensorDescription::HasOwnRows): a row count per worker, then the rows.
// Those that an alltoall keeps here come between those of the workers before and after this one.
class RowsSink : public ResultSink {
 public:
  RowsSink(std::shared_ptr<ExchangeWithOutput> exchange, int32_t num_workers,
           uint64_t payload_bytes);
  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;

  Status status() const override { return status_; }

 private:
  void Allocate();
  // Counts the rows that are kept here, too.
  Status AddOwnRows();

  const std::shared_ptr<ExchangeWithOutput> exchange_;
  const uint64_t payload_bytes_;
  std::vector<int64_t> rows_;
  uint64_t received_ = 0;
  uint8_t* output_ = nullptr;
  uint64_t own_begin_ = 0;  // of what is kept here, in the output
  std::vector<uint8_t> discard_;
  Status status_;
};

// Receives a sum of rows (ExchangeKind::kRowSum), as it comes: the caller decodes it.
class RowSumSink : public ResultSink {
 public:
  // Refuses what cannot be one; the text goes on after the server's name.
  static Status New(const std::shared_ptr<ExchangeWithOutput>& exchange, const FrameHeader& header,
                    std::shared_ptr<PayloadSink>* sink);

  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;

  Status status() const override { return status_; }

 private:
  explicit RowSumSink(std::shared_ptr<ExchangeWithOutput> exchange)
      : exchange_(std::move(exchange)) {}

  const std::shared_ptr<ExchangeWithOutput> exchange_;  // keeps the memory alive
  uint8_t* next_ = nullptr;                             // null: what comes is dropped
  std::vector<uint8_t> discard_;
  Status status_;
};

}  // namespace byteps
