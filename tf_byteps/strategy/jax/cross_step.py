"""Training across steps on JAX: an update is done by the step after the one that computed it.

See `tf_byteps.strategy.step.cross_step` for what it is about. Here a step is a program, which takes
what the one before has in flight, and returns what it has started itself. JAX's variables are
empty within an epoch, and whoever wants their values calls `jax_state_sync`: it does the updates
that are left.
"""

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from keras import tree

from tf_byteps import runtime
from tf_byteps.exchange.strategies import strategy_of
from tf_byteps.jax.errors import raise_late_failure
from tf_byteps.private.keras_jax import JAXTrainer
from tf_byteps.strategy.jax import origins, start_scheduling, steps
from tf_byteps.strategy.jax.halves import Halves, InFlight, UnsuitedStep, updated
from tf_byteps.wrapping import Change

_local = threading.local()
_STEPS = "_byteps_cross_steps"  # of a model
_UPDATED = (0, 2)  # the trainable and the optimizer's variables in Keras's state


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (JAXTrainer, "fit", _fit),
        (JAXTrainer, "train_on_batch", _train_on_batch),
        (JAXTrainer, "jax_state_sync", _sync),
    ]


@contextlib.contextmanager
def making(step: Callable[..., Any] | None) -> Iterator[None]:
    """Within it, Keras makes a train function of a model's `train_step`; None: another one."""
    _local.step = step
    try:
        yield
    finally:
        _local.step = None


def choosing(model: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    """A step that goes across steps in `fit`, where it can and the strategy wants that.

    Args:
        model: a `keras.Model` of a strategy with several workers.
        plain: the step that Keras has made: takes a state and a batch; compiled or not.
    """
    step = getattr(_local, "step", None)
    if step is None:  # of an evaluation
        return plain
    model.__dict__.pop(_STEPS, None)
    if not strategy_of(model).cross_step:
        return plain
    across = model.__dict__[_STEPS] = CrossSteps(model, step)

    def call(state: Any, data: Any) -> Any:
        is_in_fit = getattr(_local, "model", None) is model and isinstance(data, steps.Marked)
        return across(state, data, plain) if is_in_fit else plain(state, data)

    return call


@contextlib.contextmanager
def _training(model: Any) -> Iterator[None]:
    outer = getattr(_local, "model", None), getattr(_local, "error", None)
    _local.model, _local.error = model, sys.exc_info()[1]
    try:
        yield
    finally:
        _local.model, _local.error = outer


def _fit(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    with _training(self):
        return original(self, *args, **kwargs)


def _train_on_batch(
    original: Callable[..., Any], self: Any, *args: object, **kwargs: object
) -> Any:
    with _training(None):
        return original(self, *args, **kwargs)


def _sync(original: Callable[..., Any], self: Any) -> None:
    across = self.__dict__.get(_STEPS)
    if across is not None:
        across.flush()
    original(self)


def _problem(model: Any) -> str:
    """Why a training must use plain steps; "" if it can go across steps."""
    if jax.config.jax_default_device is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return "jax_default_device is set"
    if jax.default_backend() != "cpu" and runtime.local_size() == runtime.size():
        return "the GPUs of one host exchange among themselves"
    is_disabled = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
    if model.run_eagerly or not model.jit_compile or is_disabled:
        return "steps are not compiled"
    if type(model).train_step is not JAXTrainer.train_step or "train_step" in model.__dict__:
        return f"{type(model).__name__} has a train_step of its own"
    return "workers may join and leave" if runtime.config().elastic else ""


class CrossSteps:
    """The training steps of a model, each of which leaves its updates to the next one.

    Args:
        model: a `keras.Model`.
        step: its `train_step`, which JAX can trace.
    """

    def __init__(self, model: Any, step: Callable[..., Any]) -> None:
        self._model = model
        self._step = step
        self._why_not = ""
        self._in_flight: InFlight | None = None
        marked = steps.traced(model, self._halves, is_training=True)

        def together(state: Any, before: InFlight | None, data: steps.Marked) -> Any:
            (logs, started), after = marked(state, steps.Marked((data.piece, before), data.rows))
            return logs, after, started  # in this order: the state gets the memory of the old one

        self._program = jax.jit(together, donate_argnums=0)
        self._update = jax.jit(updated)

    def _is_unsuited(self, problem: str) -> bool:
        if problem and not self._why_not:
            warnings.warn(
                f"cross_step=True has no effect in this training: {problem}, so that plain steps "
                "are used",
                stacklevel=2,
            )
        self._why_not = problem
        return bool(problem)

    def __call__(self, state: Any, data: steps.Marked, plain: Callable[..., Any]) -> Any:
        """A step, or Keras's own one after a warning."""
        if self._is_unsuited(self._why_not or _problem(self._model)):
            return plain(state, data)
        before, self._in_flight = self._in_flight, None
        try:
            logs, state, started = self._program(state, before, data)
        except UnsuitedStep as reason:
            self._is_unsuited(str(reason))
            if before is not None:
                state = self._updated(state, before)
            return plain(state, data)
        except BaseException:
            if not any(array.is_deleted() for array in tree.flatten(state)):
                self._in_flight = before  # nothing has begun
            raise
        self._in_flight = started
        return logs, state

    def flush(self) -> None:
        """Does the updates that are left, on the state that Keras has."""
        before, self._in_flight = self._in_flight, None
        kept = getattr(self._model, "_jax_state", None)
        if before is None or kept is None:  # a step that failed has taken the state along
            return
        names = ["trainable_variables", "non_trainable_variables", "optimizer_variables"]
        now = sys.exc_info()[1]
        is_leaving = now is not None and now is not getattr(_local, "error", None)
        try:
            kept.update(dict(zip(names, self._updated([kept[name] for name in names], before))))
        except Exception as error:
            warnings.warn(
                "updates that cross_step=True has left to the next step are lost on this worker: "
                f"{type(error).__name__} came before them",
                stacklevel=2,
            )
            if not is_leaving:  # nothing here may hide the exception by which a training ends
                raise

    def _updated(self, state: Sequence[Any], before: InFlight) -> Any:
        """A state of Keras after the updates. Nothing of it is given away: they may fail."""
        variables = [array for kind in _UPDATED for array in state[kind]]
        after = iter(jax.block_until_ready(self._update(variables, before)))
        raise_late_failure()  # a GPU goes on when a sum has failed
        return tuple(
            [next(after) for _ in part] if kind in _UPDATED else part
            for kind, part in enumerate(state)
        )

    # While JAX traces.

    def _halves(self, state: Sequence[Any], data: Any) -> Any:
        piece, before = data
        program, structure = start_scheduling.program_of(self._step, state, piece)
        program = origins.expanded(program)
        leaves = jax.tree.leaves((state, piece))
        logs, _ = jax.tree.unflatten(structure, range(structure.num_leaves))
        is_variable = [kind in _UPDATED for kind, part in enumerate(state) for _ in part]
        of_data = [False] * (len(leaves) - len(is_variable))
        of_logs = [False] * len(jax.tree.leaves(logs))
        halves = Halves(program, [*is_variable, *of_data], [*of_logs, *is_variable])
        results, variables, started = halves.compute(leaves, before)
        of_step, of_state = iter(results), iter(variables)
        merged = [next(of_state if is_new else of_step) for is_new in [*of_logs, *is_variable]]
        logs, after = jax.tree.unflatten(structure, merged)
        return (logs, started), after
