"""The exchanges as TensorFlow operations, eager and within `tf.function`, and their gradients."""

from tf_byteps.exchange import host
from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.compressor import Compressor
from tf_byteps.exchange.reduce_op import Average, Max, Min, Product, ReduceOp, Sum
from tf_byteps.ops import error_text, input_waits
from tf_byteps.ops.copying import broadcast, gather
from tf_byteps.ops.exchange import push_pull
from tf_byteps.ops.scattering import alltoall

allgather = gather
input_waits.install()
host.raise_errors_as(error_text.as_tensorflows)

__all__ = [
    "Average",
    "Compression",
    "Compressor",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "alltoall",
    "broadcast",
    "gather",
    "push_pull",
]
