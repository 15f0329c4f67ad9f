"""What is changed in Keras's trainer for JAX; see `hooks` for why."""

import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import tree
from keras.src.backend.jax import trainer as keras_trainer
from keras.src.trainers.trainer import Trainer

from tf_byteps import runtime
from tf_byteps.errors import BytePSError
from tf_byteps.exchange import host, leaving
from tf_byteps.exchange.optimizers import is_distributed, optimizers_of
from tf_byteps.exchange.strategies import strategy_of
from tf_byteps.jax.errors import raise_late_failure
from tf_byteps.strategy.fit import callbacks, metrics, outside, own_callbacks, statistics, stopping
from tf_byteps.strategy.jax import (
    batches,
    cross_step,
    empty_epochs,
    failures,
    initial_values,
    position,
    scopes,
    start_scheduling,
    steps,
)
from tf_byteps.wrapping import Change

_logger = logging.getLogger("tf_byteps")
_local = threading.local()
_said: set[str] = set()
# What a step of a training has; one of an evaluation no optimizer, one of a prediction no metrics.
_STATE = ["trainable_variables", "non_trainable_variables", "optimizer_variables"]
_STATE += ["metrics_variables"]


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    trainer = keras_trainer.JAXTrainer
    return [
        (trainer, "__init__", _init),
        (Trainer, "compile", _compile),
        (trainer, "fit", _fit),
        (trainer, "evaluate", _evaluate),
        (trainer, "predict", _predict),
        (trainer, "train_on_batch", _train_on_batch),
        (trainer, "test_on_batch", _test_on_batch),
        (trainer, "_symbolic_build", batches.symbolic_build),
        (trainer, "make_train_function", _make_train_function),
        (trainer, "make_test_function", _make_test_function),
        (trainer, "make_predict_function", _make_predict_function),
        (trainer, "_make_function", _make_function),
        (trainer, "_get_metrics_result_or_logs", _metrics_result),
        (keras_trainer.JAXEpochIterator, "_get_iterator", batches.get_iterator),
        (keras_trainer.JAXEpochIterator, "_enumerate_iterator", _enumerate_epoch),
    ]


def replace_stop_training() -> None:
    """`Model.stop_training` is not a function that could be wrapped."""
    setattr(keras_trainer.JAXTrainer, "stop_training", stopping.attribute())  # noqa: B010


def _init(original: Callable[..., Any], self: Any) -> None:
    original(self)
    if scopes.current() is not None:
        self.__dict__["distribute_strategy"] = scopes.current()


def _compile(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> None:
    scopes.adopt(self)
    original(self, *args, **kwargs)


def _fit(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    if scopes.adopt(self) is None:
        _warn_if_alone(self)
        with batches.cut(False):
            return original(self, *args, **kwargs)
    _refuse_distribution()
    call = inspect.signature(original).bind(self, *args, **kwargs)
    given = call.arguments.get("callbacks")
    metrics.give_back(self)
    outer, _local.fits = getattr(_local, "fits", None), self
    keep = failures.Keep()
    outer_keep, _local.keep = getattr(_local, "keep", None), keep
    try:
        with leaving.telling_the_others(), failures.in_a_sentence(keep), batches.cut(True):
            epochs = call.arguments.get("epochs", 1)
            completed = callbacks.completed(given, self, epochs, draws_on_host=True)
            if runtime.size() > 1:
                completed = own_callbacks.added(completed, self, [], [keep])
            call.arguments["callbacks"] = completed
            return original(*call.args, **call.kwargs)
    finally:
        _local.fits, _local.keep = outer, outer_keep
        stopping.forget(self)


def _enumerate_epoch(original: Callable[..., Any], self: Any) -> Any:
    model = getattr(_local, "fits", None)
    is_other = not batches.are_cut() or getattr(_local, "evaluates", False)
    if is_other or not position.is_noted(model):
        return original(self)
    return position.enumerate_epoch(original, self, model)


def _warn_if_alone(model: Any) -> None:
    if not runtime.is_initialized() or runtime.size() == 1 or model.name in _said:
        return
    if any(map(is_distributed, optimizers_of(model))):
        return
    _said.add(model.name)
    _logger.warning(
        "the model %r trains on this worker alone, though there is a BytePSStrategy: make it, "
        "compile it or call fit within `with strategy.scope():`",
        model.name,
    )


def _refuse_distribution() -> None:
    distribution = keras.distribution.distribution()
    if distribution is not None:
        raise BytePSError(
            f"keras.distribution.set_distribution has set a {type(distribution).__name__}, which "
            "BytePSStrategy cannot be used with: leave it out"
        )


@contextlib.contextmanager
def _outside_fit(model: Any, method: str) -> Iterator[None]:
    """Around an evaluation or a prediction: errors are sentences where workers meet, too."""
    is_inside = getattr(_local, "fits", None) is not None or getattr(_local, "evaluates", False)
    together = contextlib.nullcontext() if is_inside else outside.of_fit(model, method)
    with failures.in_a_sentence(), together, failures.in_a_sentence():
        yield


@contextlib.contextmanager
def _putting_back_state(model: Any) -> Iterator[None]:
    """Keras leaves a model without values if its input fails within `evaluate` or `predict`."""
    try:
        yield
    except Exception:
        model.jax_state_sync()
        raise


def _evaluate(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    if scopes.adopt(self) is None:
        with batches.cut(False):
            return original(self, *args, **kwargs)
    _refuse_distribution()
    outer = getattr(_local, "evaluates", False)
    try:
        with _outside_fit(self, "evaluate"), batches.cut(True):
            _local.evaluates = True
            _average_statistics(self)
            metrics.give_back(self)
            with _putting_back_state(self):
                return original(self, *args, **kwargs)
    finally:
        _local.evaluates = outer
        if getattr(_local, "fits", None) is self and not kwargs.get("_use_cached_eval_dataset"):
            metrics.give_back(self)  # by a callback: the epoch goes on counting


def _average_statistics(model: Any) -> None:
    model.jax_state_sync()  # within an epoch the variables are empty
    statistics.average(model)


def _predict(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    if scopes.adopt(self) is None:
        with batches.cut(False):
            return original(self, *args, **kwargs)
    _refuse_distribution()
    with _outside_fit(self, "predict"), batches.cut(True):
        _average_statistics(self)
        with _putting_back_state(self):
            return original(self, *args, **kwargs)


def _train_on_batch(
    original: Callable[..., Any], self: Any, *args: object, **kwargs: object
) -> Any:
    if scopes.adopt(self) is None or runtime.size() == 1:
        return original(self, *args, **kwargs)
    _refuse_distribution()
    with failures.in_a_sentence():
        statistics.begin_if_new(self)
        metrics.give_back(self)
        result = _on_piece(original, self, args, kwargs)
        statistics.average_all(self)
        return result


def _test_on_batch(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    if scopes.adopt(self) is None or runtime.size() == 1:
        return original(self, *args, **kwargs)
    _refuse_distribution()
    with failures.in_a_sentence():
        metrics.give_back(self)
        return _on_piece(original, self, args, kwargs)


def _on_piece(original: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
    call = inspect.signature(original).bind(model, *args, **kwargs)
    given = {
        name: tree.map_structure(_to_array, call.arguments[name])
        for name in ("x", "y", "sample_weight")
        if call.arguments.get(name) is not None
    }
    piece, rows = batches.piece_of(given)
    call.arguments.update(piece)
    return_dict = call.arguments.get("return_dict", False)
    call.arguments["return_dict"] = True
    with batches.of_rows(rows):
        own = original(*call.args, **call.kwargs)
    logs = metrics.logs_so_far(model, own)
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def _to_array(value: Any) -> Any:
    return value if value is None or hasattr(value, "shape") else np.asarray(value)


def _make_train_function(original: Callable[..., Any], self: Any, force: bool = False) -> None:
    _make(original, self, force, "train_step", is_training=True)


def _make_test_function(original: Callable[..., Any], self: Any, force: bool = False) -> None:
    _make(original, self, force, "test_step", is_training=False)


def _make(
    original: Callable[..., Any], model: Any, force: bool, name: str, is_training: bool
) -> None:
    if strategy_of(model) is None or runtime.size() == 1:
        original(model, force)
        return
    if getattr(_local, "fits", None) is not model:
        initial_values.synchronize_if_new(model)
    session = [runtime.size(), runtime.rank()]  # are in the compiled program
    force = force or model.__dict__.get(f"_byteps_{name}_of") != session
    model.__dict__[f"_byteps_{name}_of"] = session
    step, has_own = getattr(model, name), name in model.__dict__
    ordered = start_scheduling.started_first(step) if is_training else step
    model.__dict__[name] = steps.traced(model, ordered, is_training)
    try:
        with cross_step.making(step if is_training else None):
            original(model, force)
    finally:
        del model.__dict__[name]
        if has_own:
            model.__dict__[name] = step


def _make_predict_function(original: Callable[..., Any], self: Any, force: bool = False) -> Any:
    if strategy_of(self) is not None and runtime.size() > 1:
        initial_values.synchronize_if_new(self)
    return original(self, force)


def _make_function(
    original: Callable[..., Any], self: Any, step_function: Any, concatenate_outputs: bool = False
) -> Any:
    if strategy_of(self) is not None and runtime.size() > 1:
        if concatenate_outputs:
            step_function = _gathering(self, step_function)
        else:
            step_function = steps.marking(self, cross_step.choosing(self, step_function))
    function = original(self, step_function, concatenate_outputs)
    return function if strategy_of(self) is None else _keeping_state(self, function)


def _keeping_state(model: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """If the input fails, a model keeps its values. Keras has them in the state alone."""

    def call(state: Any, iterator: Any) -> Any:
        try:
            result = function(state, iterator)
        except Exception:
            if not any(array.is_deleted() for array in tree.flatten(state)):
                _keep_state(model, state)
            raise
        if getattr(_local, "fits", None) is model:
            _local.keep.on_step_begun()
        return result

    return call


def _keep_state(model: Any, state: Any) -> None:
    names = _STATE if len(state) == len(_STATE) else [*_STATE[:2], _STATE[-1]]
    model._jax_state = dict(zip(names, state))
    model._jax_state_synced = False


def _gathering(model: Any, step_function: Callable[..., Any]) -> Callable[..., Any]:
    """A prediction of the whole batch: the workers' pieces, in the input's order."""

    def call(state: Any, piece: Any) -> Any:
        rows = batches.take_rows()
        outputs, state = step_function(state, piece)
        if rows is None:  # of predict_on_batch
            return outputs, state
        try:
            return _gathered(outputs, rows[0]), state
        except Exception:
            _keep_state(model, state)  # the step has used up the memory of the one before
            raise

    return call


def _gathered(outputs: Any, rows: int) -> Any:
    arrays = [np.asarray(output) for output in tree.flatten(outputs)]
    for array in arrays:
        if array.shape[:1] != (max(rows, 1),):
            raise ValueError(
                f"a prediction for {rows} rows has the shape {array.shape}: predict gathers "
                "the workers' rows, so its first axis must be the batch's"
            )
    pieces = [array[:rows] for array in arrays]
    names = [f"prediction/{index}" for index in range(len(pieces))]
    return tree.pack_sequence_as(outputs, host.copy_all(pieces, names, "gather"))


def _metrics_result(original: Callable[..., Any], self: Any, logs: Any) -> Any:
    """Called at the end of each epoch and each evaluation, and nowhere else."""
    if strategy_of(self) is None:
        return original(self, logs)
    raise_late_failure()  # before callbacks save what the epoch has made
    if not getattr(_local, "evaluates", False):
        statistics.end_epoch(self)
        if logs is empty_epochs.NO_LOGS:
            if not position.is_resumed(self):
                return {}  # a worker that is new has no metrics yet
            logs = self.get_metrics_result()
    metrics.reduce_states(self)
    return metrics.of_all_workers(self, original(self, logs))
