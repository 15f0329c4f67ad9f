"""The exchanges as TensorFlow operations, eager and within `tf.function`, and their gradients."""

from tf_byteps.ops import input_waits
from tf_byteps.ops.compression import Compression
from tf_byteps.ops.compressor import Compressor
from tf_byteps.ops.exchange import broadcast, gather, push_pull
from tf_byteps.ops.reduce_op import Average, Max, Min, ReduceOp, Sum

allgather = gather
input_waits.install()

__all__ = [
    "Average",
    "Compression",
    "Compressor",
    "Max",
    "Min",
    "ReduceOp",
    "Sum",
    "allgather",
    "broadcast",
    "gather",
    "push_pull",
]
