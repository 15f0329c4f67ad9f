// How XLA compiles the exchanges: into the custom calls of compiled_call.h. The only file with the
// headers of XLA's compiler, which take a minute.
//
// A program must not wait for an exchange before it has started one that another worker may wait
// for. XLA knows no order but that of data, and workers whose last batches differ in length have
// programs of their own. So the starts of a program come in one order everywhere: that in which
// TensorFlow compiles them, which follows from the graph and not from shapes. Only those of a group
// (BytePSPushPullAll) come as their inputs do, and before all its ends.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/tf/compiled_call.h"
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

// An exchange that is being compiled.
struct Begun {
  XlaOp value;
  XlaOp handle;
  Shape shape;              // of the result
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

absl::Status Start(XlaOpKernelContext* context, const NamedExchange& exchange, int input,
                   std::vector<XlaOp> after, const Compiled& compiled, Begun* begun) {
  TF_RETURN_IF_ERROR(ShapeOf(context, input, exchange.tensor.name, &begun->shape));
  // Uses of one name keep their order (protocol rule 11).
  const auto before = compiled.ends.find(exchange.tensor.name);
  if (before != compiled.ends.end()) after.push_back(before->second);
  std::vector<XlaOp> operands = {context->Input(input), compiled.run};
  operands.insert(operands.end(), after.begin(), after.end());
  std::vector<Shape> results = {begun->shape, HandleShape()};
  if (exchange.tensor.kind == ExchangeKind::kGather) {
    if (begun->shape.dimensions().empty()) {
      return absl::InvalidArgumentError("'" + exchange.tensor.name +
                                        "': a scalar has no axis 0 to gather along");
    }
    WorkerPlace place;
    TF_RETURN_IF_ERROR(ToAbslStatus(CurrentPlace(&place)));
    begun->shape.set_dimensions(0, begun->shape.dimensions(0) * place.size);
    results.push_back(begun->shape);
  }
  const Aliases in_place = {{ShapeIndex{0}, {0, ShapeIndex{}}}};
  const XlaOp start = Call(context, kStartCall, operands, ShapeUtil::MakeTupleShape(results),
                           ToCallConfig(exchange), in_place, CustomCallSchedule::SCHEDULE_EARLIEST);
  begun->value = xla::GetTupleElement(start, 0);
  begun->handle = xla::GetTupleElement(start, 1);
  if (results.size() > 2) begun->room.push_back(xla::GetTupleElement(start, 2));
  return absl::OkStatus();
}

XlaOp End(XlaOpKernelContext* context, const NamedExchange& exchange, const Begun& begun,
          XlaOp after, Compiled* compiled) {
  std::vector<XlaOp> operands = {begun.value, compiled->run, after};
  operands.insert(operands.end(), begun.room.begin(), begun.room.end());
  const Aliases in_place = {{ShapeIndex{}, {begun.room.empty() ? 0 : 3, ShapeIndex{}}}};
  const XlaOp result = Call(context, kDoneCall, operands, begun.shape, ToCallConfig(exchange),
                            in_place, CustomCallSchedule::SCHEDULE_LATEST);
  compiled->ends[exchange.tensor.name] = result;
  return result;
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
    OP_REQUIRES_OK(context, Start(context, exchange_, 1, compiled->last, *compiled, &begun));
    compiled->last = {begun.handle};
    context->SetOutput(0, End(context, exchange_, begun, begun.handle, compiled.get()));
  }

 private:
  NamedExchange exchange_;
};

class PushPullAllCompiler : public XlaOpKernel {
 public:
  explicit PushPullAllCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchanges(context, &exchanges_));
  }

  void Compile(XlaOpKernelContext* context) override {
    const int count = static_cast<int>(exchanges_.size());
    tensorflow::core::RefCountPtr<Compiled> compiled;
    OP_REQUIRES_OK(context, FindCompiled(context, &compiled));
    std::vector<Begun> begun(count);
    std::vector<XlaOp> handles = compiled->last;
    for (int i = 0; i < count; ++i) {
      const int input = count + i;  // behind the tokens
      OP_REQUIRES_OK(context, Start(context, exchanges_[i], input, {}, *compiled, &begun[i]));
      handles.push_back(begun[i].handle);
    }
    const XlaOp gate = Call(context, kGateCall, handles, HandleShape(), "{}", {},
                            CustomCallSchedule::SCHEDULE_NONE);
    compiled->last = {gate};
    for (int i = 0; i < count; ++i)
      context->SetOutput(i, End(context, exchanges_[i], begun[i], gate, compiled.get()));
  }

 private:
  std::vector<NamedExchange> exchanges_;
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

}  // namespace
}  // namespace byteps
