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
* `losses.loss.scale_loss_for_distribution` and `unscale_loss_for_distribution`: pieces of a batch
  may have different lengths.
* `TensorFlowTrainer.fit`: initial values from worker 0, after callbacks that restore.
* `TensorFlowTrainer.fit`, `evaluate` and `predict`: the loss of a process is an error of a sentence
  (see `failures`).
* `TensorFlowTrainer.stop_training`: all workers stop training together (see `stopping`).
* `TensorFlowTrainer._maybe_symbolic_build`: no batch of the input is used up to build the model.
* `TensorFlowTrainer._get_metrics_result_or_logs`: the logs of an epoch and the results of
  `evaluate` cover the rows of all workers, and so do moving statistics at the end of an epoch.
* `ModelCheckpoint`, `BackupAndRestore`, `CSVLogger` and `TensorBoard`: only worker 0 writes files
  (see `callbacks`).
* `saving_lib.save_model`, `save_weights_only`, `legacy_h5_format.save_model_to_hdf5`: all workers
  may save to one path.
* `TensorFlowTrainer.predict`, `predict_on_batch` and `make_predict_function`: `predict` returns the
  rows of all workers, `predict_on_batch` this worker's.
* `TFEpochIterator.__init__` and `ArrayDataAdapter.get_tf_dataset`: arrays are shuffled alike on all
  workers, each of which gathers its own rows only.
* `tensorflow.python.data.util.random_seed.get_seed`: so are datasets whose shuffle has no seed.
* `trainers.data_adapters.is_tf_dataset`: Keras knows distributed datasets by their classes' names.
"""

import inspect
import threading

import keras
import tensorflow as tf
from keras.src.backend.common.variables import Variable as KerasVariable
from keras.src.backend.tensorflow import core as keras_core
from keras.src.backend.tensorflow import trainer as keras_trainer
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.losses import loss as keras_loss
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.trainer import Trainer
from tensorflow.python.data.util import random_seed

from tf_byteps.strategy import (
    arrays,
    building,
    callbacks,
    cross_step,
    failures,
    local_batch,
    metrics,
    shuffle,
    statistics,
    stopping,
    updates,
    whole_files,
)
from tf_byteps.strategy.accumulation import reduce_if_updating
from tf_byteps.strategy.adoption import adopt_model, adopt_optimizer, is_ours
from tf_byteps.strategy.extended import BytePSReplicaContext
from tf_byteps.strategy.gradients import reduce_gradients
from tf_byteps.strategy.sharding import BytePSDataset
from tf_byteps.strategy.variables import made_by_keras
from tf_byteps.wrapping import wrap

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
    wrap(TFOptimizer, "add_variable_from_reference", _add_slot)
    wrap(keras.optimizers.LossScaleOptimizer, "apply", _loss_scale_apply)
    wrap(keras.optimizers.LossScaleOptimizer, "check_finite", _check_finite)
    wrap(keras_loss, "scale_loss_for_distribution", _scale_loss)
    wrap(keras_loss, "unscale_loss_for_distribution", _unscale_loss)
    wrap(Trainer, "compile", _compile)
    wrap(trainer, "fit", _fit)
    wrap(trainer, "evaluate", _evaluate)
    trainer.stop_training = stopping.attribute()
    wrap(trainer, "_maybe_symbolic_build", _build)
    wrap(trainer, "_get_metrics_result_or_logs", _metrics_result)
    wrap(trainer, "make_train_function", _make_train_function)
    wrap(trainer, "make_test_function", _make_test_function)
    wrap(trainer, "predict", _predict)
    wrap(trainer, "predict_on_batch", _predict_on_batch)
    wrap(trainer, "make_predict_function", _make_predict_function)
    wrap(keras.Model, "export", _export)
    wrap(keras_trainer.TFEpochIterator, "__init__", _epoch_iterator)
    wrap(ArrayDataAdapter, "get_tf_dataset", _array_dataset)
    wrap(data_adapters, "is_tf_dataset", _is_dataset)
    wrap(random_seed, "get_seed", _dataset_seed)
    for owner, name, replacement in callbacks.changes() + whole_files.changes():
        wrap(owner, name, replacement)


def _in_our_replica():
    return isinstance(tf.distribute.get_replica_context(), BytePSReplicaContext)


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
    if not cross_step.defer(self, grads, trainable_variables):
        original(self, grads, trainable_variables)


def _learning_rate(original, self):
    kept = cross_step.own_learning_rate(self)
    return original(self) if kept is None else kept


def _backend_apply_gradients(original, self, grads, trainable_variables):
    if not _in_our_replica():
        return original(self, grads, trainable_variables)
    adopt_optimizer(self)
    with updates.updating(self, trainable_variables):
        return original(self, grads, trainable_variables)


def _clip_gradients(original, self, grads):
    """The first thing that Keras does with the gradients of an update, and only in updates."""
    update = updates.current()
    if update is not None and update.optimizer is self and not update.reduced:
        if update.reduced_of is None:
            grads = reduce_gradients(grads, update.variables)
        else:
            grads = update.reduced_of(update.variables)
        update.reduced = True
    return original(self, grads)


def _all_reduce_sum_gradients(original, self, grads_and_vars):
    update = updates.current()
    if update is not None and update.reduced:
        return list(grads_and_vars)
    return original(self, grads_and_vars)


def _add_slot(original, self, *args, **kwargs):
    adopt_optimizer(self)
    return original(self, *args, **kwargs)


def _loss_scale_apply(original, self, grads, trainable_variables=None):
    if not _in_our_replica() or updates.current() is not None:
        return original(self, grads, trainable_variables)
    variables = trainable_variables or self._trainable_variables
    # With accumulation the gradients are reduced once in several steps, see _check_finite.
    reduce_now = not self.inner_optimizer.gradient_accumulation_steps
    if reduce_now:
        grads = reduce_gradients(grads, variables)
    with updates.updating(self, variables, reduced=reduce_now):
        return original(self, grads, trainable_variables)


def _check_finite(original, self, grads):
    update = updates.current()
    if update is None or update.reduced:
        return original(self, grads)

    def check(gradients):
        return original(self, gradients)

    def reduce(gradients, variables):
        reduced = reduce_gradients(gradients, variables)
        return reduced, check(reduced)

    finite, update.reduced_of = reduce_if_updating(self, grads, update.variables, check, reduce)
    return finite


# Losses.


def _scale_loss(original, value):
    batch = local_batch.current()
    if batch is None:
        return original(value)
    return value * tf.cast(batch.loss_weight, value.dtype)


def _unscale_loss(original, value):
    batch = local_batch.current()
    if batch is None:
        return original(value)
    return tf.math.divide_no_nan(value, tf.cast(batch.loss_weight, value.dtype))


# Training and prediction.


def _compile(original, self, *args, **kwargs):
    adopt_model(self)
    original(self, *args, **kwargs)


def _fit(original, self, *args, **kwargs):
    adopt_model(self)
    if not is_ours(self.distribute_strategy):
        return original(self, *args, **kwargs)
    call = inspect.signature(original).bind(self, *args, **kwargs)
    given = call.arguments.get("callbacks")
    call.arguments["callbacks"] = callbacks.completed(given, self)
    try:
        with failures.in_a_sentence(), cross_step.training(self, callbacks.flat(given)):
            return original(*call.args, **call.kwargs)
    finally:
        stopping.forget(self)


def _evaluate(original, self, *args, **kwargs):
    with failures.in_a_sentence():
        return original(self, *args, **kwargs)


def _build(original, self, iterator=None, data_batch=None):
    """Reads from the input only if it is the only way to learn the shapes of a batch."""
    adopt_model(self)
    if iterator is not None and is_ours(self.distribute_strategy):
        dataset = iterator._distributed_dataset
        if not building.must_read(self, dataset.told):
            iterator, data_batch = None, building.symbolic_batch(dataset.element_spec)
    original(self, iterator, data_batch)


def _metrics_result(original, self, logs):
    """Called at the end of each epoch and each evaluation, and nowhere else."""
    cross_step.flush()
    if not is_ours(self.distribute_strategy):
        return original(self, logs)
    statistics.end_epoch(self)
    metrics.reduce_states(self)
    result = original(self, logs)
    return metrics.average_logs(logs) if result is logs else result


def _make_train_function(original, self, force=False):
    cross_step.flush()
    result = original(self, force)
    cross_step.prepare(self)
    return result


def _make_test_function(original, self, force=False):
    cross_step.flush()
    return original(self, force)


def _export(original, self, *args, **kwargs):
    cross_step.flush()
    return original(self, *args, **kwargs)


def _predict(original, self, *args, **kwargs):
    adopt_model(self)
    collecting = local_batch.collecting_predictions(is_ours(self.distribute_strategy))
    with failures.in_a_sentence(), collecting:
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
    if seed is not None or not shuffle.is_active():
        return original(seed)
    return tuple(tf.constant(part, tf.int64) for part in shuffle.seeds())
