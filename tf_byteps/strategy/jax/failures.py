"""A training that ends by a failed exchange: one sentence, and weights that can be read.

JAX gives a step the memory of the weights, so that they are lost with a step that fails. A copy of
them is kept on the host where each epoch begins. A GPU with enough memory copies them there first,
and brings the copy to the host beside the epoch's first steps.
"""

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.errors import ExchangeError
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.jax.errors import raised_again
from tf_byteps.jax.host_copies import copies_on_device, copies_on_host
from tf_byteps.types import Logs

_logger = logging.getLogger("tf_byteps")

# What the engine says of an exchange, among what JAX adds around it.
_SENTENCE = re.compile(r'tensor "[^"\n]*"[^\n]*')
_CODE = re.compile(
    r"\b(UNAVAILABLE|FAILED_PRECONDITION|CANCELLED|INVALID_ARGUMENT|DEADLINE_EXCEEDED)\b"
)
_KINDS = (jax.errors.JaxRuntimeError, _engine.EngineError, ExchangeError, ValueError)


class Keep(keras.callbacks.Callback):
    """Keeps a copy of the weights where an epoch begins. It comes behind the user's callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self._epoch = 0
        self._variables: list[Any] = []
        self._values: list[Any] = []
        self._on_device: list[jax.Array] | None = None
        self._has_trained = False  # so that the device's peak says what a step needs

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch
        self._values = []  # before there are others
        self._variables = _variables(self.model)
        values = [variable.value for variable in self._variables]
        self._on_device = copies_on_device(values) if self._has_trained else None
        self._values = self._on_device or copies_on_host(values)

    def on_step_begun(self) -> None:
        """To be called when a step has been given to the device: the host has time now."""
        self._has_trained = True
        on_device, self._on_device = self._on_device, None
        if on_device is not None:
            self._values = copies_on_host(on_device)

    def put_back(self) -> None:
        """Sets the variables to what they were where the epoch began."""
        if not self._values:
            return
        model: Any = self._model  # the property reads the state that is lost
        model._jax_state = None
        model._jax_state_synced = True
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(np.asarray(value))
        if runtime.config().elastic:  # goes on from its last commit
            return
        _logger.warning(
            "the weights of the model %r are those of the end of epoch %d, because JAX has given "
            "up those of the step that failed",
            model.name,
            self._epoch,
        )


def _variables(model: Any) -> list[Any]:
    variables = list(model.variables)
    for optimizer in optimizers_of(model):
        variables += optimizer.variables
    return list({id(each): each for each in [*variables, *model.metrics_variables]}.values())


@contextlib.contextmanager
def in_a_sentence(keep: Keep | None = None) -> Iterator[None]:
    """Raises JAX's error of a failed exchange again, as an `ExchangeError` of a sentence.

    Args:
        keep: of the training.
    """

    def found(error: Exception) -> ExchangeError | None:
        failure = of(error)
        if failure is not None and keep is not None:
            keep.put_back()
        return failure

    with raised_again(_KINDS, found):
        yield


def of(error: Exception) -> ExchangeError | None:
    """The error of tf_byteps that another one is about; `None`: it is about no exchange."""
    message = str(error)
    found = _SENTENCE.search(message)
    failure = _engine.worker_failure()
    if found is None and not failure:
        return None
    code = "UNAVAILABLE" if failure else getattr(error, "code", None)
    if code is None:
        named = _CODE.search(message)
        code = named[1] if named else "INTERNAL"
    raised = ExchangeError(found.group() if found else failure, code)
    setattr(raised, "byteps_lost", runtime.lost_process())  # noqa: B010  (as TensorFlow's have it)
    return raised
