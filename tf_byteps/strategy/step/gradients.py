"""Reduces a step's gradients over the workers, as the strategy in use says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.gradients import reducing
from tf_byteps.ops import Average, Compression, Sum
from tf_byteps.ops.reduction import Reduction
from tf_byteps.ops.sparse import slices
from tf_byteps.strategy.step import local_batch
from tf_byteps.tables import gradients as tables, layout as layouts
from tf_byteps.types import Gradient, Variable


def reduce_gradients(
    gradients: Sequence[Gradient], variables: Sequence[Variable], scope: str = ""
) -> Any:
    """Reduces each gradient over all workers, as soon as it is there.

    Args:
        gradients: a list of `tf.Tensor`, `tf.IndexedSlices` or `None`. In a Keras step they are
            what `local_batch.weighted` returned.
        variables: what they are gradients of: `keras.Variable` or `tf.Variable`.
        scope: a prefix of the exchanges' names.

    Returns:
        The list of results; `None` stays.
    """
    batch, strategy = local_batch.current(), tf.distribute.get_strategy()
    tables.refuse(
        [layouts.of(variable) for variable in variables],
        staleness=getattr(strategy, "staleness", 0),
        local_steps=getattr(strategy, "local_steps", None),
        backup_workers=getattr(strategy, "backup_workers", 0),
    )
    if getattr(strategy, "local_steps", None) is None or runtime.size() == 1:
        return reducing.reduce_gradients(gradients, variables, _reduction(), scope)
    if batch is None:
        raise NotImplementedError(
            "BytePSStrategy(local_steps=...) makes local steps in Model.fit and train_on_batch "
            "only, and so does BytePSStrategy(staleness=...). In a loop of your own train with a "
            "plain optimizer, without the strategy, and use tf_byteps.OuterSync, or "
            "push_pull(enable_async=True)"
        )
    if batch.is_local:
        return [_own(gradient, strategy) for gradient in gradients]
    return reducing.reduce_gradients(gradients, variables, _reduction(), scope)


def _own(gradient: Gradient, strategy: tf.distribute.Strategy) -> Any:
    """This worker's gradient in the form that a reduced one has."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    if strategy.sparse_as_dense:
        return tf.convert_to_tensor(gradient)
    return slices.merged(gradient) if strategy.merge_repeated_rows else gradient


def start_reductions(gradients: Sequence[Gradient], variables: Sequence[Variable]) -> Any:
    """Starts what `reduce_gradients` does, under the same names.

    Args:
        gradients: see `reduce_gradients`.
        variables: what they are gradients of: `keras.Variable`.

    Returns:
        The list of `StartedReduction`; `None` stays.
    """
    return reducing.start_reductions(gradients, variables, _reduction())


def _reduction() -> Any:
    """Averages in a Keras step, and in the scope; in `strategy.run` of a loop of the user's the
    sums that `tf.distribute` promises."""
    strategy = tf.distribute.get_strategy()
    backup_workers = getattr(strategy, "backup_workers", 0)
    is_sum = local_batch.current() is None and not tf.distribute.in_cross_replica_context()
    return Reduction(
        Sum if is_sum and not backup_workers else Average,
        compression=getattr(strategy, "compression", Compression.none),
        sparse_as_dense=getattr(strategy, "sparse_as_dense", False),
        backup_workers=backup_workers,
        merge_repeated_rows=getattr(strategy, "merge_repeated_rows", True),
    )
