"""Has a step that XLA compiles wait for each sum as late as it can.

The step updates its variables with the sums of gradients that the step before has started. XLA
would place all waits before the forward pass, since they depend on nothing: the step would compute
nothing before the last sum has come. So a wait gets one more input, from what the forward pass
computes last before it uses the variable.
"""

import bisect
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_byteps.exchange import start_order
from tf_byteps.exchange.start_order import LEAST_ELEMENTS
from tf_byteps.ops.compiled import graph_order
from tf_byteps.ops.compiled.graph_order import FORMS, MATRIX_PRODUCTS
from tf_byteps.private.tensorflow import RESOURCE_READ_OPS

_WAIT = "BytePSWait"
_AFTER = 1  # the number of its input
_PRODUCTS = MATRIX_PRODUCTS | {
    "Conv2D",
    "Conv2DBackpropInput",  # a transposed convolution
    "Conv3D",
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNative",
}


def at_once() -> tf.Tensor:
    """The additional input of a wait that need not be late."""
    # Any other tensor can take its place, of whatever shape.
    return tf.raw_ops.PlaceholderWithDefault(input=0.0, shape=None)


def place_late(handles: Mapping[str, tf.Tensor], begin: int) -> int:
    """Places the waits of the function that is being traced for XLA.

    They get other inputs, and no number changes. What is done with their results comes later with
    them. Where what they are to come after needs the updated variables, all stay as they are. The
    cost is a few passes over the operations of the graph.

    Args:
        handles: of the variables that are updated, by the names of the exchanges: tensors of the
            function's graph.
        begin: how many operations the graph had when all updates had been traced.

    Returns:
        How many waits come later now.
    """
    graph = tf.compat.v1.get_default_graph()
    operations = graph.get_operations()
    places = {operation: place for place, operation in enumerate(operations)}
    uses = {name: _uses(handle, places, begin) for name, handle in handles.items()}
    predecessors = _predecessors(uses, places, begin)
    predecessor_of: dict[tf.Operation, tf.Tensor] = {}
    for wait in operations[:begin]:
        name = wait.get_attr("tensor_name").decode() if wait.type == _WAIT else None
        if name in uses and uses[name]:
            first_use = places[uses[name][0]]
            earlier = bisect.bisect_left(
                predecessors, first_use, key=lambda predecessor: places[predecessor.op]
            )
            if earlier:
                predecessor_of[wait] = predecessors[earlier - 1]
    if not predecessor_of or _would_be_cyclic(graph, predecessor_of):
        return 0
    _connect(predecessor_of)
    return len(predecessor_of)


def _uses(handle: tf.Tensor, places: Mapping[tf.Operation, int], begin: int) -> list[tf.Operation]:
    """What uses a variable after the updates, in the order in which it was traced."""
    users = {user for user in handle.consumers() if places[user] >= begin}
    return sorted(users, key=places.__getitem__)


def _predecessors(
    uses: Mapping[str, list[tf.Operation]], places: Mapping[tf.Operation, int], begin: int
) -> list[tf.Tensor]:
    """What large weights are multiplied with, in the order in which it was traced.

    It is in memory in any case: that some other operation reads it costs nothing.
    """
    found: dict[tf.Operation, tf.Tensor] = {}
    for users in uses.values():
        for read in users:
            if read.type != "ReadVariableOp":
                continue
            if (read.outputs[0].shape.num_elements() or 0) < LEAST_ELEMENTS:
                continue
            for tensor in _multiplied_with(read.outputs[0]):
                # Not what the function is given.
                is_computed = places[tensor.op] >= begin and len(tensor.op.inputs) > 0
                if is_computed and tensor.dtype.is_floating and tensor.shape.rank:
                    found[tensor.op] = tensor
    return sorted(found.values(), key=lambda tensor: places[tensor.op])


def _multiplied_with(weights: tf.Tensor) -> list[tf.Tensor]:
    """The other factors of the products of these weights, before they got another form."""
    factors: list[tf.Tensor] = []
    left = [weights]
    while left:
        tensor = left.pop()
        for user in tensor.consumers():
            if user.type in FORMS:
                left.append(user.outputs[0])
            elif user.type in _PRODUCTS:
                factors += [_unformed(other) for other in user.inputs if other is not tensor]
    return factors


def _unformed(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type in FORMS:
        tensor = tensor.op.inputs[0]
    return tensor


def _would_be_cyclic(graph: tf.Graph, predecessor_of: Mapping[tf.Operation, tf.Tensor]) -> bool:
    before_of = graph_order.comes_after(graph)
    for wait, predecessor in predecessor_of.items():
        before_of[wait].add(predecessor.op)
    _add_order_of_variables(graph, before_of)
    return start_order.is_cyclic(before_of)


def _add_order_of_variables(
    graph: tf.Graph, before_of: dict[tf.Operation, set[tf.Operation]]
) -> None:
    """Adds what TensorFlow will when the function has been traced: what reads a variable comes
    after the last write before it, and a write after all reads and writes before it."""
    last_write: dict[Any, tf.Operation] = {}
    reads: dict[Any, list[tf.Operation]] = {}
    for operation in graph.get_operations():
        for tensor in operation.inputs:
            if tensor.dtype != tf.resource:
                continue
            variable = tensor.ref()
            written = last_write.get(variable)
            if written is not None and written is not operation:
                before_of[operation].add(written)
            if operation.type in RESOURCE_READ_OPS:
                reads.setdefault(variable, []).append(operation)
            else:
                before_of[operation].update(set(reads.pop(variable, ())) - {operation})
                last_write[variable] = operation


def _connect(predecessor_of: Mapping[tf.Operation, tf.Tensor]) -> None:
    inputs: dict[Any, tf.Tensor] = {}
    # What is traced around this must not be what the predecessors wait for.
    with tf.control_dependencies(None):
        for wait, predecessor in predecessor_of.items():
            key = predecessor.ref()
            if key not in inputs:
                inputs[key] = tf.cast(predecessor, tf.float32)
            wait._update_input(_AFTER, inputs[key])
