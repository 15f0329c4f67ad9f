// How XLA compiles the exchanges: into the custom calls of xla/compiled_call.h. The only file with
// the headers of XLA's compiler, which take a minute.
//
// A program must not wait for an exchange before it has started one that another worker may wait
// for. XLA knows no order but that of data, and workers whose last batches differ in length have
// programs of their own. So the starts of a program come in one order everywhere: that in which
// TensorFlow compiles them, which follows from the graph and not from shapes. Only those of a group
// (BytePSPushPullAll) come as their inputs do, and before all its ends; so do those that were begun
// early, before the ends of any group that is compiled later.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/members.h"
#include "cc/engine/engine.h"
#include "cc/tf/attributes.h"
#include "cc/tf/call_config.h"
#include "cc/xla/compiled_call.h"
#include "cc/xla/rank_info.h"
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

// Exchanges of one start that are being compiled.
struct Begun {
  std::vector<NamedExchange> exchanges;
  std::vector<XlaOp> values;
  std::vector<Shape> shapes;  // of the results
  XlaOp handle;
  std::vector<XlaOp> room;    // of a gather, for its result
  std::vector<XlaOp> passed;  // what passes through the start
};

// What has been compiled of a computation. It is gone when the compiler has finished with it.
struct Compiled : tensorflow::ResourceBase {
  std::string DebugString() const override { return "exchanges of a computation"; }

  XlaOp run;
  std::vector<XlaOp> last;            // what the next start comes after: a handle and the like
  std::map<std::string, XlaOp> ends;  // by name: the last result
  std::vector<Begun> begun_early;     // a BytePSPushPullAll will end them
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

// Gives a call what XLA is to use after it, which are inputs of the operation: each becomes one
// more operand, and one more result in the same memory. `name` is that of an exchange.
absl::Status PassThrough(XlaOpKernelContext* context, const std::vector<int>& passed,
                         const std::string& name, std::vector<XlaOp>* operands,
                         std::vector<Shape>* results, Aliases* in_place) {
  for (const int number : passed) {
    in_place->push_back({ShapeIndex{static_cast<int64_t>(results->size())},
                         {static_cast<int64_t>(operands->size()), ShapeIndex{}}});
    operands->push_back(context->Input(number));
    TF_RETURN_IF_ERROR(ShapeOf(context, number, name, &results->emplace_back()));
  }
  return absl::OkStatus();
}

// Uses of one name keep their order (protocol rule 11): what a call of these exchanges comes after.
void AddEarlierEnds(const Compiled& compiled, const std::vector<NamedExchange>& exchanges,
                    std::vector<XlaOp>* after) {
  for (const NamedExchange& exchange : exchanges) {
    const auto before = compiled.ends.find(exchange.tensor.name);
    if (before != compiled.ends.end()) after->push_back(before->second);
  }
}

// `inputs` and `passed` are numbers of the operation's inputs. XLA uses the latter after the start.
absl::Status Start(XlaOpKernelContext* context, std::vector<NamedExchange> exchanges,
                   const std::vector<int>& inputs, const std::vector<int>& passed,
                   std::vector<XlaOp> after, const Compiled& compiled, Begun* begun) {
  std::vector<XlaOp> operands = {compiled.run};
  Aliases in_place;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    const std::string& name = exchanges[i].tensor.name;
    begun->shapes.emplace_back();
    TF_RETURN_IF_ERROR(ShapeOf(context, inputs[i], name, &begun->shapes.back()));
    operands.push_back(context->Input(inputs[i]));
    const auto number = static_cast<int64_t>(i);
    in_place.push_back({ShapeIndex{number}, {number + 1, ShapeIndex{}}});
  }
  AddEarlierEnds(compiled, exchanges, &after);
  std::vector<Shape> results = begun->shapes;
  results.push_back(HandleShape());
  TF_RETURN_IF_ERROR(
      PassThrough(context, passed, exchanges[0].tensor.name, &operands, &results, &in_place));
  operands.insert(operands.end(), after.begin(), after.end());
  if (exchanges[0].tensor.kind == ExchangeKind::kGather) {
    Shape& shape = begun->shapes[0];
    if (shape.dimensions().empty()) {
      return absl::InvalidArgumentError("'" + exchanges[0].tensor.name +
                                        "': a scalar has no axis 0 to gather along");
    }
    RankInfo place;
    TF_RETURN_IF_ERROR(ToAbslStatus(CurrentRankInfo(&place)));
    const int32_t workers = Members::Of(exchanges[0].tensor.name).Count(place.size);
    shape.set_dimensions(0, shape.dimensions(0) * workers);
    results.push_back(shape);
  }
  const XlaOp start =
      Call(context, kStartCall, operands, ShapeUtil::MakeTupleShape(results),
           ToCallConfig(exchanges), in_place, CustomCallSchedule::SCHEDULE_EARLIEST);
  const auto count = static_cast<int64_t>(exchanges.size());
  for (int64_t i = 0; i < count; ++i) begun->values.push_back(xla::GetTupleElement(start, i));
  begun->handle = xla::GetTupleElement(start, count);
  for (int64_t i = count + 1; i < static_cast<int64_t>(results.size()); ++i)
    (passed.empty() ? begun->room : begun->passed).push_back(xla::GetTupleElement(start, i));
  begun->exchanges = std::move(exchanges);
  return absl::OkStatus();
}

// The results, in the order of the exchanges.
std::vector<XlaOp> End(XlaOpKernelContext* context, const Begun& begun, XlaOp after,
                       Compiled* compiled) {
  std::vector<XlaOp> operands = {compiled->run};
  operands.insert(operands.end(), begun.values.begin(), begun.values.end());
  operands.push_back(after);
  const auto room = static_cast<int64_t>(operands.size());
  operands.insert(operands.end(), begun.room.begin(), begun.room.end());
  Aliases in_place;
  for (int64_t i = 0; i < static_cast<int64_t>(begun.values.size()); ++i)
    in_place.push_back({ShapeIndex{i}, {begun.room.empty() ? i + 1 : room, ShapeIndex{}}});
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
    OP_REQUIRES_OK(context,
                   Start(context, {exchange_}, {1}, {}, compiled->last, *compiled, &begun));
    compiled->last = {begun.handle};
    context->SetOutput(0, End(context, begun, begun.handle, compiled.get())[0]);
  }

 private:
  NamedExchange exchange_;
};

bool IsForGpu(XlaOpKernelContext* context) {
  return context->compiler()->options().device_type.type_string() == tensorflow::DEVICE_GPU_XLA_JIT;
}

// Whether a collective between the GPUs of one host takes the exchanges, or nothing travels.
bool IsByNccl(XlaOpKernelContext* context, const RankInfo& place) {
  return IsForGpu(context) && place.size == place.local_size;
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
    std::vector<Begun> begun;
    OP_REQUIRES_OK(context, TakeBegun(context, compiled.get(), &groups, &begun));
    OP_REQUIRES_OK(context, GroupOthers(context, &groups));
    std::vector<XlaOp> handles = compiled->last;
    for (const Begun& other : compiled->begun_early) handles.push_back(other.handle);
    for (size_t i = 0; i < groups.size(); ++i) {
      if (i == begun.size())
        OP_REQUIRES_OK(context, StartGroup(context, groups[i], *compiled, &begun.emplace_back()));
      handles.push_back(begun[i].handle);
    }
    const XlaOp barrier = Call(context, kBarrierCall, handles, HandleShape(), "{}", {},
                               CustomCallSchedule::SCHEDULE_NONE);
    compiled->last = {barrier};
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::vector<XlaOp> results = End(context, begun[i], barrier, compiled.get());
      for (size_t j = 0; j < results.size(); ++j) context->SetOutput(groups[i][j], results[j]);
    }
  }

 private:
  int count() const { return static_cast<int>(exchanges_.size()); }

  const std::string& NameOf(int number) const { return exchanges_[number].tensor.name; }

  // Of the input that has an exchange's value.
  int InputOf(XlaOpKernelContext* context, int number) const {
    return context->num_inputs() - count() + number;
  }

  // What was begun early of these exchanges, and their numbers.
  absl::Status TakeBegun(XlaOpKernelContext* context, Compiled* compiled,
                         std::vector<std::vector<int>>* groups, std::vector<Begun>* begun) {
    std::map<std::string, int> numbers;
    for (int number = 0; number < count(); ++number) numbers[NameOf(number)] = number;
    std::vector<Begun> others;
    for (Begun& early : compiled->begun_early) {
      if (numbers.count(early.exchanges[0].tensor.name) == 0) {
        others.push_back(std::move(early));
        continue;
      }
      groups->emplace_back();
      for (size_t i = 0; i < early.values.size(); ++i) {
        const std::string& name = early.exchanges[i].tensor.name;
        const auto found = numbers.find(name);
        if (found == numbers.end() ||
            !context->Input(InputOf(context, found->second)).IsIdenticalTo(early.values[i])) {
          return absl::InternalError("tensor \"" + name + "\" was started with another value");
        }
        groups->back().push_back(found->second);
      }
      begun->push_back(std::move(early));
    }
    compiled->begun_early = std::move(others);
    return absl::OkStatus();
  }

  absl::Status StartGroup(XlaOpKernelContext* context, const std::vector<int>& group,
                          const Compiled& compiled, Begun* begun) {
    std::vector<NamedExchange> together;
    std::vector<int> inputs;
    for (const int number : group) {
      together.push_back(exchanges_[number]);
      inputs.push_back(InputOf(context, number));
    }
    return Start(context, together, inputs, {}, compiled.last, compiled, begun);
  }

  // Cuts the exchanges that are in no group into groups of neighbours.
  absl::Status GroupOthers(XlaOpKernelContext* context, std::vector<std::vector<int>>* groups) {
    RankInfo place;
    TF_RETURN_IF_ERROR(ToAbslStatus(CurrentRankInfo(&place)));
    std::vector<bool> is_grouped(exchanges_.size());
    for (const std::vector<int>& group : *groups)
      for (const int number : group) is_grouped[number] = true;
    std::vector<int64_t> bytes;
    for (int number = 0; number < count(); ++number) {
      Shape shape;
      TF_RETURN_IF_ERROR(ShapeOf(context, InputOf(context, number), NameOf(number), &shape));
      bytes.push_back(ShapeUtil::ByteSizeOf(shape));
    }
    const int64_t limit = BytesOfAStart(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}),
                                        IsByNccl(context, place));
    constexpr int64_t kFull = -1;
    int64_t room = kFull;
    for (int number = 0; number < count(); ++number) {
      if (is_grouped[number]) {
        room = kFull;
        continue;
      }
      if (bytes[number] > room) {
        groups->emplace_back();
        room = std::max(limit, bytes[number]);
      }
      room -= bytes[number];
      groups->back().push_back(number);
    }
    return absl::OkStatus();
  }

  std::vector<NamedExchange> exchanges_;
};

// Adds an element of each input from number `first` on: a call with these operands comes when the
// inputs have been computed.
absl::Status AddElements(XlaOpKernelContext* context, int first, std::vector<XlaOp>* operands) {
  for (int i = first; i < context->num_inputs(); ++i) {
    const absl::StatusOr<Shape> shape = context->InputXlaShape(i);
    TF_RETURN_IF_ERROR(shape.status());
    const size_t rank = shape->dimensions().size();
    if (!shape->is_static() || ShapeUtil::IsZeroElementArray(*shape)) continue;
    const std::vector<int64_t> begin(rank, 0), end(rank, 1);
    operands->push_back(rank == 0 ? context->Input(i)
                                  : xla::Slice(context->Input(i), begin, end, end));
  }
  return absl::OkStatus();
}

// The order holds within one computation of XLA. The body of a loop, or a branch, is another one.
class OrderAfterCompiler : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* context) override {
    tensorflow::core::RefCountPtr<Compiled> compiled;
    OP_REQUIRES_OK(context, FindCompiled(context, &compiled));
    OP_REQUIRES_OK(context, AddElements(context, 0, &compiled->last));
  }
};

class WaitCompiler : public XlaOpKernel {
 public:
  explicit WaitCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
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
    OP_REQUIRES_OK(context, AddDependencies(context, &operands));
    const auto before = compiled->ends.find(name_);
    if (before != compiled->ends.end()) operands.push_back(before->second);
    const XlaOp taken =
        Call(context, kWaitCall, operands, shape_, "{name = \"" + ToDigits(name_) + "\"}", {},
             CustomCallSchedule::SCHEDULE_LATEST);
    compiled->ends[name_] = taken;
    context->SetOutput(0, taken);
  }

 private:
  // What has been computed when the exchange is waited for: the further inputs. Not between the
  // GPUs of one host, where the sums have come before.
  static absl::Status AddDependencies(XlaOpKernelContext* context, std::vector<XlaOp>* operands) {
    constexpr int kFirstDependency = 1;
    RankInfo place;
    TF_RETURN_IF_ERROR(ToAbslStatus(CurrentRankInfo(&place)));
    if (IsByNccl(context, place)) return absl::OkStatus();
    return AddElements(context, kFirstDependency, operands);
  }

  std::string name_;
  Shape shape_;
};

// Whether XLA has the values of a product on a GPU row by row, as a call takes them. It has images
// channel by channel, but for 2D convolutions of 16 bits, and would copy the others twice.
bool IsRowByRow(const Shape& shape) {
  const bool is_narrow = xla::primitive_util::BitWidth(shape.element_type()) <= 16;
  return shape.dimensions().size() < 4 || (shape.dimensions().size() == 4 && is_narrow);
}

// Whether exchanges are started before what uses the inputs from number `first_passed` on. Not
// where nothing travels, or a collective between GPUs takes it: what was measured there
// (docs/performance.md) had XLA's own order.
absl::Status CanHoldBack(XlaOpKernelContext* context, int first_passed, bool* can) {
  RankInfo place;
  TF_RETURN_IF_ERROR(ToAbslStatus(CurrentRankInfo(&place)));
  const bool is_gpu = IsForGpu(context);
  *can = place.size > 1 && !IsByNccl(context, place);
  for (int i = 0; i < context->num_inputs(); ++i) {
    if (context->input_type(i) == tensorflow::DT_RESOURCE) continue;
    const absl::StatusOr<Shape> shape = context->InputXlaShape(i);
    TF_RETURN_IF_ERROR(shape.status());
    // The gradients leave row by row in any case.
    *can = *can && shape->is_static() && !(is_gpu && i >= first_passed && !IsRowByRow(*shape));
  }
  return absl::OkStatus();
}

std::vector<int> Numbers(int from, int until) {
  std::vector<int> numbers(std::max(0, until - from));
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

class StartBeforeCompiler : public XlaOpKernel {
 public:
  explicit StartBeforeCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchanges(context, &exchanges_));
  }

  void Compile(XlaOpKernelContext* context) override {
    const auto count = static_cast<int>(exchanges_.size());
    bool is_early = false;
    OP_REQUIRES_OK(context, CanHoldBack(context, count, &is_early));
    if (!is_early) {
      for (int i = 0; i < context->num_inputs(); ++i) context->SetOutput(i, context->Input(i));
      return;
    }
    tensorflow::core::RefCountPtr<Compiled> compiled;
    OP_REQUIRES_OK(context, FindCompiled(context, &compiled));
    Begun begun;
    OP_REQUIRES_OK(context, Start(context, exchanges_, Numbers(0, count),
                                  Numbers(count, context->num_inputs()), {}, *compiled, &begun));
    for (int i = 0; i < count; ++i) context->SetOutput(i, begun.values[i]);
    for (size_t i = 0; i < begun.passed.size(); ++i)
      context->SetOutput(count + static_cast<int>(i), begun.passed[i]);
    compiled->begun_early.push_back(std::move(begun));
  }

 private:
  std::vector<NamedExchange> exchanges_;
};

// Exchanges that outlast the program. They wait for nothing, and nothing of their program for them:
// their place among the other starts does not matter. `values` and `passed` are numbers of inputs,
// as of Start.
absl::Status StartDetached(XlaOpKernelContext* context, const std::vector<NamedExchange>& exchanges,
                           const std::vector<int>& values, const std::vector<int>& passed,
                           std::vector<XlaOp>* passed_on) {
  tensorflow::core::RefCountPtr<Compiled> compiled;
  TF_RETURN_IF_ERROR(FindCompiled(context, &compiled));
  std::vector<XlaOp> operands;
  std::vector<Shape> results = {HandleShape()};
  Aliases in_place;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    Shape shape;  // checked only
    TF_RETURN_IF_ERROR(ShapeOf(context, values[i], exchanges[i].tensor.name, &shape));
    operands.push_back(context->Input(values[i]));
  }
  TF_RETURN_IF_ERROR(
      PassThrough(context, passed, exchanges[0].tensor.name, &operands, &results, &in_place));
  // What an earlier program has started under these names is taken first.
  AddEarlierEnds(*compiled, exchanges, &operands);
  const XlaOp call = Call(context, kStartDetachedCall, operands, ShapeUtil::MakeTupleShape(results),
                          ToCallConfig(exchanges), in_place, CustomCallSchedule::SCHEDULE_EARLIEST);
  for (const NamedExchange& exchange : exchanges)
    compiled->ends[exchange.tensor.name] = xla::GetTupleElement(call, 0);
  for (size_t i = 1; i < results.size(); ++i)
    passed_on->push_back(xla::GetTupleElement(call, static_cast<int64_t>(i)));
  return absl::OkStatus();
}

class DetachedStartCompiler : public XlaOpKernel {
 public:
  explicit DetachedStartCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchange(context, ReadReduction, &exchange_));
  }

  void Compile(XlaOpKernelContext* context) override {
    std::vector<XlaOp> nothing;
    OP_REQUIRES_OK(context, StartDetached(context, {exchange_}, {1}, {}, &nothing));
  }

 private:
  NamedExchange exchange_;
};

class DetachedStartBeforeCompiler : public XlaOpKernel {
 public:
  explicit DetachedStartBeforeCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, ReadExchanges(context, &exchanges_));
  }

  void Compile(XlaOpKernelContext* context) override {
    const auto count = static_cast<int>(exchanges_.size());
    const std::vector<int> passed = Numbers(2 * count, context->num_inputs());
    bool can_hold_back = false;
    std::vector<XlaOp> same;
    OP_REQUIRES_OK(context, CanHoldBack(context, 2 * count, &can_hold_back));
    OP_REQUIRES_OK(context, StartDetached(context, exchanges_, Numbers(count, 2 * count),
                                          can_hold_back ? passed : std::vector<int>(), &same));
    for (size_t i = 0; i < passed.size(); ++i)
      context->SetOutput(static_cast<int>(i), can_hold_back ? same[i] : context->Input(passed[i]));
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
    context->SetOutput(0, Call(context, kRankInfoCall, {}, ShapeUtil::MakeShape(xla::S32, {}),
                               config_, {}, CustomCallSchedule::SCHEDULE_NONE));
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
BYTEPS_REGISTER_COMPILER("BytePSOrderAfter", OrderAfterCompiler);
BYTEPS_REGISTER_COMPILER("BytePSPlace", PlaceCompiler);
BYTEPS_REGISTER_COMPILER("BytePSStartBefore", StartBeforeCompiler);
BYTEPS_REGISTER_COMPILER("BytePSPushPullStart", DetachedStartCompiler);
BYTEPS_REGISTER_COMPILER("BytePSPushPullStartBefore", DetachedStartBeforeCompiler);
BYTEPS_REGISTER_COMPILER("BytePSWait", WaitCompiler);

}  // namespace
}  // namespace byteps
