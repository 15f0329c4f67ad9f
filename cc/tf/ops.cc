// The operations as TensorFlow sees them: inputs, attributes and static shapes. The kernels are in
// kernels.cc, for XLA in xla_kernels.cc.
//
// Every operation but BytePSCopyRows and those of attention is stateful (it runs even if nobody
// uses its result, and is never folded or merged with another). The exchanges are distributed
// communications, too (so that TensorFlow passes on an UNAVAILABLE error instead of replacing it).
//
// `token` is a resource handle that no kernel ever opens. A stateful operation without a resource
// input would be chained to all others of its tf.function; one with a resource input is ordered
// only against the uses of the same resource. One token for each name therefore gives "ordered per
// name" (protocol rule 11) through calls, branches and loops. The token may be on another device
// than the operation, which is exempt from the rule that both are on one.
#include "tensorflow/core/common_runtime/input_colocation_exemption_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace byteps {
namespace {

using ::tensorflow::input_colocation_exemption_registration::InputColocationExemptionRegistration;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

const InputColocationExemptionRegistration kExempt[] = {
    InputColocationExemptionRegistration("BytePSPushPull"),
    InputColocationExemptionRegistration("BytePSPushPullAll"),
    InputColocationExemptionRegistration("BytePSBroadcast"),
    InputColocationExemptionRegistration("BytePSGather"),
    InputColocationExemptionRegistration("BytePSAllToAll"),
    InputColocationExemptionRegistration("BytePSRowSum"),
    InputColocationExemptionRegistration("BytePSPushPullStart"),
    InputColocationExemptionRegistration("BytePSGatherStart"),
    InputColocationExemptionRegistration("BytePSWait"),
};

absl::Status SameShapeAsValue(InferenceContext* context) {
  context->set_output(0, context->input(1));
  return absl::OkStatus();
}

absl::Status SameShapesAsValues(InferenceContext* context) {
  const int count = context->num_outputs();
  const int tokens = context->num_inputs() - count;
  for (int i = 0; i < count; ++i) context->set_output(i, context->input(tokens + i));
  return absl::OkStatus();
}

// The first axis of a result that is `begin` to `end` of the input's, where both are known.
DimensionHandle LengthOfRange(InferenceContext* context, int begin, int end) {
  const tensorflow::Tensor* const first = context->input_tensor(begin);
  const tensorflow::Tensor* const last = context->input_tensor(end);
  if (first == nullptr || last == nullptr) return context->UnknownDim();
  const int64_t length = last->scalar<int64_t>()() - first->scalar<int64_t>()();
  return length < 0 ? context->UnknownDim() : context->MakeDim(length);
}

absl::Status AttentionShapes(InferenceContext* context) {
  ShapeHandle query;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 4, &query));
  context->set_output(0, query);
  context->set_output(1, context->MakeShape({context->Dim(query, 0), context->Dim(query, 2),
                                             context->Dim(query, 1)}));
  return absl::OkStatus();
}

absl::Status RowsOfRange(InferenceContext* context) {
  ShapeHandle value, scalar, result;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(0), 1, &value));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &scalar));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 0, &scalar));
  if (!context->RankKnown(value)) {
    context->set_output(0, context->UnknownShape());
    return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(context->ReplaceDim(value, 0, LengthOfRange(context, 1, 2), &result));
  context->set_output(0, result);
  return absl::OkStatus();
}

absl::Status UnknownRows(InferenceContext* context) {
  ShapeHandle value;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(1), 1, &value));
  if (!context->RankKnown(value)) {
    context->set_output(0, context->UnknownShape());
    return absl::OkStatus();
  }
  ShapeHandle result;
  TF_RETURN_IF_ERROR(context->ReplaceDim(value, 0, context->UnknownDim(), &result));
  context->set_output(0, result);
  return absl::OkStatus();
}

absl::Status UnknownRowsAndSplits(InferenceContext* context) {
  ShapeHandle splits;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 1, &splits));
  context->set_output(1, splits);
  return UnknownRows(context);
}

absl::Status SummedRows(InferenceContext* context) {
  ShapeHandle indices, rows;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 1, &indices));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 2, &rows));
  const DimensionHandle count = context->UnknownDim();
  context->set_output(0, context->Vector(count));
  context->set_output(1, context->Matrix(count, context->Dim(rows, 1)));
  return absl::OkStatus();
}

// The last inputs'.
absl::Status ShapesOfPassed(InferenceContext* context) {
  const int first = context->num_inputs() - context->num_outputs();
  for (int i = 0; i < context->num_outputs(); ++i)
    context->set_output(i, context->input(first + i));
  return absl::OkStatus();
}

absl::Status RowsOfUnknownWidth(InferenceContext* context) {
  ShapeHandle rows;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 2, &rows));
  context->set_output(0, context->Matrix(context->Dim(rows, 0), context->UnknownDim()));
  return absl::OkStatus();
}

REGISTER_OP("BytePSPushPull")
    .Input("token: resource")
    .Input("value: T")
    .Output("result: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("op: {'sum', 'average', 'min', 'max', 'product'}")
    .Attr("priority: int = -2147483648")  // kBackwardOrder
    .Attr("backup_workers: int >= 0 = 0")
    .Attr("codec: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShapeAsValue)
    .Doc("Combines the workers' values elementwise; every worker gets the result.");

REGISTER_OP("BytePSPushPullAll")
    .Input("tokens: N * resource")
    .Input("values: T")
    .Output("results: T")
    .Attr("N: int >= 1")
    .Attr("T: list({float, double, half, bfloat16, int8, uint8, int32, int64}) >= 1")
    .Attr("tensor_names: list(string)")
    .Attr("priorities: list(int)")
    .Attr("op: {'sum', 'average', 'min', 'max', 'product'}")
    .Attr("backup_workers: int >= 0 = 0")
    .Attr("codecs: list(string) = []")  // none: all are sent as they are
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShapesAsValues)
    .Doc(
        "Does what BytePSPushPull does for each of several values, of which none needs another's "
        "result. For XLA, which cannot see that by itself.");

// Stateless, although it starts an exchange: where nothing needs its outputs, nothing is started.
REGISTER_OP("BytePSStartBefore")
    .Input("values: T")
    .Input("passed: Passed")
    .Output("same_values: T")
    .Output("passed_on: Passed")
    .Attr("T: list({float, double, half, bfloat16, int8, uint8, int32, int64}) >= 1")
    .Attr("Passed: list(type) >= 1")
    .Attr("tensor_names: list(string)")
    .Attr("priorities: list(int)")
    .Attr("op: {'sum', 'average', 'min', 'max', 'product'}")
    .Attr("backup_workers: int >= 0 = 0")
    .Attr("codecs: list(string) = []")  // none: all are sent as they are
    .SetShapeFn(SameShapesAsValues)
    .Doc(
        "Its outputs are its inputs. In a compiled program it starts exchanges of `values` before "
        "anything uses `passed_on`; the BytePSPushPullAll that takes `same_values` ends them.");

REGISTER_OP("BytePSOrderAfter")
    .Input("values: T")
    .Attr("T: list(type) >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(
        "In a compiled program all exchanges that come after this operation start when `values` "
        "have been computed: loops, branches and what is around them have one order.");

REGISTER_OP("BytePSBroadcast")
    .Input("token: resource")
    .Input("value: T")
    .Output("result: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("root_rank: int >= 0")
    .Attr("priority: int = -2147483648")  // kBackwardOrder
    .Attr("gradient: {'sum', 'average'} = 'sum'")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShapeAsValue)
    .Doc("Gives every worker the root's value.");

// For the CPU only: the GPUs of a host, which contribute together, have no store in common.
REGISTER_OP("BytePSStore")
    .Input("token: resource")
    .Input("value: T")
    .Output("result: T")
    .Attr("T: {float, double, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("priority: int = -2147483648")  // kBackwardOrder
    .Attr("staleness: int >= -1 = -1")    // kUnboundedStaleness
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShapeAsValue)
    .Doc(
        "Adds a change to the value that the servers hold, and returns that value. A worker's "
        "first push of a name is the value that the store begins with.");

REGISTER_OP("BytePSGather")
    .Input("token: resource")
    .Input("value: T")
    .Output("result: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("priority: int = -2147483648")  // kBackwardOrder
    .Attr("codec: string = ''")           // of rows that are encoded already
    .Attr("gradient: {'sum', 'average'} = 'sum'")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(UnknownRows)
    .Doc(
        "Concatenates the workers' values along axis 0 in rank order; every worker gets the "
        "result.");

// For host memory: where it runs on a GPU, TensorFlow copies.
REGISTER_OP("BytePSAllToAll")
    .Input("token: resource")
    .Input("value: T")
    .Input("splits: int64")
    .Output("result: T")
    .Output("received_splits: int64")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("priority: int = -2147483648")  // kBackwardOrder
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(UnknownRowsAndSplits)
    .Doc(
        "Sends `splits[rank]` rows of the value, which are in rank order, to each worker. The "
        "result "
        "is what all workers have sent to this one, `received_splits[rank]` rows each.");

REGISTER_OP("BytePSRowSum")
    .Input("token: resource")
    .Input("indices: int64")
    .Input("rows: T")
    .Input("limit: int64")
    .Output("sum_indices: int64")
    .Output("sum_rows: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("average: bool")
    .Attr("priority: int = -2147483648")  // kBackwardOrder
    .Attr("by: {'servers', 'choice'} = 'servers'")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SummedRows)
    .Doc(
        "Adds up the rows of a table that the workers have, or averages them; the indices are "
        "ascending, and below `limit` unless that is negative. All workers get all rows that some "
        "worker has. The servers add them, each those of some blocks of the index space; or, by "
        "choice, the workers, after a gather, where that is better.");

REGISTER_OP("BytePSEncodeRows")
    .Input("rows: float")
    .Output("encoded: uint8")
    .Attr("codec: string")
    .SetShapeFn(RowsOfUnknownWidth)
    .Doc(
        "Encodes each row by itself, in the form in which sums of a codec travel. In a job of one "
        "worker the bytes are the rows' own.");

REGISTER_OP("BytePSDecodeRows")
    .Input("encoded: uint8")
    .Input("width: int64")
    .Output("rows: float")
    .Attr("codec: string")
    .SetShapeFn(RowsOfUnknownWidth)
    .Doc("Decodes rows of `width` elements that BytePSEncodeRows has encoded.");

REGISTER_OP("BytePSPushPullStart")
    .Input("token: resource")
    .Input("value: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("op: {'sum', 'average', 'min', 'max', 'product'}")
    .Attr("priority: int")
    .Attr("codec: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(
        "Starts what BytePSPushPull does; BytePSWait has the result, in this step or a later one.");

REGISTER_OP("BytePSPushPullStartBefore")
    .Input("tokens: N * resource")
    .Input("values: T")
    .Input("passed: Passed")
    .Output("passed_on: Passed")
    .Attr("N: int >= 1")
    .Attr("T: list({float, double, half, bfloat16, int8, uint8, int32, int64}) >= 1")
    .Attr("Passed: list(type) >= 1")
    .Attr("tensor_names: list(string)")
    .Attr("priorities: list(int)")
    .Attr("op: {'sum', 'average', 'min', 'max', 'product'}")
    .Attr("codecs: list(string) = []")  // none: all are sent as they are
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(ShapesOfPassed)
    .Doc(
        "Does what BytePSPushPullStart does for each of several values. In a compiled program it "
        "does that before anything uses `passed_on`, which is `passed`.");

REGISTER_OP("BytePSNoteAllocator")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Compiled programs on this GPU may start exchanges that outlast them from now on.");

REGISTER_OP("BytePSGatherStart")
    .Input("token: resource")
    .Input("value: T")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("priority: int")
    .Attr("codec: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Starts what BytePSGather does; BytePSWait has the result, in this step or a later one.");

REGISTER_OP("BytePSWait")
    .Input("token: resource")
    .Input("after: after_types")
    .Output("result: T")
    .Attr("after_types: list(type) >= 0 = []")
    .Attr("T: {float, double, half, bfloat16, int8, uint8, int32, int64}")
    .Attr("tensor_name: string")
    .Attr("shape: shape")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::ExplicitShape)
    .Doc(
        "The result of the exchange that was started under a name; once for each start. What XLA "
        "compiles of it waits when the tensors `after` have been computed.");

REGISTER_OP("BytePSForget")
    .Attr("tensor_names: list(string)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(
        "Nobody will wait for what was started under these names. The others get it all the same.");

REGISTER_OP("BytePSStartsAndWaits")
    .Output("count: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("How many exchanges this process has started, or asked for their results, so far.");

REGISTER_OP("BytePSNoteBatch")
    .Input("iterator: resource")
    .Input("began: int64")
    .Input("samples: int64")
    .Output("now: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(
        "Before a batch is taken, with `began` = 0: gives the time. After it, with that time: "
        "counts the wait and the samples of the batch. It takes the iterator so that functions "
        "keep the order.");

REGISTER_OP("BytePSCopyRows")
    .Input("value: T")
    .Input("begin: int64")
    .Input("end: int64")
    .Output("rows: T")
    .Attr("T: type")
    .SetShapeFn(RowsOfRange)
    .Doc(
        "Rows `begin` to `end` of a tensor in memory of their own, which a GPU can read by itself "
        "where there is one. `value[begin:end]` is a view of the same memory.");

REGISTER_OP("BytePSAttention")
    .Input("query: T")
    .Input("key: T")
    .Input("value: T")
    .Input("bias: biases * T")
    .Output("output: T")
    .Output("statistics: float")
    .Attr("T: {half, bfloat16}")
    .Attr("biases: int >= 0")
    .Attr("scale: float")
    .Attr("is_causal: bool")
    .SetShapeFn(AttentionShapes)
    .Doc(
        "The attention of a query, (batch, length, heads, width), to keys and values, in one "
        "kernel "
        "of cuDNN's; `bias` is added to the scores. For XLA on GPUs only. The statistics of the "
        "softmax are for the gradient.");

REGISTER_OP("BytePSAttentionGradient")
    .Input("query: T")
    .Input("key: T")
    .Input("value: T")
    .Input("bias: biases * T")
    .Input("statistics: float")
    .Input("output: T")
    .Input("gradient: T")
    .Output("query_gradient: T")
    .Output("key_gradient: T")
    .Output("value_gradient: T")
    .Attr("T: {half, bfloat16}")
    .Attr("biases: int >= 0")
    .Attr("scale: float")
    .Attr("is_causal: bool")
    .SetShapeFn([](InferenceContext* context) {
      for (int i = 0; i < 3; ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    })
    .Doc("The gradient of BytePSAttention, from what it took and gave.");

REGISTER_OP("BytePSPlace")
    .Output("number: int32")
    .Attr("what: {'rank', 'size', 'local_rank', 'local_size'}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Which of the workers this process is, or how many there are, when it runs.");

}  // namespace
}  // namespace byteps
