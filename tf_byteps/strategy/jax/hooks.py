"""All changes that tf_byteps makes to Keras where it runs on JAX, in one place.

Checked with Keras 3.15. They are installed when the first `BytePSStrategy` is made; each asks first
whether a model of a `BytePSStrategy` is at work and otherwise does what it did before.

* `JAXTrainer.__init__`, `Trainer.compile` and what uses a model: models that are made, compiled or
  trained in a scope belong to its strategy (see `scopes`).
* `JAXEpochIterator._get_iterator`, `JAXTrainer.train_on_batch` and `test_on_batch`: each worker
  takes its piece of every batch (see `batches`).
* `JAXTrainer._symbolic_build`: who is new builds a model without the others (see `batches`).
* `JAXTrainer._make_function`, `make_train_function` and `make_test_function`: a step knows its rows
  while it is traced, the model's own methods `train_step` and `test_step` too (see `steps`).
* `StatelessScope.__init__`: a derivative by a weight that is read from it is the gradient of the
  whole batch (see `origins`).
* `BaseOptimizer.stateless_apply` and `apply`, those of `LossScaleOptimizer`: so do optimizers, of
  other gradients (see `gradients`).
* `losses.loss.reduce_weighted_values`, `metrics.Mean.update_state`: losses that are no means over
  rows (see `gradients`).
* `SeedGenerator.next`: each worker draws its own numbers in a step.
* `JAXTrainer.fit`, `evaluate`, `predict`: initial values, files, metrics, statistics and the end of
  the training are all workers' (see `strategy.fit`); a lost process is an error of a sentence (see
  `failures`).
* `JAXTrainer.make_predict_function`: initial values of a model that has not been trained.
* `JAXTrainer._get_metrics_result_or_logs`: logs cover the rows of all workers.
* `JAXTrainer._symbolic_build` and `make_train_function`, `CallbackList.on_train_batch_end`: the
  first epoch of a training may have no batch (see `empty_epochs`).
* `JAXTrainer.fit`, `train_on_batch` and `jax_state_sync`: updates that the next step does (see
  `cross_step`).
* `JAXTrainer.stop_training`: all workers stop together.
* `saving_lib.save_model`, `save_weights_only`, `legacy_h5_format.save_model_to_hdf5`: all
  workers may save to one path (see `saving`).
* callbacks that write files, and the progress bar: worker 0 alone (see `strategy.fit.callbacks` and
  `loggers`).
"""

import threading

from tf_byteps.strategy.fit import callbacks, model_files
from tf_byteps.strategy.jax import cross_step, empty_epochs, gradients, trainer
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
    parts = (gradients, trainer, cross_step, callbacks, model_files)
    wrap_all([change for part in parts for change in part.changes()])
    empty_epochs.install()
    trainer.replace_stop_training()
