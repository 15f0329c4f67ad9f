"""What `BytePSStrategy` changes about Keras's callbacks.

All workers have the same callbacks and see the same logs at the end of an epoch, so that they
decide alike. Three things are left: files are to be written once, what was read from a file must
reach workers that cannot see it, and a decision that one worker takes alone must become everyone's.
"""

import keras

from tf_byteps import runtime
from tf_byteps.strategy import statistics
from tf_byteps.strategy.adoption import is_ours
from tf_byteps.strategy.agreement import gather_objects


class FitCallback(keras.callbacks.Callback):
    """Runs after the user's callbacks, at points of `fit` that all workers pass."""

    def on_train_begin(self, logs=None):
        """Weights and the first epoch are worker 0's, also after a callback restored a backup."""
        model = self.model
        model._initial_epoch = gather_objects("first epoch", model._initial_epoch)[0]
        model.distribute_strategy.extended.synchronize_model(model)

    def on_epoch_begin(self, epoch, logs=None):
        statistics.begin_epoch(self.model)

    def on_epoch_end(self, epoch, logs=None):
        """All stop if one has decided to (protocol rule 26)."""
        if runtime.size() > 1:
            stopping = gather_objects("stop training", bool(self.model.stop_training))
            self.model.stop_training = any(stopping)


def changes():
    """The changes to Keras that let worker 0 alone write files.

    Returns:
        A list of triples: a class, the name of a method, and a function that replaces it and is
        called with the original before the method's arguments.
    """
    classes = keras.callbacks
    whole = [(classes.CSVLogger, name) for name in _handlers(classes.CSVLogger)]
    whole += [(classes.TensorBoard, name) for name in _handlers(classes.TensorBoard)]
    # Reading as well: the others may see no backup, or an old one.
    whole += [(classes.BackupAndRestore, name) for name in ("on_train_begin", "on_train_end")]
    whole += [(classes.BackupAndRestore, "_save_model")]
    return [
        *((owner, name, _on_worker_0) for owner, name in whole),
        (classes.TensorBoard, "set_model", _set_model),
        (classes.ModelCheckpoint, "_save_model", _decide_and_save),
    ]


def _handlers(callback_class):
    return [name for name in vars(callback_class) if name.startswith("on_")]


def _leaves_files_to_worker_0(model):
    strategy = getattr(model, "distribute_strategy", None)
    return is_ours(strategy) and not strategy.extended.should_checkpoint


def _on_worker_0(original, self, *args, **kwargs):
    if not _leaves_files_to_worker_0(self.model):
        original(self, *args, **kwargs)


def _set_model(original, self, model):
    """`TensorBoard` writes the model's graph here."""
    if _leaves_files_to_worker_0(model):
        keras.callbacks.Callback.set_model(self, model)
    else:
        original(self, model)


def _decide_and_save(original, self, epoch, batch, logs):
    """Every worker keeps the best value so far, which `ModelCheckpoint` shows as `best`."""
    if _leaves_files_to_worker_0(self.model):
        path = self._get_file_path(epoch, batch, logs)
        self._should_save_model(epoch, batch, logs, path)
    else:
        original(self, epoch, batch, logs)
