"""What the modules that give XLA an order have in common: operations of a graph.

XLA knows no order but that of data. `start_scheduling` and `wait_scheduling` give operations of a
function that is being traced other inputs.
"""

import tensorflow as tf

# The same numbers in another shape, from their first input: no work for XLA.
SHAPES = frozenset({"EnsureShape", "ExpandDims", "Identity", "Reshape", "Squeeze"})
FORMS = SHAPES | {"Cast", "Transpose"}
# What layers with weights compute, but for convolutions.
MATRIX_PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "MatMul"})


def comes_after(graph: tf.Graph) -> dict[tf.Operation, set[tf.Operation]]:
    """Of each operation of a graph, those that give it an input or are to come before it."""
    return {
        each: {tensor.op for tensor in each.inputs} | set(each.control_inputs)
        for each in graph.get_operations()
    }
