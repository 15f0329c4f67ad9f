// How XLA compiles the exchanges: into the custom calls of compiled_call.h. The only file with the
// headers of XLA's compiler, which take a minute.
//
// A program must not wait for an exchange before it has started one that another worker may wait
// for. XLA knows no order but that of data, and workers whose last batches differ in length have
// programs of their own. So the starts of a program come in one order everywhere: that in which
// TensorFlow compiles them, which follows from the graph and not from shapes. Only those of a group
// (BytePSPushPullAll) come as their inputs do, and before all its ends.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/tf/compiled_call.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "xla/hlo/builder/xla_builder.h"

// GCC 12 does not see that moving an xla::ShapeIndex moves what it has.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace byteps {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::XlaOpKernel;
using ::tensorflow::XlaOpKernelContext;
using xla::CustomCallSchedule;
using xla::Shape;
using xla::ShapeIndex;
using xla::ShapeUtil;
using xla::XlaOp;
using Aliases = std::vector<std::pair<ShapeIndex, std::pair<int64_t, ShapeIndex>>>;

// What has been compiled of a computation. It is gone when the compiler has finished with it.
struct Compiled : tensorflow::ResourceBase {
  std::string DebugString() const override { return "exchanges of a computation"; }

  XlaOp run;
  std::vector<XlaOp> last;            // the handle that the next start comes after, if there is one
  std::map<std::string, XlaOp> ends;  // by name: the last result
};

XlaOp Call(XlaOpKernelContext* context, const char* target, const std::vector<XlaOp>& operands,
           const Shape& result, const std::string& config, const Aliases& aliases,
           CustomCallSchedule schedule) {
  xla::XlaBuilder* const builder = context->builder();
  // Rows one after the other: the workers' programs might choose other layouts.
  std::vector<Shape> shapes;
  for (const XlaOp& operand : operands) {
    const absl::StatusOr<Shape> shape = builder->GetShape(operand);
    if (!shape.ok()) return builder->ReportError(shape.status());
    shapes.push_back(ShapeUtil::MakeShape(shape->element_type(), shape->dimensions()));
  }
  return xla::CustomCallWithLayout(builder, target, operands, result, shapes, config,
                                   /*has_side_effect=*/true, aliases, nullptr, schedule,
                                   xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

Shape HandleShape() { return ShapeUtil::MakeShape(xla::U32, {1}); }

absl::Status FindCompiled(XlaOpKernelContext* context,
                          tensorflow::core::RefCountPtr<Compiled>* compiled) {
  const auto create = [](Compiled** created) {
    *created = new Compiled;
    return absl::OkStatus();
  };
  Compiled* found = nullptr;
  TF_RETURN_IF_ERROR(context->op_kernel_context()->step_container()->LookupOrCreate<Compiled>(
      context->op_kernel_context()->resource_manager(), "byteps", &found, create));
  compiled->reset(found);
  if (!found->run.valid()) {
    found->run =
        Call(context, kRunCall, {}, HandleShape(), "{}", {}, CustomCallSchedule::SCHEDULE_NONE);
  }
  return absl::OkStatus();
}

// Exchanges of one start that are being compiled.
struct Begun {
  std::vector<NamedExchange> exchanges;
  std::vector<XlaOp> values;
  std::vector<Shape> shapes;  // of the results
  XlaOp handle;
  std::vector<XlaOp> room;  // of a gather, for its result
};

absl::Status ShapeOf(XlaOpKernelContext* context, int input, const std::string& name,
                     Shape* shape) {
  const absl::StatusOr<Shape> found = context->InputXlaShape(input);
  TF_RETURN_IF_ERROR(found.status());
  if (!found->is_static()) {
    return absl::InvalidArgumentError(
        "tensor \"" + name + "\" has a shape that is known only when it is computed, " +
        found->ToString() +
        ", and XLA cannot exchange such a tensor: exchange it outside of the compiled function, or "
        "compile with jit_compile=False");
  }
  *shape = ShapeUtil::MakeShape(found->element_type(), found->dimensions());
  return absl::OkStatus();
}

// `inputs` are the numbers of the operation's.
absl::Status Start(XlaOpKernelContext* context, std::vector<NamedExchange> exchanges,
                   const std::vector<int>& inputs, std::vector<XlaOp> after,
                   const Compiled& compiled, Begun* begun) {
  std::vector<XlaOp> operands;
  Aliases in_place;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    const std::string& name = exchanges[i].tensor.name;
    begun->shapes.emplace_back();
    TF_RETURN_IF_ERROR(ShapeOf(context, inputs[i], name, &begun->shapes.back()));
    operands.push_back(context->Input(inputs[i]));
    const auto number = static_cast<int64_t>(i);
    in_place.push_back({ShapeIndex{number}, {number, ShapeIndex{}}});
    // Uses of one name keep their order (protocol rule 11).
    const auto before = compiled.ends.find(name);
    if (before != compiled.ends.end()) after.push_back(before->second);
  }
  operands.push_back(compiled.run);
  operands.insert(operands.end(), after.begin(), after.end());
  std::vector<Shape> results = begun->shapes;
  results.push_back(HandleShape());
  if (exchanges[0].tensor.kind == ExchangeKind::kGather) {
    Shape& shape = begun->shapes[0];
    if (shape.dimensions().empty()) {
      return absl::InvalidArgumentError("'" + exchanges[0].tensor.name +
                                        "': a scalar has no axis 0 to gather along");
    }
    WorkerPlace place;
    TF_RETURN_IF_ERROR(ToAbslStatus(CurrentPlace(&place)));
    shape.set_dimensions(0, shape.dimensions(0) * place.size);
    results.push_back(shape);
  }
  const XlaOp start =
      Call(context, kStartCall, operands, ShapeUtil::MakeTupleShape(results),
           ToCallConfig(exchanges), in_place, CustomCallSchedule::SCHEDULE_EARLIEST);
  const auto count = static_cast<int64_t>(exchanges.size());
  for (int64_t i = 0; i < count; ++i) begun->values.push_back(xla::GetTupleElement(start, i));
  begun->handle = xla::GetTupleElement(start, count);
  if (begun->shapes.size() < results.size() - 1)
    begun->room.push_back(xla::GetTupleElement(start, count + 1));
  begun->exchanges = std::move(exchanges);
  return absl::OkStatus();
}

// The results, in the order of the exchanges.
std::vector<XlaOp> End(XlaOpKernelContext* context, const Begun& begun, XlaOp after,
                       Compiled* compiled) {
  std::vector<XlaOp> operands = begun.values;
  operands.push_back(compiled->run);
  operands.push_back(after);
  const auto room = static_cast<int64_t>(operands.size());
  operands.insert(operands.end(), begun.room.begin(), begun.room.end());
  Aliases in_place;
  for (int64_t i = 0; i < static_cast<int64_t>(begun.values.size()); ++i)
    in_place.push_back({ShapeIndex{i}, {begun.room.empty() ? i : room, ShapeIndex{}}});
  const XlaOp done =
      Call(context, kDoneCall, operands, ShapeUtil::MakeTupleShape(begun.shapes),
           ToCallConfig(begun.exchanges), in_place, CustomCallSchedule::SCHEDULE_LATEST);
  std::vector<XlaOp> results;
  for (size_t i = 0; i < begun.values.size(); ++i) {
    results.push_back(xla::GetTupleElement(done, static_cast<int64_t>(i)));
    compiled->ends[begun.exchanges[i].tensor.name] = results.back();
  }
  return results;
}

template <ReadKind kReadKind>
class ExchangeCompiler : public XlaOpKernel {
 public:
  explicit ExchangeCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchange(context, kReadKind, &exchange_));
  }

  void Compile(XlaOpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Compiled> compiled;
    Begun begun;
    OP_REQUIRES_OK(context, FindCompiled(context, &compiled));
    OP_REQUIRES_OK(context, Start(context, {exchange_}, {1}, compiled->last, *compiled, &begun));
    compiled->last = {begun.handle};
    context->SetOutput(0, End(context, begun, begun.handle, compiled.get())[0]);
  }

 private:
  NamedExchange exchange_;
};

bool IsForGpu(XlaOpKernelContext* context) {
  return context->compiler()->options().device_type.type_string() == tensorflow::DEVICE_GPU_XLA_JIT;
}

// How many bytes one start takes. All that is known while a step is compiled is that gradients of
// neighbours are ready at about one time.
//
// More of them in a start mean fewer calls and longer CUDA graphs, and exchanges that begin later.
// Between the GPUs of a host 64 MB take less than a millisecond; to servers they take longer than
// all of a short step's calls.
int64_t BytesOfAStart(int64_t all_bytes, bool by_nccl) {
  constexpr int64_t kMegabyte = 1 << 20;
  if (!by_nccl) return kMegabyte;
  return std::clamp(all_bytes / 16, 8 * kMegabyte, 64 * kMegabyte);
}

class PushPullAllCompiler : public XlaOpKernel {
 public:
  explicit PushPullAllCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchanges(context, &exchanges_));
  }

  void Compile(XlaOpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Compiled> compiled;
    OP_REQUIRES_OK(context, FindCompiled(context, &compiled));
    std::vector<std::vector<int>> groups;
    OP_REQUIRES_OK(context, Group(context, &groups));
    std::vector<Begun> begun(groups.size());
    std::vector<XlaOp> handles = compiled->last;
    const int tokens = context->num_inputs() - count();
    for (size_t i = 0; i < groups.size(); ++i) {
      std::vector<NamedExchange> together;
      std::vector<int> inputs;
      for (const int number : groups[i]) {
        together.push_back(exchanges_[number]);
        inputs.push_back(tokens + number);
      }
      OP_REQUIRES_OK(context, Start(context, together, inputs, {}, *compiled, &begun[i]));
      handles.push_back(begun[i].handle);
    }
    const XlaOp gate = Call(context, kGateCall, handles, HandleShape(), "{}", {},
                            CustomCallSchedule::SCHEDULE_NONE);
    compiled->last = {gate};
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::vector<XlaOp> results = End(context, begun[i], gate, compiled.get());
      for (size_t j = 0; j < results.size(); ++j) context->SetOutput(groups[i][j], results[j]);
    }
  }

 private:
  int count() const { return static_cast<int>(exchanges_.size()); }

  // Cuts the exchanges into groups of neighbours, by their numbers.
  absl::Status Group(XlaOpKernelContext* context, std::vector<std::vector<int>>* groups) {
    WorkerPlace place;
    TF_RETURN_IF_ERROR(ToAbslStatus(CurrentPlace(&place)));
    std::vector<int64_t> bytes;
    const int tokens = context->num_inputs() - count();
    for (int number = 0; number < count(); ++number) {
      Shape shape;
      TF_RETURN_IF_ERROR(ShapeOf(context, tokens + number, exchanges_[number].tensor.name, &shape));
      bytes.push_back(ShapeUtil::ByteSizeOf(shape));
    }
    const int64_t limit = BytesOfAStart(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}),
                                        IsForGpu(context) && place.size == place.local_size);
    int64_t filled = 0;
    for (int number = 0; number < count(); ++number) {
      if (groups->empty() || filled + bytes[number] > limit) {
        groups->emplace_back();
        filled = 0;
      }
      filled += bytes[number];
      groups->back().push_back(number);
    }
    return absl::OkStatus();
  }

  std::vector<NamedExchange> exchanges_;
};

// An exchange that outlasts the program. It waits for nothing, and nothing of its program for it:
// its place among the other starts does not matter.
class HandOverCompiler : public XlaOpKernel {
 public:
  explicit HandOverCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchange(context, ReadReduction, &exchange_));
  }

  void Compile(XlaOpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Compiled> compiled;
    Shape shape;
    const std::string& name = exchange_.tensor.name;
    OP_REQUIRES_OK(context, FindCompiled(context, &compiled));
    OP_REQUIRES_OK(context, ShapeOf(context, 1, name, &shape));
    std::vector<XlaOp> operands = {context->Input(1)};
    // What an earlier program has started under this name is taken first.
    const auto before = compiled->ends.find(name);
    if (before != compiled->ends.end()) operands.push_back(before->second);
    compiled->ends[name] =
        Call(context, kHandOverCall, operands, HandleShape(), ToCallConfig({exchange_}), {},
             CustomCallSchedule::SCHEDULE_EARLIEST);
  }

 private:
  NamedExchange exchange_;
};

class TakeCompiler : public XlaOpKernel {
 public:
  explicit TakeCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    tensorflow::PartialTensorShape shape;
    tensorflow::DataType type;
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &name_));
    OP_REQUIRES_OK(context, context->GetAttr("T", &type));
    OP_REQUIRES_OK(context, context->GetAttr("shape", &shape));
    tensorflow::TensorShape known;
    OP_REQUIRES(context, shape.AsTensorShape(&known),
                absl::InvalidArgumentError("XLA cannot wait for the exchange '" + name_ +
                                           "', whose result has the shape " + shape.DebugString()));
    OP_REQUIRES_OK(context, tensorflow::TensorShapeToXLAShape(type, known, &shape_));
  }

  void Compile(XlaOpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Compiled> compiled;
    OP_REQUIRES_OK(context, FindCompiled(context, &compiled));
    std::vector<XlaOp> operands;
    const auto before = compiled->ends.find(name_);
    if (before != compiled->ends.end()) operands.push_back(before->second);
    const XlaOp taken =
        Call(context, kTakeCall, operands, shape_, "{name = \"" + ToDigits(name_) + "\"}", {},
             CustomCallSchedule::SCHEDULE_LATEST);
    compiled->ends[name_] = taken;
    context->SetOutput(0, taken);
  }

 private:
  std::string name_;
  Shape shape_;
};

// Whether XLA has the values of a product on a GPU row by row, as a call takes them. It has images
// channel by channel, but for 2D convolutions of 16 bits, and would copy the others twice.
bool IsRowByRow(const Shape& shape) {
  const bool is_narrow = xla::primitive_util::BitWidth(shape.element_type()) <= 16;
  return shape.dimensions().size() < 4 || (shape.dimensions().size() == 4 && is_narrow);
}

// Not where nothing travels, or a collective between GPUs takes it: what was measured there
// (docs/performance.md) had XLA's own order.
class TogetherCompiler : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* context) override {
    WorkerPlace place;
    OP_REQUIRES_OK(context, ToAbslStatus(CurrentPlace(&place)));
    const bool is_gpu = IsForGpu(context);
    bool is_ordered = place.size > 1 && !(is_gpu && place.size == place.local_size);
    std::vector<XlaOp> values;
    std::vector<Shape> shapes;
    Aliases in_place;
    for (int64_t i = 0; i < context->num_inputs(); ++i) {
      const absl::StatusOr<Shape> shape = context->InputXlaShape(static_cast<int>(i));
      OP_REQUIRES_OK(context, shape.status());
      // The first one is the gradient, which leaves row by row.
      is_ordered = is_ordered && shape->is_static() && !(is_gpu && i > 0 && !IsRowByRow(*shape));
      values.push_back(context->Input(static_cast<int>(i)));
      shapes.push_back(ShapeUtil::MakeShape(shape->element_type(), shape->dimensions()));
      in_place.push_back({ShapeIndex{i}, {i, ShapeIndex{}}});
    }
    if (is_ordered) {
      const XlaOp all = Call(context, kTogetherCall, values, ShapeUtil::MakeTupleShape(shapes),
                             "{}", in_place, CustomCallSchedule::SCHEDULE_EARLIEST);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = xla::GetTupleElement(all, static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < values.size(); ++i) context->SetOutput(static_cast<int>(i), values[i]);
  }
};

class PlaceCompiler : public XlaOpKernel {
 public:
  explicit PlaceCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    std::string what;
    OP_REQUIRES_OK(context, context->GetAttr("what", &what));
    config_ = "{what = " + std::to_string(PlaceIndex(what)) + " : i64}";
  }

  void Compile(XlaOpKernelContext* context) override {
    context->SetOutput(0, Call(context, kPlaceCall, {}, ShapeUtil::MakeShape(xla::S32, {}), config_,
                               {}, CustomCallSchedule::SCHEDULE_NONE));
  }

 private:
  std::string config_;
};

// TensorFlow's REGISTER_XLA_OP has no effect once there is a device, which is made by a process's
// first operation, perhaps before this library is loaded.
#define BYTEPS_REGISTER_COMPILER(name, compiler)                                        \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU_XLA_JIT), compiler); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_GPU_XLA_JIT), compiler)

BYTEPS_REGISTER_COMPILER("BytePSPushPull", ExchangeCompiler<ReadReduction>);
BYTEPS_REGISTER_COMPILER("BytePSBroadcast", ExchangeCompiler<ReadBroadcast>);
BYTEPS_REGISTER_COMPILER("BytePSGather", ExchangeCompiler<ReadGather>);
BYTEPS_REGISTER_COMPILER("BytePSPushPullAll", PushPullAllCompiler);
BYTEPS_REGISTER_COMPILER("BytePSPlace", PlaceCompiler);
BYTEPS_REGISTER_COMPILER("BytePSTogether", TogetherCompiler);
// Not on GPUs.
REGISTER_KERNEL_BUILDER(Name("BytePSPushPullStart").Device(tensorflow::DEVICE_CPU_XLA_JIT),
                        HandOverCompiler);
REGISTER_KERNEL_BUILDER(Name("BytePSWait").Device(tensorflow::DEVICE_CPU_XLA_JIT), TakeCompiler);

}  // namespace
}  // namespace byteps
