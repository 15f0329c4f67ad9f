"""Training loops in the scope without `strategy.run`: those that are written for one process.

    with strategy.scope():
        for x, y in batches:
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

Each worker feeds what the program feeds: the same batch on all, or its own. Gradients are averaged
over the workers where the tape returns them (see `tapes`), so that the first is what one process
shows, and the second is data-parallel training on all their rows. What the optimizer then gets is
the same everywhere, and it updates as in a replica.
"""

from __future__ import annotations

import logging
import threading
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.gradients import updates
from tf_byteps.gradients.replica import in_our_scope
from tf_byteps.private.tensorflow import tape_record as record
from tf_byteps.strategy.step.gradients import reduce_gradients
from tf_byteps.types import Variable

_logger = logging.getLogger("tf_byteps")
_local = threading.local()
_was_reported = False


def enter_tape(original: Callable[..., Any], tape: tf.GradientTape) -> Any:
    """`tf.GradientTape.__enter__`: what was created before is worker 0's from here on."""
    if in_our_scope() and runtime.size() > 1:
        with tf.init_scope():
            tf.distribute.get_strategy().extended.synchronize_new_variables()
    return original(tape)


def is_building() -> bool:
    """Whether a variable that is created now is used by a loop's first step at once."""
    return (
        in_our_scope()
        and runtime.size() > 1
        and tf.executing_eagerly()
        and record.could_possibly_record()
    )


def averaged(gradients: list[Any], variables: list[tf.Variable]) -> list[Any]:
    """The workers' averages of what a tape returns in the scope.

    Args:
        gradients: a list of `tf.Tensor` or `tf.IndexedSlices`.
        variables: what they are gradients of.

    Returns:
        The list of the same kinds, shapes and dtypes.
    """
    if not gradients:
        return []
    _tell(gradients)
    _averaged().update((id(each), weakref.ref(each)) for each in variables)
    return reduce_gradients(gradients, variables)


def apply(
    original: Callable[..., Any],
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Any],
    variables: Sequence[Variable] | None,
) -> None:
    """`BaseOptimizer.apply` in the scope, outside of any replica."""
    gradients = list(gradients)
    variables = list(variables or optimizer._trainable_variables)
    by_other_means = [
        i
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
        if gradient is not None and not _is_averaged(variable)
    ]
    if by_other_means and runtime.size() > 1:
        reduced = reduce_gradients(
            [gradients[i] for i in by_other_means], [variables[i] for i in by_other_means]
        )
        for i, gradient in zip(by_other_means, reduced, strict=True):
            gradients[i] = gradient

    def update() -> None:
        with updates.updating(optimizer, variables, reduced=True):
            original(optimizer, gradients, variables)

    tf.distribute.get_strategy().extended.call_for_each_replica(update)


def _averaged() -> dict[int, weakref.ref]:
    """id -> reference: the variables whose gradients tapes have given this thread."""
    if not hasattr(_local, "averaged"):
        _local.averaged = {}
    return _local.averaged


def _is_averaged(variable: Variable) -> bool:
    variable = variable.value if isinstance(variable, keras.Variable) else variable
    reference = _averaged().get(id(variable))
    return reference is not None and reference() is variable


def _tell(gradients: list[Any]) -> None:
    """Says once what the workers feed, as far as it can be seen."""
    global _was_reported
    if _was_reported:
        return
    _was_reported = True
    if not tf.executing_eagerly():
        _logger.info(
            "a training loop in the scope without strategy.run: gradients are averaged over the "
            "workers, which feed all the same batch, or each its own"
        )
        return
    digest = 0
    for each in gradients:
        digest = zlib.crc32(tf.convert_to_tensor(each).numpy().tobytes(), digest)
    if len(set(gather_objects("gradients of a loop in the scope", digest))) == 1:
        _logger.info(
            "a training loop in the scope without strategy.run: all workers feed the same batch, "
            "and each computes all of it, so that more workers are no faster. To give each its "
            "part, loop over strategy.experimental_distribute_dataset(dataset)"
        )
    else:
        _logger.info(
            "a training loop in the scope without strategy.run: each worker feeds its own batch, "
            "and gradients are averaged over the workers"
        )
