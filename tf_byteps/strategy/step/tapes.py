"""`tf.GradientTape.gradient` where a `BytePSStrategy` is at work.

* In a Keras step it returns this worker's gradients, which the optimizer reduces, or those of the
  whole batch if the step computes with them (see `gradient_uses`).
* In the scope, outside of any replica, a loop of the user's own trains on what each worker feeds:
  all the same rows, or each its own. Gradients of variables are averaged over the workers as soon
  as the tape returns them. Of equal gradients that is each of them.
* In `strategy.run` it is TensorFlow's: by tf.distribute's contract a replica's own.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.gradients.replica import in_our_scope
from tf_byteps.ops.custom_gradients import custom_gradient
from tf_byteps.private.tensorflow import tape_record as record
from tf_byteps.strategy.step import branches, gradient_uses, local_batch, loops
from tf_byteps.strategy.step.gradients import reduce_gradients
from tf_byteps.strategy.step.losses import divided_by_share

_local = threading.local()


def gradient(
    original: Callable[..., Any],
    tape: tf.GradientTape,
    target: Any,
    sources: object,
    output_gradients: object = None,
    *args: object,
    **kwargs: object,
) -> Any:
    """`tf.GradientTape.gradient`."""
    if getattr(_local, "is_inside", False):  # a tape of `tf.recompute_grad`, or of a jacobian
        return original(tape, target, sources, output_gradients, *args, **kwargs)
    is_of_losses = _is_of_losses(target, sources, output_gradients)
    batch = local_batch.current()
    uses = None if batch is None else batch.gradients
    if batch is not None and is_of_losses and not (uses is not None and uses.are_divided):
        output_gradients = tf.nest.map_structure(lambda t: _seed(t, batch), target)
    with _inside():
        result = original(tape, target, sources, output_gradients, *args, **kwargs)
    if uses is None and not (in_our_scope() and runtime.size() > 1):
        return result
    gradients = list(tf.nest.flatten(result))
    of_weights = {
        i: variable
        for i, variable in enumerate(map(_variable, tf.nest.flatten(sources)))
        if variable is not None and variable.trainable and gradients[i] is not None
    }
    mine = [gradients[i] for i in of_weights], list(of_weights.values())
    if uses is None:
        changed = loops.averaged(*mine)
    else:
        changed = [uses.returned(each, is_of_losses) for each in _of_step(uses, *mine)]
    for i, each in zip(of_weights, changed, strict=True):
        gradients[i] = each
    return tf.nest.pack_sequence_as(sources, gradients)


def jacobian(original: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """`tf.GradientTape.jacobian`, which asks for gradients in a loop: they stay as they are."""
    with _inside():
        return original(*args, **kwargs)


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    before = getattr(_local, "is_inside", False)
    _local.is_inside = True
    try:
        yield
    finally:
        _local.is_inside = before


def _is_of_losses(target: Any, sources: object, output_gradients: object) -> bool:
    """Whether it is the gradient of the sum of a tensor's elements, with respect to variables."""
    return (
        output_gradients is None
        and all(_variable(each) is not None for each in tf.nest.flatten(sources))
        and any(tf.convert_to_tensor(each).shape.rank != 0 for each in tf.nest.flatten(target))
    )


def _seed(target: Any, batch: local_batch.LocalBatch) -> Any:
    ones = tf.ones_like(target)
    return ones if ones.shape.rank == 0 else divided_by_share(ones, batch)


def _variable(source: object) -> tf.Variable | None:
    if isinstance(source, keras.Variable):
        source = source.value
    return source if isinstance(source, tf.Variable) else None


def _of_step(
    uses: gradient_uses.GradientUses, gradients: list[Any], variables: list[tf.Variable]
) -> list[Any]:
    before = [uses.calls_before(variable) for variable in variables]
    if not uses.are_reduced:
        return gradients
    results = list(gradients)
    # A variable's second gradient in a step may be in flight together with its first.
    for call in sorted(set(before)):
        now = [
            i for i, each in enumerate(before) if each == call and not is_overwritten(variables[i])
        ]
        reduced = whole_batch(
            [gradients[i] for i in now],
            [variables[i] for i in now],
            "" if call == 0 or tf.executing_eagerly() else f"tape {call + 1}",
        )
        for i, each in zip(now, reduced, strict=True):
            results[i] = each
    return results


def handed_to_optimizer(gradients: list[Any], variables: list[Any]) -> tuple[list[Any], bool]:
    """What an optimizer in a replica updates with.

    Args:
        gradients: what the program gives it, a list of `tf.Tensor`, `tf.IndexedSlices` or `None`.
        variables: what they are gradients of, `keras.Variable` or `tf.Variable`.

    Returns:
        The list of gradients, and whether they are the whole batch's. Otherwise they are this
        worker's contributions to averages.
    """
    batch = local_batch.current()
    if batch is None:
        branches.warn_of_update()
        return gradients, False
    batch.scaling.updates()
    uses = batch.gradients
    if uses is None:
        return local_batch.weighted(gradients, variables), False
    uses.branches.updates()
    if not uses.are_reduced:
        passed_on = [
            None if gradient is None else uses.handed_over(gradient, _variable(variable))
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        return local_batch.weighted(passed_on, variables), False
    own = [
        i
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
        if gradient is not None
        and not is_overwritten(variable)
        and not uses.is_reduced(gradient, _variable(variable))
    ]
    for i, each in zip(
        own, whole_batch([gradients[i] for i in own], [variables[i] for i in own]), strict=True
    ):
        gradients[i] = each
    return gradients, True


def reduced_by_program(value: Any, reduce: Callable[[Any], Any]) -> Any:
    """What a program gets that reduces a value over the replicas itself.

    Args:
        value: a `tf.Tensor`, `tf.IndexedSlices` or what converts to one.
        reduce: a function of it.

    Returns:
        What the function returns; of a gradient that is the whole batch's already, that gradient,
        as in one process.
    """
    batch = local_batch.current()
    uses = None if batch is None else batch.gradients
    if uses is not None:
        if uses.are_reduced and uses.is_returned(value):
            return value
        uses.exchanged_by_program(value)
    return reduce(value)


def whole_batch(gradients: list[Any], variables: list[Any], scope: str = "") -> list[Any]:
    """The gradients of the whole batch, of which each worker has those of its rows.

    Gradients flow through it: what a worker's loss has from a gradient of the whole batch comes
    from all workers' rows, each with its weight.

    Args:
        gradients: a list of `tf.Tensor`, `tf.IndexedSlices` or `None`: of the Keras step's losses.
        variables: what they are gradients of, `keras.Variable` or `tf.Variable`.
        scope: a prefix of the exchanges' names.

    Returns:
        The list of the same kinds, shapes and dtypes.
    """
    if not record.could_possibly_record():
        weighted = local_batch.weighted(gradients, variables)
        return reduce_gradients(weighted, variables, scope)

    def weigh(value: Any) -> Any:
        return local_batch.weighted([value], [None])[0]

    sent = [_passed(each, weigh, tf.identity) for each in gradients]
    reduced = reduce_gradients(sent, variables, scope)
    return [_passed(each, tf.identity, weigh) for each in reduced]


def _passed(value: Any, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """`forward(value)`, whose gradient is what `backward` makes of its own."""
    if value is None:
        return None
    if isinstance(value, tf.IndexedSlices):
        values = _passed(value.values, forward, backward)
        return tf.IndexedSlices(values, value.indices, value.dense_shape)

    @custom_gradient
    def pass_on(tensor: tf.Tensor) -> Any:
        return forward(tensor), backward

    return pass_on(value)
