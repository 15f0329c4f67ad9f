"""One order for the exchanges of a compiled function, through its loops and branches.

XLA compiles the body of a loop, and each branch, as a computation of its own. The calls of one
computation follow each other by a handle (cc/tf/xla_kernels.cc); no handle leads into another one.
On a GPU an exchange makes the stream wait. If the programs of two workers differed, one could place
a loop before an exchange outside of it and the other one behind it, and each would wait for the
other. So the first exchange in a loop or branch starts after those before the loop, and the next
one outside starts after the loop, by its results.

A function without exchanges in loops or branches gets nothing from this module. With them, an
exchange looks at the operations that have come since the one before it.
"""

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.ops import compiling
from tf_byteps.ops.device import own_device
from tf_byteps.ops.library import kernels
from tf_byteps.private.tensorflow import control_flow_v2_func_graphs as control_flow

#: The functions that TensorFlow makes of a branch, and of a loop's body and condition.
INNER_GRAPHS = (
    control_flow.CondBranchFuncGraph,
    control_flow.WhileBodyFuncGraph,
    control_flow.WhileCondFuncGraph,
)
_CONTROL_FLOW = frozenset({"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"})
_UNORDERED = (tf.resource, tf.variant)


@dataclasses.dataclass
class _Exchanged:
    """What a graph has exchanged so far.

    Attributes:
        last: the result of its last exchange by itself.
        operations: how many operations it had then.
        is_inside: whether a loop or branch has exchanged since then.
    """

    last: tf.Tensor | None = None
    operations: int = 0
    is_inside: bool = False


_exchanged: weakref.WeakKeyDictionary[Any, _Exchanged] = weakref.WeakKeyDictionary()


def in_order(emit: Callable[[], Any]) -> Any:
    """Adds exchanges to what is being computed.

    Args:
        emit: a function that adds one operation and returns its result or list of results.

    Returns:
        What `emit` returns.

    Raises:
        ValueError: a loop or branch before it exchanges, and has no result to tell that it has
            ended.
    """
    if not compiling.is_compiled():
        return emit()
    graph: Any = tf.compat.v1.get_default_graph()
    before = _before_next(graph)
    with tf.control_dependencies([kernels().byte_ps_order_after(before)] if before else []):
        results = emit()
    last = results[0] if isinstance(results, list) else results
    _exchanged[graph] = _Exchanged(last, len(graph.get_operations()))
    while isinstance(graph, INNER_GRAPHS):
        graph = graph.outer_graph
        _exchanged.setdefault(graph, _Exchanged()).is_inside = True
    return results


def _before_next(graph: Any) -> list[tf.Tensor]:
    """What the next exchange in a graph comes after, but for the last one in the graph itself."""
    state = _exchanged.get(graph, _Exchanged())
    before = _ends_inside(graph, state.operations) if state.is_inside else []
    if state.last is None and isinstance(graph, INNER_GRAPHS):
        outer = graph.outer_graph
        last = _exchanged.get(outer, _Exchanged()).last
        before += _before_next(outer) + ([] if last is None else [last])
    return before


def _ends_inside(graph: Any, first: int) -> list[tf.Tensor]:
    """The results of loops and branches from operation number `first` on."""
    ends = []
    for operation in graph.get_operations()[first:]:
        if operation.type not in _CONTROL_FLOW:
            continue
        results = [each for each in operation.outputs if each.dtype not in _UNORDERED]
        if not results and "GPU" in own_device():
            raise ValueError(
                f'"{operation.name}" may exchange tensors and has no result, and another exchange '
                "follows it: a function that XLA compiles for a GPU cannot keep them in one order "
                "on all workers; return a tensor from the loop or branch, or compile with "
                "jit_compile=False"
            )
        ends += results
    return ends
