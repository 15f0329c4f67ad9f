"""Who scales the losses of a step by the number of workers: Keras and tf_byteps, or the user.

Two conventions meet in `Model.fit`. A program for one process takes means over its rows and knows
nothing of workers. A program written by `tf.distribute`'s guide divides its losses by
`num_replicas_in_sync`, or lets `tf.nn.compute_average_loss` and `tf.nn.scale_regularization_loss`
do it. Which one a step follows shows while it is traced: it asks for the number of replicas, or it
does not. Losses that Keras reduces in the same step must have the same unit as the user's. If one
of them was there before the user asked, the step is traced again.
"""

import contextlib
import logging
import pathlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

import tf_byteps
from tf_byteps.ops import names
from tf_byteps.private.keras import Trainer
from tf_byteps.private.keras_tensorflow import TensorFlowTrainer
from tf_byteps.private.tensorflow import distribute_lib

_logger = logging.getLogger("tf_byteps")
_LIBRARIES = tuple(f"{pathlib.Path(str(each.__file__)).parent}/" for each in (tf, keras, tf_byteps))

_local = threading.local()

# Model -> {name of its step: LossScaling}.
_of_models = weakref.WeakKeyDictionary()


class TraceAgain(BaseException):  # noqa: N818 (no error, and no `except Exception` may take it)
    """Ends the trace of a step that began with the wrong convention."""


@contextlib.contextmanager
def only_building() -> Iterator[None]:
    """While a step is traced for the variables that it creates, and never run.

    They would be lost with a trace that ends by `TraceAgain`. What the trace shows is kept for the
    next one.
    """
    _local.is_building = True
    try:
        yield
    finally:
        _local.is_building = False


def trace_again() -> None:
    """Has the present trace begin anew, if it is for a step that will run.

    Raises:
        TraceAgain: it is.
    """
    if not getattr(_local, "is_building", False):
        raise TraceAgain


class LossScaling:
    """How the losses of one kind of step of a model are scaled.

    Args:
        step: the step, in words that a message can use.
        is_custom: whether the user has written a part of it.
    """

    def __init__(self, step: str, is_custom: bool) -> None:
        self._step = step
        self._is_custom = is_custom
        self._is_by_user = False
        self._place: str | None = None  # where this trace has asked for the number of replicas
        self._is_used = False  # whether this trace depends on the answer
        self._has_updated = False
        self._traces_given_up = 0
        self._was_reported = False

    @property
    def is_by_user(self) -> bool:
        """Whether a mean over the worker's rows is divided by the number of workers."""
        self._is_used = True
        return self._is_by_user

    @contextlib.contextmanager
    def deciding(self) -> Iterator[Any]:
        """Around the step while it is traced, or run eagerly.

        Raises:
            TraceAgain: to be called again, with the other convention.
        """
        self._place, self._is_used, self._has_updated = None, False, False
        yield
        if self._place is None and self._is_by_user:
            self._change(False)
        if self._is_custom and not self._was_reported:
            self._was_reported = True
            _logger.info("%s %s", self._step, self._explanation())

    def updates(self) -> None:
        """Notes that the step updates weights."""
        self._has_updated = True

    def scaled_by_user(self) -> None:
        """Notes that the user's code scales a loss.

        Raises:
            ValueError: the step has updated weights with a loss that was not scaled.
            TraceAgain: the step is to be traced again.
        """
        if self._place is not None:
            return
        self._place = names.call_site()
        if self._has_updated:
            raise self._mixed("after it has updated weights with a loss that it did not scale")
        if not self._is_by_user:
            self._change(True)

    def _change(self, is_by_user: bool) -> None:
        self._is_by_user = is_by_user
        if not self._is_used:
            return
        if tf.executing_eagerly():
            raise self._mixed("after Keras has reduced another one, and runs eagerly")
        self._traces_given_up += 1
        if self._traces_given_up > 2:
            raise self._mixed("in some of its traces only")
        trace_again()

    def _mixed(self, when: str) -> ValueError:
        place = "" if self._place is None else f" ({self._place})"
        return ValueError(
            f"{self._step} scales a loss by the number of replicas{place} {when}. Write all losses "
            "as means over the rows that the step is given, as for one process: BytePSStrategy "
            "weights each worker's gradients by its rows. Or scale all of them, as tf.distribute's "
            "guide does"
        )

    def _explanation(self) -> str:
        if self._place is None:
            return (
                "does not ask for the number of replicas: each loss is taken for a mean over the "
                "worker's rows, and gradients are averaged with the rows as weights"
            )
        return f"scales its losses by the number of replicas ({self._place}): gradients are summed"


def of_step(model: keras.Model, is_training: bool) -> LossScaling:
    """The `LossScaling` of a model's `train_step`, or of its `test_step`."""
    scalings = _of_models.setdefault(model, {})
    name = "train_step" if is_training else "test_step"
    if name not in scalings:
        own = type(model)
        is_custom = is_training and (
            own.train_step is not TensorFlowTrainer.train_step
            or own.compute_loss is not Trainer.compute_loss
        )
        scalings[name] = LossScaling(f"{own.__name__}.{name}", is_custom)
    return scalings[name]


def retrying(function: Callable[..., Any]) -> Any:
    """A function of one argument that traces a step, and again where the step asks for it."""

    def call(argument: object) -> Any:
        while True:
            try:
                return function(argument)
            except TraceAgain:
                continue

    return call


def is_asked_by_user() -> bool:
    """Whether the number of replicas is asked for by the user's code, not by a library for itself.

    To be called by the property that is read.
    """
    frame = sys._getframe(2)
    if frame.f_code.co_filename == distribute_lib.__file__:  # ReplicaContext.num_replicas_in_sync
        frame = frame.f_back
    return not frame.f_code.co_filename.startswith(_LIBRARIES)
