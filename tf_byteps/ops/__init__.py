"""The exchanges as TensorFlow operations, eager and within `tf.function`, and their gradients.

`library`, `device` and `compiling` are what all stand on. `compiled` has what programs need that
XLA compiles, `sparse` what `tf.IndexedSlices` need, `compression` what codecs do not do. The files
beside these folders use them, and none of the folders uses those (`tests/api/test_imports.py`).
"""

from tf_byteps.exchange import host
from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.compressor import Compressor
from tf_byteps.exchange.reduce_op import Average, Max, Min, Product, ReduceOp, Sum
from tf_byteps.ops import autograph, error_text, input_waits
from tf_byteps.ops.copying import broadcast, gather
from tf_byteps.ops.exchange import push_pull
from tf_byteps.ops.scattering import alltoall

allgather = gather
autograph.install()
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
