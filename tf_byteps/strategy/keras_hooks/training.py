"""What is changed in Keras's trainers; see the package for why."""

import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tf_byteps.exchange import leaving
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.ops.input_waits import without_samples
from tf_byteps.private.keras import Trainer
from tf_byteps.private.keras_tensorflow import keras_trainer
from tf_byteps.strategy.fit import callbacks, metrics, outside, own_callbacks, statistics, stopping
from tf_byteps.strategy.fit.foreign_optimizers import adopt_model, warn_if_alone
from tf_byteps.strategy.input import building, lengths, position, sharding
from tf_byteps.strategy.keras_hooks import input as inputs
from tf_byteps.strategy.step import (
    cross_step,
    float8,
    local_steps,
    piece_steps,
    predictions,
    scaling,
    single_steps,
)
from tf_byteps.training import failures
from tf_byteps.types import Logs
from tf_byteps.wrapping import Change

_logger = logging.getLogger("tf_byteps")
_local = threading.local()


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    trainer = keras_trainer.TensorFlowTrainer
    return [
        (Trainer, "compile", _compile),
        (Trainer, "_resolve_auto_jit_compile", _auto_jit_compile),
        (trainer, "fit", _fit),
        (trainer, "evaluate", _evaluate),
        (trainer, "train_on_batch", _train_on_batch),
        (trainer, "_maybe_symbolic_build", _build),
        (trainer, "_get_metrics_result_or_logs", _metrics_result),
        (trainer, "_make_function", _make_function),
        (trainer, "make_train_function", _make_train_function),
        (trainer, "make_test_function", _make_test_function),
        (trainer, "predict", _predict),
        (trainer, "predict_on_batch", _predict_on_batch),
        (trainer, "make_predict_function", _make_predict_function),
        (keras.Model, "export", _export),
        *float8.changes(),
    ]


def replace_stop_training() -> None:
    """`Model.stop_training` is not a function that could be wrapped."""
    setattr(keras_trainer.TensorFlowTrainer, "stop_training", stopping.attribute())  # noqa: B010


def _compile(
    original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
) -> None:
    adopt_model(self)
    original(self, *args, **kwargs)
    local_steps.outer_state(self)  # a checkpoint may be read before the model trains


def _auto_jit_compile(original: Callable[..., Any], self: keras.Model) -> Any:
    """What it is without a strategy: True on a GPU, if all layers can be compiled."""
    strategy = self._distribute_strategy
    if not is_ours(strategy):
        return original(self)
    self._distribute_strategy = None
    try:
        compiles = original(self)
    finally:
        self._distribute_strategy = strategy
    if compiles and not strategy.merge_repeated_rows:
        _logger.info(
            "merge_repeated_rows=False: XLA does not compile the steps, as it would add up the "
            "rows of an embedding's gradient that belong to one index"
        )
        return False
    return compiles


def _fit(original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object) -> Any:
    adopt_model(self)
    with inputs.of_model(self):
        if not is_ours(self.distribute_strategy):
            warn_if_alone(self)
            return original(self, *args, **kwargs)
        return _fit_together(original, self, *args, **kwargs)


def _fit_together(
    original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
) -> Any:
    call = inspect.signature(original).bind(self, *args, **kwargs)
    given = call.arguments.get("callbacks")
    metrics.give_back(self)
    outer, _local.fits = getattr(_local, "fits", None), self
    try:
        with leaving.telling_the_others():
            draws_on_host = inputs.draws_on_host(call.arguments.get("x"))
            call.arguments["callbacks"] = callbacks.completed(
                given, self, call.arguments.get("epochs", 1), draws_on_host
            )
            with (
                lengths.ending_alone(local_steps.may_end_alone(self)),
                failures.shortened_errors(),
                cross_step.training(self, own_callbacks.flat(given)),
                local_steps.training(self),
            ):
                return original(*call.args, **call.kwargs)
    finally:
        _local.fits = outer
        stopping.forget(self)


@contextlib.contextmanager
def _outside_fit(model: keras.Model, method: str) -> Iterator[None]:
    """Around an evaluation or a prediction: errors are shortened where workers meet, too. All make
    the same steps."""
    is_inside = getattr(_local, "fits", None) is not None or getattr(_local, "evaluates", False)
    is_alone = is_inside or not is_ours(model.distribute_strategy)
    together = contextlib.nullcontext() if is_alone else outside.of_fit(model, method)
    with failures.shortened_errors():
        if local_steps.has_quorum(local_steps.settings_of(model)):
            local_steps.finish(model)  # before workers meet, some of which make steps still
        with together, failures.shortened_errors(), lengths.ending_alone(False):
            yield


def _evaluate(
    original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
) -> Any:
    outer = getattr(_local, "evaluates", False)
    try:
        with without_samples(), _outside_fit(self, "evaluate"), inputs.of_model(self):
            _local.evaluates = True
            local_steps.finish(self)
            statistics.average(self)
            metrics.give_back(self)
            return original(self, *args, **kwargs)
    finally:
        _local.evaluates = outer
        if getattr(_local, "fits", None) is self and not kwargs.get("_use_cached_eval_dataset"):
            metrics.give_back(self)  # by a callback: the epoch goes on counting


def _train_on_batch(
    original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
) -> Any:
    adopt_model(self)
    if not is_ours(self.distribute_strategy):
        return original(self, *args, **kwargs)
    statistics.begin_if_new(self)
    metrics.give_back(self)
    result = original(self, *args, **kwargs)
    if local_steps.settings_of(self) is None:
        statistics.average_all(self)
    return result


def _build(
    original: Callable[..., Any], self: keras.Model, iterator: Any = None, data_batch: object = None
) -> Any:
    """Reads from the input only if it is the only way to learn the shapes of a batch.

    A model with a step of its own is left to `_build_for_step`.
    """
    adopt_model(self)
    if not is_ours(self.distribute_strategy):
        return original(self, iterator, data_batch)
    if iterator is not None and not getattr(_local, "evaluates", False):
        position.note(self, iterator)
    has_own_step = any(building.has_own_step(self, step) for step in ("train_step", "test_step"))
    spec = None
    if iterator is not None:
        dataset = iterator._distributed_dataset
        is_training = not getattr(_local, "evaluates", False)
        if is_training and local_steps.has_quorum(local_steps.settings_of(self)):
            sharding.check_ends_alone(dataset)
        if not building.must_read(self, dataset.known_shapes):
            spec = building.batch_spec(dataset.element_spec)
            iterator, data_batch = None, building.symbolic_batch(dataset.element_spec)
        elif has_own_step:
            iterator, data_batch = None, next(next(iter(iterator))[2])
    if has_own_step:
        _local.left_to_build = original, data_batch, spec or building.spec_of_batch(data_batch)
        return
    try:
        original(self, iterator, data_batch)
    except Exception:
        if not building.is_built_enough(self):
            raise


def _build_for_step(model: keras.Model, step: str, is_traced: bool) -> None:
    """Where the function of a step is made it is known which step the model is built for."""
    left, _local.left_to_build = getattr(_local, "left_to_build", None), None
    if left is None:
        return
    original, data_batch, spec = left
    if not building.has_own_step(model, step):
        original(model, None, data_batch)
    elif not is_traced:
        with model.distribute_strategy.scope(), scaling.only_building():
            building.build_by_tracing(model, getattr(model, step), spec)


def _metrics_result(original: Callable[..., Any], self: keras.Model, logs: Logs) -> Any:
    """Called at the end of each epoch and each evaluation, and nowhere else."""
    cross_step.flush()
    if not is_ours(self.distribute_strategy):
        return original(self, logs)
    evaluates = getattr(_local, "evaluates", False)
    local_steps.finish(self, ends_epoch=not evaluates)
    if not evaluates:
        statistics.end_epoch(self)
        if position.end_epoch(self) and not logs:
            logs = self.get_metrics_result()
    metrics.reduce_states(self)
    return metrics.of_all_workers(self, original(self, logs))


def _make_function(
    original: Callable[..., Any], self: keras.Model, step_function: Callable[..., Any]
) -> Any:
    function = original(self, step_function)
    if is_ours(self.distribute_strategy):
        function = single_steps.returning_early(self, function)
    return piece_steps.keeping_rows(self, scaling.retrying(function))


def _make_train_function(
    original: Callable[..., Any], self: keras.Model, force: bool = False
) -> Any:
    cross_step.flush()
    _build_for_step(self, "train_step", self.train_function is not None)
    result = original(self, force)
    cross_step.prepare(self)
    local_steps.prepare(self, lambda: statistics.average(self))
    return result


def _make_test_function(
    original: Callable[..., Any], self: keras.Model, force: bool = False
) -> Any:
    """Called at the beginning of `evaluate` and `test_on_batch`."""
    cross_step.flush()
    metrics.give_back(self)
    _build_for_step(self, "test_step", self.test_function is not None)
    return original(self, force)


def _export(
    original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
) -> Any:
    cross_step.flush()
    local_steps.finish(self)
    return original(self, *args, **kwargs)


def _predict(
    original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
) -> Any:
    adopt_model(self)
    is_distributed = is_ours(self.distribute_strategy)
    collecting = predictions.collecting_predictions(self if is_distributed else None)
    with without_samples(), _outside_fit(self, "predict"), collecting, inputs.of_model(self):
        local_steps.finish(self)
        statistics.average(self)
        return original(self, *args, **kwargs)


def _predict_on_batch(
    original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
) -> Any:
    adopt_model(self)
    with predictions.collecting_predictions(None):
        return original(self, *args, **kwargs)


def _make_predict_function(
    original: Callable[..., Any], self: keras.Model, force: bool = False
) -> Any:
    """`predict` and `predict_on_batch` share a function that Keras keeps, but ours differ."""
    cross_step.flush()
    if not is_ours(self.distribute_strategy):
        return original(self, force)
    collecting = predictions.is_collecting_predictions()
    force = force or getattr(self.predict_function, "_byteps_collecting", collecting) != collecting
    original(self, force)
    setattr(self.predict_function, "_byteps_collecting", collecting)  # noqa: B010
