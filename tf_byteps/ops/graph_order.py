"""What the modules that give XLA an order have in common: operations of a graph, and cycles.

XLA knows no order but that of data. `start_scheduling` and `wait_scheduling` give operations of a
function that is being traced other inputs.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

# Variables with fewer elements share the order of the larger ones: there are many of them.
LEAST_ELEMENTS = 2**18
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


def is_cyclic(before_of: Mapping[Any, set[Any]]) -> bool:
    """Whether some operations, or others that come in an order, wait for each other.

    Args:
        before_of: of each operation, those that come before it. It has all of them.
    """
    users: dict[Any, list[Any]] = {each: [] for each in before_of}
    for each, before in before_of.items():
        for other in before:
            users[other].append(each)
    missing = {each: len(before) for each, before in before_of.items()}
    ready = [each for each, count in missing.items() if not count]
    done = 0
    while ready:
        done += 1
        for user in users[ready.pop()]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return done < len(before_of)
