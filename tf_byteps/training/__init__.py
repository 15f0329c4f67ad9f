"""Training with TensorFlow without a strategy: the gradient tape, variables, objects, the runtime's
numbers. What is for Keras only is in `tf_byteps.keras`."""

from tf_byteps.training.collectives import (
    allreduce,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
)
from tf_byteps.training.objects import allgather_object, broadcast_object
from tf_byteps.training.runtime_ops import local_rank_op, local_size_op, rank_op, size_op
from tf_byteps.training.speed import get_pushpull_speed
from tf_byteps.training.suspension import resume, suspend
from tf_byteps.training.tape import DistributedGradientTape
from tf_byteps.training.variables import broadcast_global_variables, broadcast_variables

__all__ = [
    "DistributedGradientTape",
    "allgather_object",
    "allreduce",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "get_pushpull_speed",
    "grouped_allgather",
    "grouped_allreduce",
    "local_rank_op",
    "local_size_op",
    "rank_op",
    "resume",
    "size_op",
    "suspend",
]
