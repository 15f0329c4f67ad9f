"""All changes that tf_byteps makes to Keras and TensorFlow while they run, in one place.

Checked with Keras 3.15 and TensorFlow 2.21. They are installed when the first `BytePSStrategy` is
made; each asks first whether a `BytePSStrategy` is at work and otherwise does exactly what it did
before.

* `Variable._initialize`: to tell Keras's variables from the user's (see `variables`).
* `Variable.value` and `_direct_assign`, `BaseOptimizer.apply` and `_get_current_learning_rate`,
  `TensorFlowTrainer.make_train_function` and `make_test_function`, `Model.export`: a step's updates
  may be left to the next step, but nobody else may notice (see `cross_step`).
* `BaseOptimizer._backend_apply_gradients` and `_clip_gradients`: Keras clips before it reduces; the
  sum must come first, once for each update, also with gradient accumulation.
* `TFOptimizer._all_reduce_sum_gradients`: not to reduce again afterwards.
* `TFOptimizer.add_variable_from_reference`, `Trainer.compile`, and what uses a model: optimizers
  and models that were made outside the scope can be used in it (see `adoption`).
* `LossScaleOptimizer.apply` and `check_finite`: each worker would decide by its own gradients
  whether to skip a step, and those that do not would wait for ever.
* `BaseOptimizer._overwrite_variables_directly_with_gradients`: new values of float8 scales are the
  largest of all workers.
* `SeedGenerator.next`, and `get_seed` of TensorFlow's random operations: each replica draws its own
  numbers (see `noise`).
* `losses.loss.scale_loss_for_distribution`, `unscale_loss_for_distribution` and
  `reduce_weighted_values`, `metrics.Mean.update_state`, `tf.GradientTape.gradient`,
  `tf.nn.compute_average_loss` and `scale_regularization_loss`: gradients carry the weights of the
  workers, not losses (see `losses`).
* `TensorFlowTrainer._make_function`: a step may be traced again (see `scaling`).
* `Trainer._resolve_auto_jit_compile`: Keras compiles no steps of a strategy by itself; ours can be.
* `TensorFlowTrainer.fit`: initial values from worker 0, after callbacks that restore.
* `TensorFlowTrainer.fit`, `evaluate` and `predict`: the loss of a process is an error of a sentence
  (see `failures`).
* `TensorFlowTrainer.stop_training`: all workers stop training together (see `stopping`).
* `TensorFlowTrainer._maybe_symbolic_build`: no batch of the input is used up to build the model.
* `TensorFlowTrainer._get_metrics_result_or_logs`: the logs of an epoch and the results of
  `evaluate` cover the rows of all workers, and so do moving statistics at the end of an epoch.
* `TensorFlowTrainer.evaluate`, `predict` and `train_on_batch`: so do moving statistics there.
* `TensorFlowTrainer.fit`, `evaluate`, `train_on_batch` and `test_on_batch`: metrics that are not
  reset go on with each worker's own counts.
* `ModelCheckpoint`, `BackupAndRestore`, `CSVLogger` and `TensorBoard`: only worker 0 writes files
  (see `callbacks`).
* `saving_lib.save_model`, `save_weights_only`, `legacy_h5_format.save_model_to_hdf5`: all workers
  may save to one path.
* `CallbackList.on_train_batch_begin` and `on_train_batch_end`: timelines have Python's steps.
* `TensorFlowTrainer.predict`, `predict_on_batch` and `make_predict_function`: `predict` returns the
  rows of all workers, `predict_on_batch` this worker's.
* `TFEpochIterator.__init__` and `ArrayDataAdapter.get_tf_dataset`: arrays are shuffled alike on all
  workers, each of which gathers its own rows only.
* `tensorflow.python.data.util.random_seed.get_seed`: so are datasets whose shuffle has no seed.
* `trainers.data_adapters.is_tf_dataset`: Keras knows distributed datasets by their classes' names.
"""

import functools
import inspect
import logging
import threading

import keras
import tensorflow as tf
from keras.src.backend.common.variables import Variable as KerasVariable
from keras.src.backend.tensorflow import core as keras_core, trainer as keras_trainer
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.losses import loss as keras_loss
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.trainer import Trainer
from tensorflow.python.data.util import random_seed
from tensorflow.python.framework import random_seed as framework_seed
from tensorflow.python.ops import nn_impl_distribute

from tf_byteps.gradients import overwriting, updates
from tf_byteps.gradients.accumulation import reduce_if_updating
from tf_byteps.gradients.replica import in_our_replica, is_ours
from tf_byteps.strategy.fit import (
    callbacks,
    metrics,
    statistics,
    stopping,
    whole_files,
)
from tf_byteps.strategy.fit.adoption import adopt_model, adopt_optimizer, warn_if_alone
from tf_byteps.strategy.input import arrays, building, shuffle
from tf_byteps.strategy.input.sharding import BytePSDataset
from tf_byteps.strategy.step import cross_step, local_batch, losses, noise, scaling
from tf_byteps.strategy.step.gradients import reduce_gradients
from tf_byteps.strategy.variables import made_by_keras
from tf_byteps.timeline import python_steps
from tf_byteps.training import failures, leaving
from tf_byteps.wrapping import wrap

_logger = logging.getLogger("tf_byteps")
_lock = threading.Lock()
_installed = False
_local = threading.local()


def install():
    """Makes the changes, once per process."""
    global _installed
    with _lock:
        if _installed:
            return
        _installed = True
    trainer = keras_trainer.TensorFlowTrainer
    wrap(keras_core.Variable, "_initialize", _initialize_variable)
    wrap(keras_core.Variable, "_direct_assign", _assign_variable)
    keras_core.Variable.value = property(_value_of_variable)
    wrap(BaseOptimizer, "apply", _apply)
    wrap(BaseOptimizer, "_get_current_learning_rate", _learning_rate)
    wrap(BaseOptimizer, "_backend_apply_gradients", _backend_apply_gradients)
    wrap(BaseOptimizer, "_clip_gradients", _clip_gradients)
    wrap(TFOptimizer, "_all_reduce_sum_gradients", _all_reduce_sum_gradients)
    wrap(BaseOptimizer, "_overwrite_variables_directly_with_gradients", _overwrite_variables)
    wrap(keras.random.SeedGenerator, "next", noise.of_replica)
    wrap(framework_seed, "get_seed", noise.of_operation)
    wrap(TFOptimizer, "add_variable_from_reference", _add_slot)
    wrap(keras.optimizers.LossScaleOptimizer, "apply", _loss_scale_apply)
    wrap(keras.optimizers.LossScaleOptimizer, "check_finite", _check_finite)
    wrap(keras_loss, "scale_loss_for_distribution", losses.scale)
    wrap(keras_loss, "unscale_loss_for_distribution", losses.unscale)
    wrap(keras_loss, "reduce_weighted_values", losses.reduce_weighted_values)
    wrap(keras.metrics.Mean, "update_state", losses.update_mean)
    wrap(tf.GradientTape, "gradient", losses.gradient)
    for owner in (tf.nn, nn_impl_distribute):
        wrap(owner, "compute_average_loss", losses.compute_average_loss)
        wrap(owner, "scale_regularization_loss", losses.scale_regularization_loss)
    wrap(Trainer, "compile", _compile)
    wrap(Trainer, "_resolve_auto_jit_compile", _auto_jit_compile)
    wrap(trainer, "fit", _fit)
    wrap(trainer, "evaluate", _evaluate)
    wrap(trainer, "train_on_batch", _train_on_batch)
    wrap(trainer, "test_on_batch", _test_on_batch)
    trainer.stop_training = stopping.attribute()
    wrap(trainer, "_maybe_symbolic_build", _build)
    wrap(trainer, "_get_metrics_result_or_logs", _metrics_result)
    wrap(trainer, "_make_function", _make_function)
    wrap(trainer, "make_train_function", _make_train_function)
    wrap(trainer, "make_test_function", _make_test_function)
    wrap(trainer, "predict", _predict)
    wrap(trainer, "predict_on_batch", _predict_on_batch)
    wrap(trainer, "make_predict_function", _make_predict_function)
    python_steps.install()
    wrap(keras.Model, "export", _export)
    wrap(keras_trainer.TFEpochIterator, "__init__", _epoch_iterator)
    wrap(ArrayDataAdapter, "get_tf_dataset", _array_dataset)
    wrap(data_adapters, "is_tf_dataset", _is_dataset)
    wrap(random_seed, "get_seed", _dataset_seed)
    for owner, name, replacement in callbacks.changes() + whole_files.changes():
        wrap(owner, name, replacement)


# Variables.


def _initialize_variable(original, self, value):
    with made_by_keras():
        return original(self, value)


def _assign_variable(original, self, value):
    cross_step.flush_before_use(self)
    return original(self, value)


def _value_of_variable(self):
    cross_step.flush_before_use(self)
    return KerasVariable.value.fget(self)


# Gradients.


def _apply(original, self, grads, trainable_variables=None):
    if updates.current() is None and in_our_replica():
        grads = _weighted(self, grads, trainable_variables)
    if not cross_step.defer(self, grads, trainable_variables):
        original(self, grads, trainable_variables)


def _weighted(optimizer, gradients, variables):
    """What this worker contributes, before anything else is done with the gradients."""
    return local_batch.weighted(list(gradients), variables or optimizer._trainable_variables)


def _learning_rate(original, self):
    kept = cross_step.own_learning_rate(self)
    return original(self) if kept is None else kept


def _backend_apply_gradients(original, self, grads, trainable_variables):
    if not in_our_replica():
        return original(self, grads, trainable_variables)
    adopt_optimizer(self)
    with updates.updating(self, trainable_variables):
        return original(self, grads, trainable_variables)


def _clip_gradients(original, self, grads):
    """The first thing that Keras does with the gradients of an update, and only in updates."""
    update = updates.current()
    if update is not None and update.optimizer is self and in_our_replica():
        grads = update.reduce_once(grads, reduce_gradients)
    return original(self, grads)


def _all_reduce_sum_gradients(original, self, grads_and_vars):
    update = updates.current()
    if update is not None and update.reduced:
        return list(grads_and_vars)
    return original(self, grads_and_vars)


def _overwrite_variables(original, self, grads, variables):
    if in_our_replica():
        new_values = [
            local_batch.contribution(gradient) if overwriting.is_overwritten(variable) else gradient
            for gradient, variable in zip(grads, variables, strict=True)
        ]
        grads = overwriting.reduce_overwriting(new_values, variables)
    return original(self, grads, variables)


def _add_slot(original, self, *args, **kwargs):
    adopt_optimizer(self)
    return original(self, *args, **kwargs)


def _loss_scale_apply(original, self, grads, trainable_variables=None):
    if not in_our_replica() or updates.current() is not None:
        return original(self, grads, trainable_variables)
    variables = list(trainable_variables or self._trainable_variables)
    grads = _weighted(self, grads, variables)
    # With accumulation the gradients are reduced once in several steps, see _check_finite.
    reduce_now = not self.inner_optimizer.gradient_accumulation_steps
    if reduce_now:
        grads = reduce_gradients(grads, variables)
    with updates.updating(self, variables, reduced=reduce_now):
        return original(self, grads, trainable_variables)


def _check_finite(original, self, grads):
    update = updates.current()
    if update is None or update.reduced or not in_our_replica():
        return original(self, grads)

    def check(gradients):
        return original(self, gradients)

    def reduce(gradients, variables):
        reduced = reduce_gradients(gradients, variables)
        return reduced, check(reduced)

    finite, update.reduced_of = reduce_if_updating(self, grads, update.variables, check, reduce)
    return finite


# Training and prediction.


def _compile(original, self, *args, **kwargs):
    adopt_model(self)
    original(self, *args, **kwargs)


def _auto_jit_compile(original, self):
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


def _fit(original, self, *args, **kwargs):
    adopt_model(self)
    if not is_ours(self.distribute_strategy):
        warn_if_alone(self)
        return original(self, *args, **kwargs)
    call = inspect.signature(original).bind(self, *args, **kwargs)
    given = call.arguments.get("callbacks")
    metrics.give_back(self)
    outer, _local.fits = getattr(_local, "fits", None), self
    try:
        with leaving.telling_the_others():
            call.arguments["callbacks"] = callbacks.completed(given, self)
            with failures.in_a_sentence(), cross_step.training(self, callbacks.flat(given)):
                return original(*call.args, **call.kwargs)
    finally:
        _local.fits = outer
        stopping.forget(self)


def _evaluate(original, self, *args, **kwargs):
    outer = getattr(_local, "evaluates", False)
    _local.evaluates = True
    try:
        with failures.in_a_sentence():
            statistics.average(self)
            metrics.give_back(self)
            return original(self, *args, **kwargs)
    finally:
        _local.evaluates = outer
        if getattr(_local, "fits", None) is self and not kwargs.get("_use_cached_eval_dataset"):
            metrics.give_back(self)  # by a callback: the epoch goes on counting


def _train_on_batch(original, self, *args, **kwargs):
    adopt_model(self)
    if not is_ours(self.distribute_strategy):
        return original(self, *args, **kwargs)
    statistics.begin_if_new(self)
    metrics.give_back(self)
    result = original(self, *args, **kwargs)
    statistics.average(self)
    return result


def _test_on_batch(original, self, *args, **kwargs):
    metrics.give_back(self)
    return original(self, *args, **kwargs)


def _build(original, self, iterator=None, data_batch=None):
    """Reads from the input only if it is the only way to learn the shapes of a batch.

    A model with a step of its own is left to `_build_for_step`.
    """
    adopt_model(self)
    if not is_ours(self.distribute_strategy):
        return original(self, iterator, data_batch)
    has_own_step = any(building.has_own_step(self, step) for step in ("train_step", "test_step"))
    spec = None
    if iterator is not None:
        dataset = iterator._distributed_dataset
        if not building.must_read(self, dataset.told):
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
        # What runs eagerly may want numbers, as a metric in NumPy does. One process builds nothing.
        if not (self.run_eagerly and building.layers_are_built(self)):
            raise


def _build_for_step(model, step, is_traced):
    """Where the function of a step is made it is known which step the model is built for."""
    left, _local.left_to_build = getattr(_local, "left_to_build", None), None
    if left is None:
        return
    original, data_batch, spec = left
    if not building.has_own_step(model, step):
        original(model, None, data_batch)
    elif not is_traced:
        with model.distribute_strategy.scope():
            build = functools.partial(building.build_by_tracing, model, getattr(model, step))
            scaling.retrying(build)(spec)


def _metrics_result(original, self, logs):
    """Called at the end of each epoch and each evaluation, and nowhere else."""
    cross_step.flush()
    if not is_ours(self.distribute_strategy):
        return original(self, logs)
    if not getattr(_local, "evaluates", False):
        statistics.end_epoch(self)
    metrics.reduce_states(self)
    return metrics.of_all_workers(self, original(self, logs))


def _make_function(original, self, step_function):
    return local_batch.keeping_rows(self, scaling.retrying(original(self, step_function)))


def _make_train_function(original, self, force=False):
    cross_step.flush()
    _build_for_step(self, "train_step", self.train_function is not None)
    result = original(self, force)
    cross_step.prepare(self)
    return result


def _make_test_function(original, self, force=False):
    cross_step.flush()
    _build_for_step(self, "test_step", self.test_function is not None)
    return original(self, force)


def _export(original, self, *args, **kwargs):
    cross_step.flush()
    return original(self, *args, **kwargs)


def _predict(original, self, *args, **kwargs):
    adopt_model(self)
    collecting = local_batch.collecting_predictions(is_ours(self.distribute_strategy))
    with failures.in_a_sentence(), collecting:
        statistics.average(self)
        return original(self, *args, **kwargs)


def _predict_on_batch(original, self, *args, **kwargs):
    adopt_model(self)
    with local_batch.collecting_predictions(False):
        return original(self, *args, **kwargs)


def _make_predict_function(original, self, force=False):
    """`predict` and `predict_on_batch` share a function that Keras keeps, but ours differ."""
    cross_step.flush()
    if not is_ours(self.distribute_strategy):
        return original(self, force)
    collecting = local_batch.is_collecting_predictions()
    force = force or getattr(self.predict_function, "_byteps_collecting", collecting) != collecting
    original(self, force)
    self.predict_function._byteps_collecting = collecting


# Input.


def _epoch_iterator(original, self, distribute_strategy=None, *args, **kwargs):
    outer = getattr(_local, "input_strategy", None)
    _local.input_strategy = distribute_strategy
    try:
        original(self, distribute_strategy, *args, **kwargs)
    finally:
        _local.input_strategy = outer


def _array_dataset(original, self):
    if is_ours(getattr(_local, "input_strategy", None)):
        return arrays.share(self)
    return original(self)


def _is_dataset(original, data):
    return isinstance(data, BytePSDataset) or original(data)


def _dataset_seed(original, seed):
    if seed is not None or not shuffle.is_active() or shuffle.is_as_in_one_process():
        return original(seed)
    return tuple(tf.constant(part, tf.int64) for part in shuffle.seeds())
