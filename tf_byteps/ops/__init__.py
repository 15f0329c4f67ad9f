"""The exchange operations for TensorFlow: `push_pull`, `broadcast`, `gather`, and their gradients."""

from tf_byteps.ops.exchange import broadcast, gather, push_pull
from tf_byteps.ops.reduce_op import Average, Max, Min, ReduceOp, Sum

allgather = gather

__all__ = [
    "Average",
    "Max",
    "Min",
    "ReduceOp",
    "Sum",
    "allgather",
    "broadcast",
    "gather",
    "push_pull",
]
