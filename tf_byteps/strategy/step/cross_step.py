"""Training across steps: an update is done by the step after the one that computed it.

A step of Keras ends with its updates, so that it lasts until the last gradient's sum has come, and
the network is idle while the next step computes forward. Here a step ends when its gradients are on
the way. The next one begins with the updates, each of which waits for its own sum; a layer's
forward pass waits for nothing but the update of its own variables, because TensorFlow orders
operations by the variable that they use. The mathematics is that of plain steps.

There are three traced functions: `first` computes and starts the exchanges, `steady` updates before
it does the same, and the flush only updates. Which one runs is decided in Python: a `tf.cond`
around the updates would wait for all of them.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule

from tf_byteps.gradients import updates
from tf_byteps.ops import compiling, split
from tf_byteps.ops.compiled import wait_scheduling
from tf_byteps.private.tensorflow import ResourceVariable
from tf_byteps.strategy.step import cross_step_support
from tf_byteps.strategy.step.gradients import start_reductions
from tf_byteps.types import Gradient, Variable

_local = threading.local()


@contextlib.contextmanager
def training(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> Iterator[Any]:
    """Within it, a model's train function works across steps, if its strategy wants that.

    At the end nothing is left to update: also if the training ends by an exception, or a warning
    says what is lost.

    Args:
        model: a `keras.Model` of a `BytePSStrategy`, compiled.
        callbacks: the list of `keras.callbacks.Callback` that the training has.
    """
    flush()
    outer = getattr(_local, "training", None)
    _local.training = mine = _Training(model, callbacks)
    try:
        yield
        flush()
    except BaseException:
        mine.rescue()
        raise
    finally:
        _local.training = outer


def prepare(model: keras.Model) -> None:
    """Lets the train function that a model is about to use work across steps, if it can."""
    current = getattr(_local, "training", None)
    if current is not None and current.model is model:
        current.prepare()


def flush() -> None:
    """Does the updates that are left, if this thread trains a model across steps.

    To be called before anybody sees a weight.
    """
    current = getattr(_local, "training", None)
    if current is not None and current.steps is not None:
        current.steps.flush()


def flush_before_use(variable: keras.Variable) -> None:
    """The same if a variable takes part in the updates that are left.

    Args:
        variable: a `keras.Variable`.
    """
    current = getattr(_local, "training", None)
    if current is not None and current.steps is not None and tf.executing_eagerly():
        current.steps.flush_before_use(variable)


def defer(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Gradient],
    variables: Sequence[Variable] | None,
) -> bool:
    """Starts the exchanges of an update, for a step that leaves the update to the next one.

    Args:
        optimizer: a Keras optimizer.
        gradients: see `BaseOptimizer.apply`.
        variables: see `BaseOptimizer.apply`.

    Returns:
        Whether it has: if not, the update is to be done now.
    """
    steps = getattr(_local, "computing", None)
    if steps is None or steps.optimizer is not optimizer:
        return False
    steps.start(list(gradients), list(variables or optimizer._trainable_variables))
    return True


def own_learning_rate(optimizer: keras.optimizers.Optimizer) -> Any:
    """The learning rate of the step whose update is done now; `None` if it is the current one."""
    steps = getattr(_local, "updating", None)
    if steps is None or steps.optimizer is not optimizer:
        return None
    return steps.learning_rate


class _Training:
    """A call of `fit`."""

    def __init__(self, model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self.model = model
        strategy = model.distribute_strategy
        self.steps = None
        self._is_wanted = strategy.cross_step and strategy.num_replicas_in_sync > 1
        self._waits = any(map(cross_step_support.may_read_weights, callbacks))

    def prepare(self) -> None:
        if not self._is_wanted:
            return
        self._is_wanted = False  # `train_on_batch` in a callback asks again
        model: Any = self.model  # Keras declares its functions as None
        reason = cross_step_support.why_not(model)
        if reason:
            warnings.warn(f"cross_step=True has no effect in this training: {reason}", stacklevel=6)
            return
        if not isinstance(model.train_function, CrossSteps):
            model.train_function = CrossSteps(model, model.train_function)
        self.steps = model.train_function
        self.steps.waits = self._waits

    def rescue(self) -> None:
        """The training ends by an exception, which nothing here may hide."""
        if self.steps is not None:
            with contextlib.suppress(Exception):  # there has been a warning
                self.steps.flush()


class CrossSteps:
    """A train function that works across steps.

    Args:
        model: a compiled and built `keras.Model` that `cross_step_support.why_not` has nothing
            against.
        plain: Keras's own train function, for calls outside of `fit`.
    """

    def __init__(self, model: keras.Model, plain: Callable[..., Any]) -> None:
        split.prepare_gpus()
        self.optimizer = model.optimizer
        #: Whether each call does its updates itself, because a callback may look at the weights.
        self.waits = False
        self.learning_rate = None  # while an update is traced
        self._model = model
        self._plain = plain
        self._first = model._make_function(_Step(self, model, updates_before=False))
        self._steady = model._make_function(_Step(self, model, updates_before=True))
        # What `_first` leaves of several steps in an execution.
        self._rest = model._make_function(_Step(self, model, updates_before=True))
        self._flush = tf.function(self._flush_in_replica, autograph=False)
        self._pending = False
        self._sums: Any = None  # the `StartedReduction`s of a step, known when one has been traced
        self._variables: Any = None
        kept = [*self.optimizer._trainable_variables, *self.optimizer.variables]
        self._used = {id(v) for v in kept} - {id(self.optimizer._learning_rate)}
        with tf.init_scope():
            # Not `tf.Variable`: the workers need not agree about it.
            self._kept_rate: Any = ResourceVariable(
                0.0, dtype=keras.config.floatx(), trainable=False
            )

    def __call__(self, iterator: Iterator[Any]) -> Any:
        current = getattr(_local, "training", None)
        if current is None or current.steps is not self:
            return self._plain(iterator)
        pending, self._pending = self._pending, False
        before = split.starts_and_waits()
        try:
            logs = self._run(iterator, pending)
        except BaseException:
            if split.starts_and_waits() != before:
                self._lose("the next step failed when it had begun with them")
            else:
                self._pending = pending  # there was no batch
            raise
        self._pending = True
        if self.waits:
            self.flush()
        return logs

    def _run(self, iterator: Iterator[Any], pending: bool) -> Any:
        if pending:
            return self._steady(iterator)
        steps = self._model.steps_per_execution
        if steps == 1:
            return self._first(iterator)
        with self._steps_per_execution(1):
            logs = self._first(iterator)
        before = split.starts_and_waits()
        with self._steps_per_execution(steps - 1):
            try:
                return self._rest(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if split.starts_and_waits() != before:
                    raise
                return logs  # the input has ended after this one

    @contextlib.contextmanager
    def _steps_per_execution(self, steps: int) -> Iterator[Any]:
        """Keras's functions look at it when they are traced."""
        before = self._model.steps_per_execution
        self._model.steps_per_execution = steps
        try:
            yield
        finally:
            self._model.steps_per_execution = before

    def _lose(self, why: str) -> None:
        if self._sums is not None:
            split.forget(each.name for each in self._sums if each is not None)
        warnings.warn(
            "updates that cross_step=True has left to the next step are lost, or done in part, on "
            f"this worker: {why}",
            stacklevel=2,
        )

    def flush(self) -> None:
        """Does the updates that are left."""
        if not self._pending:
            return
        self._pending = False
        try:
            self._flush()
        except BaseException as error:
            self._lose(f"{type(error).__name__} came before them")
            raise

    def flush_before_use(self, variable: keras.Variable) -> None:
        """The same if a `keras.Variable` takes part in them."""
        if self._pending and id(variable) in self._used:
            self.flush()

    # In the traced functions.

    @contextlib.contextmanager
    def computing(self) -> Iterator[Any]:
        """Within it the optimizer's update is left to the next step."""
        _local.computing = self
        try:
            yield
        finally:
            _local.computing = None

    def start(self, gradients: Sequence[Gradient], variables: Sequence[keras.Variable]) -> None:
        sums = start_reductions(gradients, variables)
        if self._sums not in (None, sums):
            raise RuntimeError(
                "cross_step=True needs the same gradients in every step, but this step has "
                f"{sums}, after {self._sums}: train without it"
            )
        self._sums, self._variables = sums, variables
        if self._keeps_rate:
            self._kept_rate.assign(tf.cast(self.optimizer.learning_rate, self._kept_rate.dtype))

    def update(self) -> None:
        """The updates of the step before, each as soon as its gradient's sum is there."""
        gradients = [None if each is None else each.wait() for each in self._sums]
        self.learning_rate = self._kept_rate.read_value() if self._keeps_rate else None
        _local.updating = self
        try:
            with updates.updating(self.optimizer, self._variables, reduced=True):
                self.optimizer.apply(gradients, self._variables)
        finally:
            _local.updating = None

    def wait_late(self, begin: int) -> None:
        """See `wait_scheduling.place_late`: XLA does not know what needs which update."""
        graph = tf.compat.v1.get_default_graph()
        pairs = zip(self._sums, self._variables, strict=True)
        handles = {s.name: graph.capture(v.value.handle) for s, v in pairs if s is not None}
        wait_scheduling.place_late(handles, begin)

    @property
    def _keeps_rate(self) -> bool:
        """A schedule follows `iterations`, which is part of the update."""
        return not isinstance(self.optimizer._learning_rate, LearningRateSchedule)

    def _flush_in_replica(self) -> None:
        strategy = self._model.distribute_strategy
        with strategy.scope():
            strategy.extended.call_for_each_replica(self.update)


class _Step:
    """What Keras makes a train function of. It looks like the model's own `train_step`."""

    __name__ = "train_step"

    def __init__(self, steps: CrossSteps, model: keras.Model, updates_before: bool) -> None:
        self.__self__ = model
        self._steps = steps
        self._updates_before = updates_before

    def __call__(self, data: object) -> Any:
        # Nothing of a step may be done before it has its data.
        tensors = filter(tf.is_tensor, tf.nest.flatten(data, expand_composites=True))
        with tf.control_dependencies(list(tensors)):
            if self._updates_before:
                self._steps.update()
            data = tf.nest.map_structure(_identity, data, expand_composites=True)
        begin = len(tf.compat.v1.get_default_graph().get_operations())
        with self._steps.computing():
            logs = self.__self__.train_step(data)
        if self._updates_before and compiling.is_compiled():
            self._steps.wait_late(begin)
        return logs


def _identity(value: object) -> Any:
    return tf.identity(value) if tf.is_tensor(value) else value
