"""Steps of `Model.fit` that exchange nothing, see `tf_byteps.local_steps`.

A train function of Keras makes its step on this worker's own rows, as a program with one worker
does. Between two calls of it the rounds that are due begin and end, so that the step is the plain
one, compiled or not.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange.optimizers import with_inner
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.local_steps.changes import Changes, Staleness
from tf_byteps.local_steps.making import rounds_of
from tf_byteps.local_steps.quorum import QuorumRounds
from tf_byteps.local_steps.rounds import Rounds
from tf_byteps.local_steps.settings import LocalSteps
from tf_byteps.local_steps.state import OuterState
from tf_byteps.ops import library
from tf_byteps.training import traces

_STATE = "_byteps_outer"  # of an optimizer, and part of its path in files
_states: weakref.WeakKeyDictionary[keras.Model, OuterState] = weakref.WeakKeyDictionary()
_of_models: weakref.WeakKeyDictionary[keras.Model, "_Training"] = weakref.WeakKeyDictionary()


class Membership:
    """What an elastic job has a training do whose workers come and go: nobody goes back in it."""

    def look(self) -> None:
        """Ends the training for now if the workers change, before a worker's next step.

        Raises:
            Exception: of `is_change`.
        """
        raise NotImplementedError

    def is_change(self, error: BaseException) -> bool:
        """Whether an error says that the workers change: the training goes on with others."""
        raise NotImplementedError


def settings_of(model: keras.Model) -> LocalSteps | Staleness | None:
    """What a model's strategy was made with; `None`: its gradients are exchanged in each step."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy.local_steps if is_ours(strategy) else None


def has_quorum(settings: LocalSteps | Staleness | None) -> bool:
    """Whether each worker makes its own number of steps between rounds."""
    return isinstance(settings, LocalSteps) and settings.quorum is not None


def rows_of_local_step(model: keras.Model) -> Any:
    """Where a training step that is traced now counts its rows; `None`: it exchanges gradients."""
    training = _of_models.get(model)
    return training.rounds.rows if training is not None and training.is_local else None


def outer_state(model: keras.Model) -> OuterState | None:
    """What a model's outer rounds keep; `None` if its gradients are exchanged in each step.

    It is an attribute of the model's optimizer, so that it is saved and restored where the
    optimizer's state is.

    Args:
        model: a compiled `keras.Model`.
    """
    settings = settings_of(model)
    if not isinstance(settings, LocalSteps):
        return None
    optimizer: Any = model.optimizer
    state = _states.get(model)
    weights = [each.value for each in model.trainable_variables]
    if state is None or not state.fits(weights):
        state = _states[model] = OuterState(settings)
    if optimizer is not None and getattr(optimizer, _STATE, None) is not state:
        setattr(optimizer, _STATE, state)
    return state


def prepare(model: keras.Model, after_rounds: Callable[[], None]) -> None:
    """Lets the train function that Keras has made for a model make local steps, if it is to.

    Args:
        model: a compiled and built `keras.Model`.
        after_rounds: called when rounds have ended, by all workers.
    """
    settings = settings_of(model)
    if settings is not None and not isinstance(model.train_function, _TrainFunction):
        function: Any = _TrainFunction(_training_of(model, settings), model, after_rounds)
        model.train_function = function


def _training_of(model: keras.Model, settings: LocalSteps | Staleness) -> "_Training":
    training = _of_models.get(model)
    if training is None or not training.has(model.trainable_variables):
        training = _of_models[model] = _Training(model, settings, outer_state(model))
    return training


def finish(model: keras.Model, ends_epoch: bool = False) -> None:
    """Gives all workers the global weights, if they have made local steps. A collective.

    Args:
        model: a `keras.Model`.
        ends_epoch: whether others may have made steps if this worker has not.
    """
    training = _of_models.get(model)
    if training is not None:
        training.raise_late()
        if ends_epoch and isinstance(training.rounds, QuorumRounds) and training.is_local:
            training.rounds.take_part()
        training.rounds.finish()


def may_end_alone(model: keras.Model) -> bool:
    """Whether a worker whose data end need not wait for the others. It does in a warm-up."""
    settings = settings_of(model)
    return has_quorum(settings) and settings is not None and settings.warmup_steps == 0


def rounds_of_quorum(model: keras.Model, membership: Membership) -> QuorumRounds:
    """The rounds of a model's training in an elastic job, see `Membership`.

    Args:
        model: a compiled and built `keras.Model`, whose strategy has a quorum.
        membership: asked before each step from now on.
    """
    settings = settings_of(model)
    assert has_quorum(settings) and settings is not None
    training = _training_of(model, settings)
    training.membership, training.late = membership, None
    assert isinstance(training.rounds, QuorumRounds)
    return training.rounds


def quorum_of(model: keras.Model) -> int:
    """How many workers a round of a model needs, whose strategy has a quorum."""
    settings = settings_of(model)
    assert isinstance(settings, LocalSteps) and settings.quorum is not None
    return settings.quorum


def keep_weights(model: keras.Model) -> None:
    """The next `fit` begins with each worker's own weights: they have come from `rejoin`."""
    _of_models[model].keeps_weights = True


def kept_weights(model: keras.Model) -> list[Any]:
    """The weights that a `fit` which begins leaves to each worker. Those of one `fit` are asked for
    once."""
    training = _of_models.get(model)
    if training is None or not training.keeps_weights:
        return []
    training.keeps_weights = False
    return list(model.trainable_variables)


@contextlib.contextmanager
def training(model: keras.Model) -> Iterator[None]:
    """Around a call of `fit`. If it ends by an exception, what is in flight is given up."""
    try:
        yield
    except BaseException as error:
        ended = _of_models.get(model)
        if ended is not None and ended.is_change(error):
            assert isinstance(error, Exception)
            on_all_workers(error)
        elif ended is not None:
            ended.rounds.abandon()
            ended.late, ended.keeps_weights = None, False
        raise


def inner_state(model: keras.Model, optimizers: list[Any]) -> list[Any]:
    """What a worker's optimizers keep for themselves with local steps.

    Args:
        model: a `keras.Model`.
        optimizers: its `keras.optimizers.Optimizer`s.

    Returns:
        A list of `keras.Variable`: moments, accumulated gradients, loss scales. Not the learning
        rate, which all workers have in common, nor the number of steps, unless there is a quorum.
    """
    settings = settings_of(model)
    if settings is None:
        return []
    of_each = has_quorum(settings)
    common = {
        id(variable)
        for optimizer in optimizers
        for each in with_inner(optimizer)
        for variable in (
            None if of_each else each.iterations,
            getattr(each, "_learning_rate", None),
        )
    }
    return [v for optimizer in optimizers for v in optimizer.variables if id(v) not in common]


class _Training:
    """A model's rounds, and whether the steps that are traced now are local."""

    def __init__(
        self, model: keras.Model, settings: LocalSteps | Staleness, state: OuterState | None
    ) -> None:
        # The weights' global values of a model that is trained in several calls go on.
        self._variables = list(model.trainable_variables)
        self.settings, self._state = settings, state
        self.membership: Membership | None = None
        self.late: BaseException | None = None  # of the round after the last step
        self.keeps_weights = False
        self._exchanges = False
        names = [variable.path for variable in self._variables]
        values = [variable.value for variable in self._variables]
        self.rounds: Rounds | Changes
        if isinstance(settings, Staleness):
            self.rounds = Changes(names, values, settings)
        else:
            compression = model.distribute_strategy.compression
            self.rounds = rounds_of(names, values, settings, compression, self._variables, state)

    def is_change(self, error: BaseException) -> bool:
        """See `Membership`."""
        return self.membership is not None and self.membership.is_change(error)

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Around a local step: an elastic job does not trace it again for each change of workers,
        unless a layer exchanges in it."""
        what = traces.Dependence.EPOCH if self._exchanges else traces.Dependence.PLACE
        before = library.uses()
        with traces.depending_on(what):
            yield
        self._exchanges = self._exchanges or library.uses() != before

    def look(self) -> None:
        """Before a step: the callbacks have seen the end of the one before."""
        self.raise_late()
        if self.membership is not None:
            self.membership.look()

    def raise_late(self) -> None:
        """Raises the error of the round after the last step."""
        if self.late is not None:
            error, self.late = self.late, None
            raise error

    def end_steps(self, steps: int) -> None:
        """Comes to the rounds that are due. These steps are done, whatever becomes of a round."""
        try:
            self.rounds.end_steps(steps)
        except Exception as error:
            if not self.is_change(error):
                raise
            self.late = error

    def has(self, variables: list[Any]) -> bool:
        """Whether these are the weights."""
        return [id(variable) for variable in variables] == [id(v) for v in self._variables]

    @property
    def is_local(self) -> bool:
        """Whether the next step is local."""
        warmup = self.settings.warmup_steps
        if self._state is None or warmup == 0:
            return True
        with tf.init_scope():  # where a step is traced
            return int(self._state.steps) >= warmup

    def count_warmup(self, steps: int) -> None:
        """There were so many steps of the warm-up."""
        if self._state is not None:
            self._state.steps.assign_add(steps)


class _TrainFunction:
    """A train function of Keras whose steps are local, after those of the warm-up."""

    def __init__(
        self, training: _Training, model: keras.Model, after_rounds: Callable[[], None]
    ) -> None:
        self._training = training
        self._function = model.train_function
        self._is_local = training.is_local
        self._model = weakref.ref(model)
        self._after_rounds = after_rounds
        self._logs: Any = None  # of the last step

    def __call__(self, iterator: Iterator[Any]) -> Any:
        training, model = self._training, self._model()
        assert model is not None  # it calls
        training.look()
        is_local = training.is_local
        if is_local != self._is_local:  # it may be earlier after a checkpoint was read
            self._function = model._make_function(model.train_step)
            self._is_local = is_local
        if not is_local:
            logs = self._function(iterator)
            training.count_warmup(model.steps_per_execution)
            return logs
        if training.rounds.is_ending and self._logs is not None:
            # A quorum waits for this worker, which leaves the rest of the rows to the next epoch.
            for _ in range(model.steps_per_execution):
                next(iterator)
            return self._logs
        training.rounds.begin_steps()
        with training.tracing():
            self._logs = logs = self._function(iterator)
        if runtime.size() == 1:  # its steps count no rows
            training.rounds.rows.assign_add(tf.constant(1, tf.int64))
        before = training.rounds.count
        training.end_steps(model.steps_per_execution)
        if training.rounds.count != before and not has_quorum(training.settings):
            self._after_rounds()
        return logs
