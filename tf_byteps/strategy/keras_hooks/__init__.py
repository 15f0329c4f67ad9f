"""All changes that tf_byteps makes to Keras and TensorFlow while they run, in one place.

Checked with Keras 3.15 and TensorFlow 2.21. They are installed when the first `BytePSStrategy` is
made; each asks first whether a `BytePSStrategy` is at work and otherwise does exactly what it did
before.

* `Variable._initialize`: to tell Keras's variables from the user's (see `variables`).
* `Variable.value` and `_direct_assign`, `BaseOptimizer.apply` and `_get_current_learning_rate`,
  `TensorFlowTrainer.make_train_function` and `make_test_function`, `Model.export`: a step's updates
  may be left to the next step, but nobody else may notice (see `cross_step`).
* `BaseOptimizer.apply`, `_clip_gradients`: Keras clips before it reduces; the sum must come first,
  once for each update, also with gradient accumulation.
* `TFOptimizer._all_reduce_sum_gradients`: not to reduce again afterwards.
* `BaseOptimizer.add_variable`, `TFOptimizer.add_variable_from_reference`, `Trainer.compile`, and
  what uses a model: optimizers and models that were made outside the scope can be used in it (see
  `foreign_optimizers`).
* `LossScaleOptimizer.apply` and `check_finite`: each worker would decide by its own gradients
  whether to skip a step, and those that do not would wait for ever.
* `BaseOptimizer._overwrite_variables_directly_with_gradients`: new values of float8 scales are the
  largest of all workers; it says which variables are left for the update.
* `Adagrad.update_step` and `Embedding.call`: a step takes time for the rows of an embedding that it
  looks up, not for the whole table. So does clipping, in `BaseOptimizer._clip_gradients`.
* `nn.dot_product_attention`: with `flash_attention=True` cuDNN computes it (see `attention`).
* `Dense._float8_call` and `EinsumDense._float8_call`: gradients of outputs are measured in units of
  the whole batch's (see `float8`).
* `SeedGenerator.next`, and `get_seed` of TensorFlow's random operations: each replica draws its own
  numbers (see `noise`).
* `losses.loss.scale_loss_for_distribution`, `unscale_loss_for_distribution` and
  `reduce_weighted_values`, `metrics.Mean.update_state`, `tf.nn.compute_average_loss` and
  `scale_regularization_loss`: gradients carry the weights of the workers, not losses (see
  `losses`).
* `tf.GradientTape.gradient`, `jacobian` and `batch_jacobian`: what computes with gradients gets
  those of the whole batch (see `step.gradient_uses`); `__enter__`, and `BaseOptimizer.apply`:
  loops in the scope (see `step.loops`).
* `tf.cond`, `tf.while_loop`: workers do not part at a branch or loop with an update (see
  `step.branches`).
* `function_context.make_function_context`: functions that a step calls are traced again with it
  (see `step.traces`), and all when workers come or leave (see `training.traces`).
* `TensorFlowTrainer._make_function`: a step may be traced again (see `scaling`).
* `Trainer._resolve_auto_jit_compile`: Keras compiles no steps of a strategy by itself; ours can be.
* `TensorFlowTrainer.fit`: initial values from worker 0, after callbacks that restore.
* `TensorFlowTrainer.fit`, `evaluate` and `predict`: the loss of a process is an error of a sentence
  (see `failures`).
* `TensorFlowTrainer.stop_training`: all workers stop training together (see `stopping`).
* `TensorFlowTrainer._maybe_symbolic_build`: no batch of the input is used up to build the model.
* `TensorFlowTrainer._get_metrics_result_or_logs`: the logs of an epoch and the results of
  `evaluate` cover the rows of all workers, and so do moving statistics and accumulated gradients at
  the end of an epoch.
* `TensorFlowTrainer.evaluate`, `predict` and `train_on_batch`: so do moving statistics there, and
  accumulated gradients after `train_on_batch`.
* `TensorFlowTrainer.evaluate` and `predict`: their batches are no samples of the training.
* `TensorFlowTrainer.fit`, `evaluate`, `train_on_batch` and `make_test_function`: metrics that are
  not reset go on with each worker's own counts.
* `ModelCheckpoint`, `BackupAndRestore` and `OrbaxCheckpoint`: only worker 0 writes files, of what
  belongs to all workers (see `callbacks`).
* `CSVLogger.on_train_begin` and `on_epoch_end`, `TensorBoard.set_model` and `_log_embeddings`,
  `RemoteMonitor.on_epoch_end`: only worker 0 writes logs (see `loggers`).
* `CallbackList.__init__`: only worker 0 shows a progress bar (see `progress_bar`).
* `saving_lib.save_model`, `save_weights_only`, `legacy_h5_format.save_model_to_hdf5`,
  `Dataset.save`, checkpoints and SavedModels: all workers may save to one path (see `saving`).
* `tf_keras.Model.compile`, `fit` and others, if the program imports it: refused (see `keras2`).
* `CallbackList.on_train_batch_begin` and `on_train_batch_end`: timelines have Python's steps; the
  logs of a step are read when the next one has been started (see `deferred_logs`).
* `TensorFlowTrainer.predict`, `predict_on_batch` and `make_predict_function`: `predict` returns the
  rows of all workers, `predict_on_batch` this worker's.
* `ArrayDataAdapter.get_tf_dataset`: arrays are shuffled alike on all workers, each of which gathers
  its own rows only.
* `tensorflow.python.data.util.random_seed.get_seed`: so are datasets whose shuffle has no seed.
"""

import threading

from tf_byteps.strategy.fit import callbacks, dataset_files, deferred_logs, model_files
from tf_byteps.strategy.keras_hooks import gradients, input, training
from tf_byteps.strategy.saving import checkpoints, saved_models
from tf_byteps.strategy.step.traces import decision
from tf_byteps.timeline import python_steps
from tf_byteps.training import traces
from tf_byteps.wrapping import wrap_all

_lock = threading.Lock()
_installed = False


def install() -> None:
    """Makes the changes, once per process."""
    global _installed
    with _lock:
        if _installed:
            return
        _installed = True
    python_steps.install()
    parts = (gradients, training, input, callbacks, deferred_logs, model_files, dataset_files)
    wrap_all([change for part in (*parts, checkpoints, saved_models) for change in part.changes()])
    traces.depend_on(decision)
    gradients.replace_value()
    training.replace_stop_training()
