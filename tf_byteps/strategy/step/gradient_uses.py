"""What a training step does with the gradients that a tape gives it.

A worker's gradients are those of its own rows. The common step hands them to an optimizer as they
are, and the optimizer reduces them over the workers when it updates. Whatever else a program does
with them (clip them by their norm, take their signs, log them, step up and down again, update
weights by hand) shows what one process shows only if they are the whole batch's.

Which kind a step is shows while it is traced: it hands an optimizer other tensors than
`tape.gradient` returned, or something else consumes these. Then it is traced again, and
`tape.gradient` itself returns gradients that are reduced (see `tapes`). What a step does that runs
eagerly is not known before it is done, so that there they are always reduced by `tape.gradient`.

A program that reduces gradients itself, with `all_reduce` of the replica context as tf.distribute's
guides do, is left alone. Only steps with code of the user's are looked at. It costs two operations
a gradient while the step is traced, and none when it runs. Where a step runs eagerly, and asks for
the gradient of a tensor of losses, its operations are looked at: one that divides by the worker's
rows is refused.
"""

import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.exchange.optimizers import with_inner
from tf_byteps.ops import names
from tf_byteps.private.keras import Trainer
from tf_byteps.private.keras_tensorflow import TensorFlowTrainer
from tf_byteps.private.tensorflow import op_callbacks
from tf_byteps.strategy.step import origins
from tf_byteps.strategy.step.branches import Branches
from tf_byteps.strategy.step.scaling import trace_again

Gradient = tf.Tensor | tf.IndexedSlices

_DIVISIONS = ("RealDiv", "DivNoNan")

_logger = logging.getLogger("tf_byteps")

# Model -> GradientUses of its `train_step`.
_of_models: weakref.WeakKeyDictionary[keras.Model, "GradientUses"] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class _Returned:
    """A gradient that `tape.gradient` has returned in the present trace.

    Attributes:
        gradient: what the program got.
        place: where the program asked for it.
        is_of_losses: whether it is the gradient of a tensor of losses, and so a sum over rows.
        handed_over: the operations by which it went to optimizers.
    """

    gradient: Gradient
    place: str
    is_of_losses: bool
    handed_over: set[tf.Operation] = dataclasses.field(default_factory=set)


class GradientUses:
    """What one kind of step of a model does with its gradients, in all its traces.

    Attributes:
        are_reduced: whether `tape.gradient` returns the gradients of the whole batch.
        are_divided: whether the step divides the gradients of tensors of losses by its rows.
        branches: those around its updates.

    Args:
        step: the step, in words that a message can use.
    """

    def __init__(self, step: str) -> None:
        self.are_reduced = False
        self.are_divided = False
        self.branches = Branches()
        self._step = step
        self._was_reported = False
        self._reduced: dict[int, weakref.ref[tf.Variable]] = {}  # where a tape reduced gradients
        self._begin()

    def _begin(self) -> None:
        self._returned: dict[int, _Returned] = {}
        self._calls: dict[int, int] = {}
        self._reduces_itself = False
        self._is_given_up = False
        self._watches_operations = False  # of the step, which runs eagerly
        self._rows: tf.Tensor | int | None = None

    @contextlib.contextmanager
    def deciding(self, rows: tf.Tensor | int) -> Iterator[list[Any]]:
        """Around the step while it is traced, or run eagerly.

        Args:
            rows: of this worker's piece.

        Yields:
            A list, to which what the step returns is to be added.

        Raises:
            TraceAgain: to be called again; `are_reduced` or `are_divided` has changed.
            ValueError: what the step does cannot be made right.
        """
        self._begin()
        self._rows = rows
        if tf.executing_eagerly():
            self.are_reduced = True
        results: list[Any] = []
        try:
            yield results
            if not (self.are_reduced or self._reduces_itself or self._is_given_up):
                self._look_for_other_uses(results)
        finally:
            if self._watches_operations:
                op_callbacks.remove_op_callback(self._look_at_operation)
            self._begin()

    # What hooks report.

    def calls_before(self, variable: tf.Variable) -> int:
        """How often a tape was asked for a variable's gradient in this trace; counts this call."""
        before = self._calls.get(id(variable), 0)
        self._calls[id(variable)] = before + 1
        if self.are_reduced:
            self._reduced[id(variable)] = weakref.ref(variable)
        return before

    def returned(self, gradient: Gradient, is_of_losses: bool) -> Gradient:
        """Notes what a tape returns to the program.

        Returns:
            The gradient, which nothing but the program consumes.
        """
        gradient = _identity(gradient)
        self._returned[id(gradient)] = _Returned(gradient, names.call_site(), is_of_losses)
        if is_of_losses and tf.executing_eagerly() and not self._watches_operations:
            self._watches_operations = True
            op_callbacks.add_op_callback(self._look_at_operation)
        return gradient

    def is_returned(self, value: object) -> bool:
        """Whether a tape has returned exactly this in the present trace."""
        return id(value) in self._returned

    def is_reduced(self, gradient: Gradient, variable: tf.Variable) -> bool:
        """Whether what an optimizer gets for a variable is the whole batch's already."""
        if not self.are_reduced:
            return False
        # A tf.function with a tape in it may have been traced before.
        reference = self._reduced.get(id(variable))
        if reference is not None and reference() is variable:
            return True
        return self._comes_from_a_tape(gradient)

    def handed_over(self, gradient: Gradient, variable: tf.Variable) -> Gradient:
        """Notes that an optimizer gets a gradient, which it will reduce.

        Raises:
            TraceAgain: it is none that a tape has returned, but made of one.
        """
        returned = self._returned.get(id(gradient))
        if returned is None:
            self._take_processed(gradient, variable)
            return gradient
        passed_on = _identity(gradient)
        returned.handed_over |= {each.op for each in _parts(passed_on)}
        return passed_on

    def exchanged_by_program(self, value: object) -> None:
        """Notes that the program reduces a value over the workers itself."""
        if not tf.executing_eagerly() and self._comes_from_a_tape(value):
            self._reduces_itself = True

    # What follows.

    def _take_processed(self, gradient: Gradient, variable: tf.Variable) -> None:
        if self.are_reduced or self._reduces_itself or id(variable) not in self._calls:
            return  # of a variable that no tape was asked for: a gradient by other means
        divided = self._divided_by_rows(gradient)
        if divided is None:
            self._reduce_first(f"an optimizer gets others than tape.gradient ({self._place()})")
        elif not self.are_divided:
            self.are_divided = True
            self._tell(
                "divides the gradient of a tensor of losses by its own rows "
                f"({divided.place}): it is taken for the gradient of a mean over rows"
            )
            self._give_up()
        else:
            divided.handed_over.add(gradient.op)

    def _look_for_other_uses(self, results: list[Any]) -> None:
        outputs = {id(each) for each in tf.nest.flatten(results, expand_composites=True)}
        for each in self._returned.values():
            others = _consumers(each.gradient) - each.handed_over
            if others or any(_leaves_graph(part, outputs) for part in _parts(each.gradient)):
                self._check_not_divided(each, others)
                self._reduce_first(f"other than hand them to an optimizer ({each.place})")

    def _check_not_divided(self, returned: _Returned, consumers: Iterable[tf.Operation]) -> None:
        if returned.is_of_losses and any(
            self._is_by_rows(each.type, each.inputs) for each in consumers
        ):
            raise self._divided(returned, "computes with the result before an optimizer gets it")

    def _look_at_operation(
        self, kind: str, inputs: Sequence[tf.Tensor], *_: object, **__: object
    ) -> None:
        """Called by TensorFlow after an operation that runs, or joins a graph."""
        if kind not in _DIVISIONS:
            return
        for each in self._returned.values():
            is_divided = any(part is inputs[0] for part in _parts(each.gradient))
            if each.is_of_losses and is_divided and self._is_by_rows(kind, inputs):
                raise self._divided(each, "runs eagerly")

    def _divided(self, returned: _Returned, what: str) -> ValueError:
        return ValueError(
            f"{self._step} divides the gradient of a tensor of losses ({returned.place}) by "
            f"the worker's own rows, and {what}. That cannot be made the gradient of the whole "
            "batch: take tf.reduce_mean of the losses before tape.gradient"
        )

    def _reduce_first(self, what: str) -> None:
        for each in self._returned.values():
            self._check_not_divided(each, _consumers(each.gradient))
        self.are_reduced = True
        self._tell(f"computes with its gradients: {what}. tape.gradient returns the whole batch's")
        self._give_up()

    def _give_up(self) -> None:
        self._is_given_up = True
        trace_again()

    def _tell(self, what: str) -> None:
        if not self._was_reported:
            self._was_reported = True
            _logger.info("%s %s", self._step, what)

    def _place(self) -> str:
        return next(iter(self._returned.values())).place if self._returned else "unknown"

    def _divided_by_rows(self, gradient: Gradient) -> _Returned | None:
        """The gradient of a tensor of losses that was divided to become this one."""
        if not isinstance(gradient, tf.Tensor) or not self._is_by_rows(
            gradient.op.type, gradient.op.inputs
        ):
            return None
        returned = self._returned.get(id(gradient.op.inputs[0]))
        return returned if returned is not None and returned.is_of_losses else None

    def _is_by_rows(self, kind: str, inputs: Sequence[tf.Tensor]) -> bool:
        return kind in _DIVISIONS and origins.is_count(inputs[1], self._rows)

    def _comes_from_a_tape(self, value: object) -> bool:
        """Whether a value is computed from what tapes have returned, as far as graphs tell."""
        if self.is_returned(value):
            return True
        if tf.executing_eagerly():
            return False
        known = {part.ref() for each in self._returned.values() for part in _parts(each.gradient)}
        parts = [p for p in tf.nest.flatten(value, expand_composites=True) if tf.is_tensor(p)]
        return any(part.ref() in known for part in origins.ancestors(parts, known))


def of_step(model: keras.Model) -> GradientUses | None:
    """The `GradientUses` of a model's training step; `None` if nothing in it is the user's code."""
    if model not in _of_models:
        own = type(model)
        optimizers = [] if model.optimizer is None else list(with_inner(model.optimizer))
        if not (
            own.train_step is not TensorFlowTrainer.train_step
            or own.compute_loss is not Trainer.compute_loss
            or any(map(_has_own_apply, optimizers))
        ):
            return None
        uses = _of_models[model] = GradientUses(f"{own.__name__}.train_step")
        # What a LossScaleOptimizer gives its inner optimizer are never the tape's tensors.
        uses.are_reduced = any(map(_has_own_apply, optimizers[1:]))
    return _of_models[model]


def _has_own_apply(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether the user's code sees the gradients before Keras's does."""
    classes = type(optimizer).__mro__
    return any(
        not each.__module__.startswith(("keras.", "tf_byteps."))
        and not {"apply", "apply_gradients"}.isdisjoint(vars(each))
        for each in classes
    )


def _parts(gradient: Gradient) -> list[tf.Tensor]:
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [gradient]


def _identity(gradient: Gradient) -> Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        values, indices = map(tf.identity, _parts(gradient))
        return tf.IndexedSlices(values, indices, gradient.dense_shape)
    return tf.identity(gradient)


def _consumers(gradient: Gradient) -> set[tf.Operation]:
    return {consumer for part in _parts(gradient) for consumer in part.consumers()}


def _leaves_graph(tensor: tf.Tensor, outputs: set[int]) -> bool:
    """Whether it is a result: of the step, or of a function or loop within it."""
    return id(tensor) in outputs or any(
        tensor is each for each in getattr(tensor.graph, "outputs", [])
    )
