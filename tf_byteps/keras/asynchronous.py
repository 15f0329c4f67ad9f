"""`DistributedOptimizer` with `BYTEPS_ENABLE_ASYNC=1`: workers exchange changes of the weights.

The optimizer applies its worker's own gradients. Then it sends by how much each weight has moved,
and goes on with what the servers hold: see `tf_byteps.ops.store`. This is the asynchronous training
of BytePS's TensorFlow plugin. A step costs the bytes of the weights once up and once down, however
many workers there are.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import _engine, runtime
from tf_byteps.config import Config
from tf_byteps.exchange.arguments import BACKWARD_ORDER
from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.reduce_op import Average
from tf_byteps.gradients.reducing import exchange_names
from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.ops import store
from tf_byteps.training.gradient_reduction import GradientReduction
from tf_byteps.training.runtime_ops import size_op

# Optimizer -> the configuration of the job whose servers hold its weights.
_begun: weakref.WeakKeyDictionary[Any, Config] = weakref.WeakKeyDictionary()


def is_on() -> bool:
    """Whether a distributed optimizer outside of `BytePSStrategy` exchanges changes of weights."""
    return runtime.config().enable_async and not in_our_replica()


def is_of_another_job(optimizer: Any) -> bool:
    """Whether steps that were traced with an optimizer would send changes that no weights of this
    job's servers precede: after `shutdown` and `init`."""
    return optimizer in _begun and _begun[optimizer] is not runtime.config()


@tf.autograph.experimental.do_not_convert
def apply(optimizer: Any, update: Callable[[], Any], variables: Sequence[Any]) -> Any:
    """Updates the weights, and exchanges their changes.

    Args:
        optimizer: a distributed one, which is no `LossScaleOptimizer`.
        update: applies this worker's own gradients.
        variables: what it updates, `keras.Variable`s.

    Returns:
        What `update` returns.

    Raises:
        ValueError: the job or the optimizer's arguments do not go with asynchronous training.
    """
    reduction: GradientReduction = optimizer.byteps_reduction
    weights = [variable for variable in variables if not reduction.is_local(variable)]
    names = exchange_names(weights, reduction.scope, "store")
    if _begun.get(optimizer) is not runtime.config():
        _check(reduction)
        with tf.init_scope():  # while a step is traced, too
            _engine.begin_stores(names)  # another optimizer may have had these weights
            _take(weights, names, [store.wide(weight) for weight in weights])
        _begun[optimizer] = runtime.config()
    before = [store.wide(weight) for weight in weights]
    result = update()
    changes = [store.wide(weight) - old for weight, old in zip(weights, before, strict=True)]
    if reduction.op == Average:
        changes = [change / tf.cast(size_op(), change.dtype) for change in changes]
    _take(weights, names, changes)
    return result


def _check(reduction: GradientReduction) -> None:
    store.check_job()
    if (
        reduction.compression is not Compression.none
        or reduction.predivide_factor != 1
        or reduction.backup_workers
    ):
        raise ValueError(
            "BYTEPS_ENABLE_ASYNC is 1: workers exchange changes of weights, not gradients, so "
            "leave compression, gradient_predivide_factor and backup_workers out"
        )


def _take(weights: Sequence[Any], names: Sequence[str], sent: Sequence[tf.Tensor]) -> None:
    held = store.exchange(sent, names, BACKWARD_ORDER)
    for weight, value in zip(weights, held, strict=True):
        weight.assign(tf.cast(value, weight.dtype))
