"""A training or evaluation step of this worker's rows, while JAX traces it.

Rows are static: the batch comes with an empty array whose shape says how many rows the worker and
the whole batch have. So another length of the last batch is another program, and no exchange is
needed to know how much the worker counts.
"""

import collections
import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.jax import batches

_local = threading.local()
# A function that is jitted by itself, and called by steps, is traced in each: rows are static.
# Steps that run at once share what was traced, or each would compile all of `jax.numpy` again.
_traced_step = jax.make_user_context(None)
# Model -> by what such steps have in common: `Step.at_origin`, which tracing finds.
_at_origin: weakref.WeakKeyDictionary[Any, dict[Any, set[int]]] = weakref.WeakKeyDictionary()


class Spread(NamedTuple):
    """A trainable value that has been spread over the workers (see `origins`).

    Attributes:
        value: as the step has it.
        within: the trace that it was spread in. The result is valid there alone.
        result: what the model reads.
    """

    value: Any
    within: Any
    result: Any


@dataclasses.dataclass(eq=False)
class Step:
    """What is traced. JAX keeps it with what it has traced, so it does not keep its model alive.

    Attributes:
        model_reference: a weak one, to the `keras.Model`.
        rows: of this worker's piece; 0: it computes with a row that counts nothing.
        all_rows: of the batch.
        is_training: whether it is a training step.
        is_reduced: whether its optimizer has reduced the gradients already.
        names: exchanges so far, by name.
        spread: trainable values that have been spread, by their ids.
        reduced: gradients of the whole batch, by their ids.
        at_origin: ids of variables whose gradients have been reduced where they came to be.
    """

    model_reference: weakref.ref[Any]
    rows: int
    all_rows: int
    is_training: bool
    is_reduced: bool = False
    names: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    spread: dict[int, Spread] = dataclasses.field(default_factory=dict)
    reduced: dict[int, Any] = dataclasses.field(default_factory=dict)
    at_origin: set[int] = dataclasses.field(default_factory=set)

    @property
    def model(self) -> Any:
        """The `keras.Model`."""
        model = self.model_reference()
        assert model is not None, "the model is gone"  # its step is traced
        return model

    @property
    def share(self) -> float:
        """This worker's share of the batch's rows."""
        return self.rows / self.all_rows

    def numbered(self, name: str) -> str:
        """`name`, with `#1`, `#2`, ... for its further uses in the step."""
        self.names[name] += 1
        index = self.names[name] - 1
        return f"{name}#{index}" if index else name


class Marked(NamedTuple):
    """A piece of a batch, and an empty array of shape [rows of the batch, own rows, 0]."""

    piece: Any
    rows: Any


def current() -> Step | None:
    """The step that this thread traces, of a model of a `BytePSStrategy` with several workers."""
    return getattr(_local, "step", None)


@contextlib.contextmanager
def _tracing(step: Step, is_at_once: bool) -> Iterator[None]:
    key: Any = step
    if is_at_once:
        numbers = (step.rows, step.all_rows, step.is_training, runtime.size(), runtime.rank())
        key = (step.model_reference, *numbers)
        known = _at_origin.setdefault(step.model, {})
        step.at_origin = known.setdefault(numbers, step.at_origin)
    outer, _local.step = current(), step
    try:
        with _traced_step(key):
            yield
    finally:
        _local.step = outer
        step.spread.clear()  # values of a trace
        step.reduced.clear()


def marking(model: keras.Model, step_function: Callable[..., Any]) -> Callable[..., Any]:
    """A step's function that gets the rows with the batch, for `traced` to find them.

    Args:
        model: the `keras.Model`.
        step_function: of Keras: takes a state and a batch; compiled or not.
    """

    def call(state: object, piece: object) -> Any:
        rows = batches.take_rows()
        if rows is None:
            return step_function(state, piece)
        own, every = rows
        batches.note_last_rows(model, own)
        return step_function(state, Marked(piece, np.zeros([every, own, 0], np.bool_)))

    return call


def traced(model: keras.Model, step: Callable[..., Any], is_training: bool) -> Callable[..., Any]:
    """A model's `train_step` or `test_step` as a step of this worker's rows.

    Args:
        model: the `keras.Model`.
        step: its method.
        is_training: whether it is `train_step`.
    """

    def call(state: Sequence[Any], data: object) -> Any:
        if not isinstance(data, Marked):
            return step(state, data)
        every, own, _ = data.rows.shape
        leaves = jax.tree.leaves((state, data))
        is_at_once = not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        step_of = Step(weakref.ref(model), own, every, is_training)
        with _tracing(step_of, is_at_once):
            logs, after = step(state, data.piece)
        return logs, after if own else _without_own_rows(model, state, after)

    return call


def _without_own_rows(model: keras.Model, before: Sequence[Any], after: Sequence[Any]) -> Any:
    """The state after a step without rows: what follows a worker's rows stays as it was."""
    kinds = variable_kinds.OF_OWN_ROWS
    kept = {id(variable) for variable in variable_kinds.variables(model, *kinds)}
    non_trainable = [
        old if id(variable) in kept else new
        for variable, old, new in zip(
            model.non_trainable_variables, before[1], after[1], strict=True
        )
    ]
    return (after[0], non_trainable, *after[2:-1], before[-1])


def offset_of_seeds() -> int:
    """What this worker adds to the seeds of a step."""
    # Odd and large, see strategy.step.noise.
    return runtime.rank() * 0x3C6EF373 % (2**31 - 1)
