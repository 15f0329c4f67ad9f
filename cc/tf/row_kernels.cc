// Rows of an embedding's gradient in a codec, before and after their gather. Each row is encoded by
// itself, so that rows can be sorted and added up as they come.
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "cc/codec/choice.h"
#include "cc/codec/part_forms.h"
#include "cc/engine/engine.h"
#include "cc/tf/attributes.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace byteps {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

class RowsOp : public OpKernel {
 public:
  explicit RowsOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string codec;
    OP_REQUIRES_OK(context, context->GetAttr("codec", &codec));
    CodecChoice choice;
    OP_REQUIRES_OK(context, ToAbslStatus(ParseChoice(codec, &choice)));
    TensorDescription tensor;
    tensor.codec = choice.codec;
    forms_ = &FormsOf(tensor);
  }

 protected:
  // Null: a row's own bytes.
  const BlockCodec* Form(int64_t width) const { return forms_->sum(static_cast<uint64_t>(width)); }

  static absl::Status CheckRank(const Tensor& rows) {
    if (rows.dims() == 2) return absl::OkStatus();
    return absl::InvalidArgumentError("rows must have two axes, got a tensor of shape " +
                                      rows.shape().DebugString());
  }

  // On all of TensorFlow's threads, if it is worth it.
  static void ForEachRow(OpKernelContext* context, int64_t count, int64_t encoded_bytes,
                         const std::function<void(int64_t)>& work) {
    const auto* const threads = context->device()->tensorflow_cpu_worker_threads();
    const auto by_cost = tsl::thread::ThreadPool::SchedulingParams::Adaptive(encoded_bytes);
    threads->workers->ParallelFor(count, by_cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) work(row);
    });
  }

 private:
  const PartForms* forms_ = nullptr;
};

// Random numbers of a codec that rounds stochastically follow from the values: no operation knows
// the round.
PartSeed SeedOf(const float* row, int64_t width, int64_t number, int32_t rank) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t i = 0; i < width; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, row + i, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001b3u;
  }
  PartSeed seed;
  seed.key = hash;
  seed.part = static_cast<uint64_t>(number);
  seed.sender = static_cast<uint64_t>(rank);
  return seed;
}

class EncodeRowsOp : public RowsOp {
 public:
  using RowsOp::RowsOp;

  void Compute(OpKernelContext* context) override {
    const Tensor& rows = context->input(0);
    OP_REQUIRES_OK(context, CheckRank(rows));
    RankInfo place;
    OP_REQUIRES_OK(context, ToAbslStatus(CurrentRankInfo(&place)));
    const int64_t count = rows.dim_size(0), width = rows.dim_size(1);
    const BlockCodec* const form = place.size == 1 ? nullptr : Form(width);
    const int64_t row_bytes = form == nullptr ? width * static_cast<int64_t>(sizeof(float))
                                              : static_cast<int64_t>(form->EncodedBytes(width));
    Tensor* encoded = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({count, row_bytes}), &encoded));
    const auto* const from = static_cast<const float*>(rows.data());
    auto* const to = static_cast<uint8_t*>(encoded->data());
    if (form == nullptr) {
      if (row_bytes > 0) std::memcpy(to, from, count * row_bytes);
      return;
    }
    ForEachRow(context, count, row_bytes, [&](int64_t row) {
      const float* const values = from + row * width;
      PartSeed seed;
      if (form->is_stochastic()) seed = SeedOf(values, width, row, place.rank);
      form->EncodeBlocks(values, width, 0, CounterRandom(seed), to + row * row_bytes);
    });
  }
};

class DecodeRowsOp : public RowsOp {
 public:
  using RowsOp::RowsOp;

  void Compute(OpKernelContext* context) override {
    const Tensor& encoded = context->input(0);
    OP_REQUIRES_OK(context, CheckRank(encoded));
    const int64_t width = context->input(1).scalar<int64_t>()();
    const int64_t count = encoded.dim_size(0), row_bytes = encoded.dim_size(1);
    const int64_t raw_bytes = width * static_cast<int64_t>(sizeof(float));
    const BlockCodec* const form = row_bytes == raw_bytes ? nullptr : Form(width);
    const bool fits =
        row_bytes == raw_bytes ||
        (form != nullptr && row_bytes == static_cast<int64_t>(form->EncodedBytes(width)));
    OP_REQUIRES(context, fits,
                absl::InvalidArgumentError("received rows of " + std::to_string(row_bytes) +
                                           " bytes for " + std::to_string(width) +
                                           " compressed elements: the workers must use one "
                                           "compression"));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({count, width}), &rows));
    const auto* const from = static_cast<const uint8_t*>(encoded.data());
    auto* const to = static_cast<float*>(rows->data());
    if (form == nullptr) {
      if (row_bytes > 0) std::memcpy(to, from, count * row_bytes);
      return;
    }
    ForEachRow(context, count, row_bytes, [&](int64_t row) {
      form->DecodeBlocks(from + row * row_bytes, width, DecodeMode::kStore, to + row * width);
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("BytePSEncodeRows").Device(tensorflow::DEVICE_CPU), EncodeRowsOp);
REGISTER_KERNEL_BUILDER(Name("BytePSDecodeRows").Device(tensorflow::DEVICE_CPU), DecodeRowsOp);

}  // namespace
}  // namespace byteps
