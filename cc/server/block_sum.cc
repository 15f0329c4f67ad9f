#include "cc/server/block_sum.h"

#include <algorithm>
#include <utility>

#include "cc/sum/sum.h"

namespace byteps {
namespace {

// What is added and then divided in one go stays in the first-level cache. Compressed it is
// shorter; no codec has longer blocks, unless they are whole parts (codec/registry.cc).
constexpr uint64_t kPieceElements = 2048;
constexpr uint64_t kEncodedPieceElements = 4096;

uint64_t BlockElementsOf(const BlockSum::Options& options) {
  const bool is_whole = options.codec != nullptr && options.codec->takes_whole_parts();
  return is_whole ? options.element_count : kScratchBytes / DTypeSize(options.dtype);
}

}  // namespace

BlockSum::BlockSum(Options options)
    : options_(std::move(options)),
      wire_size_(DTypeSize(options_.dtype)),
      accumulator_size_(DTypeSize(AccumulatorDType(options_.dtype))),
      block_elements_(BlockElementsOf(options_)),
      block_count_((options_.element_count + block_elements_ - 1) / block_elements_),
      blocks_(block_count_) {}

uint64_t BlockSum::BlockElements(size_t block) const {
  return std::min(block_elements_, options_.element_count - block * block_elements_);
}

uint64_t BlockSum::WireBytes(uint64_t elements, const BlockCodec* form) const {
  return form != nullptr ? form->EncodedBytes(elements) : elements * wire_size_;
}

size_t BlockSum::BlockBytes(size_t block, const BlockCodec* form) const {
  return WireBytes(BlockElements(block), form);
}

uint8_t* BlockSum::Claim(size_t index, const BlockCodec* form) {
  // Needs a conversion.
  if (options_.accumulator != options_.result || form != nullptr) return nullptr;
  MutexLock lock(mutex_);
  Block& block = blocks_[index];
  if (block.busy || block.contributions > 0) return nullptr;
  block.busy = true;
  return options_.accumulator->data() + index * block_elements_ * accumulator_size_;
}

void BlockSum::EndClaim(size_t block) {
  if (options_.num_contributions == 1)
    FinishPiece(block * block_elements_, BlockElements(block), options_.divisor);
  Leave(block);
}

void BlockSum::Contribute(size_t index, std::unique_ptr<Scratch> wire, const BlockCodec* form) {
  int32_t contributions_before = 0;
  {
    MutexLock lock(mutex_);
    Block& block = blocks_[index];
    if (block.busy) return block.waiting.push_back({std::move(wire), form});
    block.busy = true;
    contributions_before = block.contributions;
  }
  Combine(index, contributions_before, wire->data, form);
  options_.scratch->Return(std::move(wire));
  Leave(index);
}

bool BlockSum::ContributeInPlace(size_t index, const uint8_t* wire, const BlockCodec* form) {
  int32_t contributions_before = 0;
  {
    MutexLock lock(mutex_);
    Block& block = blocks_[index];
    if (block.busy) return false;
    block.busy = true;
    contributions_before = block.contributions;
  }
  Combine(index, contributions_before, wire, form);
  Leave(index);
  return true;
}

// One contribution more is in the block. Takes in what others have left meanwhile.
void BlockSum::Leave(size_t index) {
  while (true) {
    Waiting next;
    int32_t contributions_before = 0;
    {
      MutexLock lock(mutex_);
      Block& block = blocks_[index];
      contributions_before = ++block.contributions;
      if (block.waiting.empty()) {
        block.busy = false;
        return;
      }
      next = std::move(block.waiting.back());
      block.waiting.pop_back();
    }
    Combine(index, contributions_before, next.wire->data, next.form);
    options_.scratch->Return(std::move(next.wire));
  }
}

void BlockSum::ContributeAll(const uint8_t* wire, const BlockCodec* form) {
  for (size_t index = 0; index < block_count_; ++index) {
    int32_t contributions_before = 0;
    {
      MutexLock lock(mutex_);
      contributions_before = blocks_[index].contributions++;
    }
    Combine(index, contributions_before, wire + index * WireBytes(block_elements_, form), form);
  }
}

void BlockSum::Combine(size_t index, int32_t contributions_before, const uint8_t* wire,
                       const BlockCodec* form) const {
  const SumKernels& kernels = ActiveSumKernels();
  const auto combine = contributions_before == 0                 ? kernels.store
                       : options_.kind == ExchangeKind::kMin     ? kernels.min
                       : options_.kind == ExchangeKind::kMax     ? kernels.max
                       : options_.kind == ExchangeKind::kProduct ? kernels.multiply
                                                                 : kernels.add;
  const bool is_last = contributions_before + 1 == options_.num_contributions;
  const uint64_t begin = index * block_elements_;
  const uint64_t end = begin + BlockElements(index);
  const uint64_t piece_elements = form != nullptr ? kEncodedPieceElements : kPieceElements;
  const bool in_pieces = form == nullptr || !form->takes_whole_parts();
  const uint64_t step = is_last && in_pieces ? piece_elements : block_elements_;
  for (uint64_t first = begin; first < end; first += step) {
    const uint64_t count = std::min(step, end - first);
    uint8_t* const target = options_.accumulator->data() + first * accumulator_size_;
    const uint8_t* const piece = wire + WireBytes(first - begin, form);
    if (form != nullptr) {
      const DecodeMode mode = contributions_before == 0 ? DecodeMode::kStore : DecodeMode::kAdd;
      form->DecodeBlocks(piece, count, mode, reinterpret_cast<float*>(target));
    } else {
      combine(options_.dtype, target, piece, count);
    }
    if (is_last) FinishPiece(first, count, options_.divisor);
  }
}

void BlockSum::FinishAll(double divisor) const { FinishPiece(0, options_.element_count, divisor); }

void BlockSum::FinishPiece(uint64_t first, uint64_t count, double divisor) const {
  ActiveSumKernels().finish(options_.dtype, options_.result->data() + first * wire_size_,
                            options_.accumulator->data() + first * accumulator_size_, count,
                            divisor);
}

PayloadSink::Span BlockSink::Prepare(uint64_t remaining) {
  if (place_ == nullptr) {
    block_bytes_ = sum_->BlockBytes(block_, form_);
    filled_ = 0;
    place_ = sum_->Claim(block_, form_);
    claimed_ = place_ != nullptr;
    if (!claimed_) {
      if (scratch_ == nullptr) scratch_ = sum_->scratch().Take();
      place_ = scratch_->data;
    }
  }
  return {place_ + filled_,
          static_cast<size_t>(std::min<uint64_t>(remaining, block_bytes_ - filled_))};
}

void BlockSink::Commit(size_t bytes) {
  filled_ += bytes;
  if (filled_ < block_bytes_) return;
  if (claimed_) {
    sum_->EndClaim(block_);
  } else {
    sum_->Contribute(block_, std::move(scratch_), form_);
  }
  ++block_;
  place_ = nullptr;
}

size_t BlockSink::Take(const void* data, size_t bytes, uint64_t remaining) {
  const auto* next = static_cast<const uint8_t*>(data);
  size_t copied = 0;
  while (bytes > 0) {
    const size_t block_bytes = place_ == nullptr ? sum_->BlockBytes(block_, form_) : 0;
    size_t taken = block_bytes;
    // Whole blocks are added without a copy: storing the first contribution is one, but the sum's.
    if (block_bytes == 0 || block_bytes > bytes || !sum_->ContributeInPlace(block_, next, form_)) {
      taken = std::min<size_t>(bytes, Prepare(remaining).bytes);
      copied += PayloadSink::Take(next, taken, remaining);
    } else {
      ++block_;
    }
    next += taken;
    bytes -= taken;
    remaining -= taken;
  }
  return copied;
}

}  // namespace byteps
