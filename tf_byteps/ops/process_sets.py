"""What exchanges between some of the workers need of TensorFlow."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.process_sets import members_of
from tf_byteps.ops import compiling
from tf_byteps.ops.library import kernels


def size_in(name: str) -> Any:
    """How many workers exchange under a name, an int32 scalar.

    Read when it runs: a function may outlive the job in which it was traced.
    """
    members = members_of(name)
    return kernels().byte_ps_place(what="size") if members is None else tf.constant(len(members))


def rank_in(name: str) -> Any:
    """This worker's number among those that exchange under a name, an int32 scalar."""
    rank = kernels().byte_ps_place(what="rank")
    members = members_of(name)
    if members is None:
        return rank
    return tf.math.count_nonzero(tf.constant(members) < rank, dtype=tf.int32)


def on_host(name: str) -> contextlib.AbstractContextManager[Any]:
    """Puts an exchange between some workers on the CPU: the GPUs of a host reduce together, all of
    them."""
    stays = members_of(name) is None or compiling.is_compiled()
    return contextlib.nullcontext() if stays else tf.device("/device:CPU:0")
