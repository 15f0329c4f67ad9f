"""Checkpoints of a training, from which it goes on at the same step with the same batches."""

# Keras's types say little of a callback's model and parameters.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import concurrent.futures
import functools
import logging
import os
from typing import Any, Literal

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange.content import same
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.objects import broadcast_object
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.keras import checkpoint_files
from tf_byteps.keras.checkpoint_files import Checkpoint
from tf_byteps.keras.framework import current
from tf_byteps.keras.leaving import is_leaving
from tf_byteps.strategy.fit import own_states, statistics, weights
from tf_byteps.tables import layout as layouts

_logger = logging.getLogger("tf_byteps")

_SAME_ORDER = "For the same order call keras.utils.set_random_seed before the data are made"
# A worker that joins has asked for fewer numbers than those that were there.
_SAME_ORDER_ELASTIC = "For the same order give each shuffle a seed, as this job is elastic"


class TrainingCheckpoint(keras.callbacks.Callback):
    """Saves a training every some steps. Started again, it goes on where it was.

    A checkpoint has the variables of the model and its optimizers, the epoch and batch, the
    position in the data, the states of metrics and the seeds of layers. A training that is killed
    and started again so shows the losses of one that was not. For that the data must come in the
    same order again: call `keras.utils.set_random_seed` first, and in an elastic job give each
    `shuffle` a seed. The batches before are read again and thrown away; of earlier epochs none are,
    unless a function of the pipeline draws random numbers or calls Python, or the pipeline repeats
    or caches what it shuffles.

    Worker 0 writes, beside the checkpoints that are there, and moves the file to its place when it
    is whole. The workers go on meanwhile. Where `fit` begins all go on from the newest checkpoint
    that one of them sees, also with another number of workers. Moving statistics and accumulated
    gradients are averaged over the workers when they are saved. What other callbacks remember, and
    error feedback of compressed gradients, is not saved.

    Give it to all workers. It needs a model of `BytePSStrategy`. Each training has a directory of
    its own. Put `LeaveOnSignal` behind it to save on SIGTERM, too.

    Args:
        directory: where the files are, such as `step-00001200.npz`.
        save_freq: a number of steps, or "epoch".
        max_to_keep: how many checkpoints stay.
        save_on_background: whether a thread writes while the training goes on. It needs memory for
            a second copy of the variables on worker 0. One checkpoint is written at a time.

    Raises:
        ValueError: an argument is wrong; when training begins: the model is no `BytePSStrategy`'s,
            not all workers have the callback, or the checkpoint cannot be read or is one of another
            model.
        OSError: a file cannot be written. Then the training ends.

    Example:

    >>> model.fit(dataset, epochs=90, callbacks=[
    ...     tf_byteps.keras.callbacks.TrainingCheckpoint("checkpoints", save_freq=1000),
    ...     tf_byteps.keras.callbacks.LeaveOnSignal(),
    ... ])
    """

    reads_weights = False  # but through Keras's variables, which are whole then

    def __init__(
        self,
        directory: str | os.PathLike[str],
        save_freq: int | Literal["epoch"] = 1000,
        max_to_keep: int = 3,
        save_on_background: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("save_freq", save_freq), ("max_to_keep", max_to_keep)):
            if value != "epoch" and not (isinstance(value, int) and value > 0):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        self.directory = os.fspath(directory)
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.save_on_background = save_on_background
        #: What a `fit` compares between the workers before it begins.
        self.collective = f"TrainingCheckpoint(save_freq={save_freq!r})"
        self._found: Checkpoint | None = None
        self._writing: concurrent.futures.Future[None] | None = None
        self._epoch = self._batches = self._steps_before = self._saved_step = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Takes up the newest checkpoint."""
        if not is_ours(getattr(self.model, "distribute_strategy", None)):
            raise ValueError(
                "TrainingCheckpoint needs a model of BytePSStrategy: make it in the scope, or use "
                "keras.callbacks.BackupAndRestore"
            )
        if layouts.spread_variables(self.model):
            raise NotImplementedError(
                "TrainingCheckpoint does not save tables whose rows are spread over the workers, "
                "as those of DistributedEmbedding are: use keras.callbacks.BackupAndRestore"
            )
        self._epoch = self._batches = self._steps_before = self._saved_step = 0
        self._content = current().data_of(self.model)
        self._found = self._restored()
        if self._found is None:
            return
        facts = self._found.facts
        self.model._initial_epoch = facts["epoch"]
        self._steps_before = facts["step"] - facts["batch"]
        self._saved_step = facts["step"]
        self._say_where_it_goes_on(facts)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Goes to the batch where the training was, in its first epoch; else saves if it is due."""
        found, self._found = self._found, None
        self._epoch = epoch
        if found is not None:
            self.model._initial_epoch = None  # another `fit` begins with its own
            own_states.restore(self.model, found.own)
            current().go_to_position(
                self.model, found.facts["position"], found.facts["batch"], self._say_others
            )
            return
        self._steps_before += self._batches
        self._batches = 0
        if self._is_due(is_epoch=True):
            self._save(epoch, 0)

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves if it is due. Here the last step has been made, and a GPU need not wait for it."""
        self._batches = batch
        if batch and self._is_due():
            self._save(self._epoch, batch, not_taken=self.model.steps_per_execution)
        self._batches = batch + self.model.steps_per_execution

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Saves where the training has ended, or is to go on later; waits for what is written."""
        steps, epochs = self.params.get("steps"), self.params.get("epochs") or 0
        if is_leaving(self.model):
            is_whole = steps is not None and self._batches >= steps
            at = (self._epoch + 1, 0) if is_whole else (self._epoch, self._batches)
            self._save(*at)
        elif self._epoch + 1 >= epochs and not self.model.stop_training:
            self._save(self._epoch + 1, 0)
        self._wait()

    def _is_due(self, is_epoch: bool = False) -> bool:
        step = self._steps_before + self._batches
        if not isinstance(self.save_freq, int):  # "epoch"
            return is_epoch and step > self._saved_step
        return step // self.save_freq > self._saved_step // self.save_freq

    def _save(self, epoch: int, batch: int, not_taken: int = 0) -> None:
        """A collective: the batches are the same on all workers."""
        current().read_variables(self.model)
        statistics.average_all(self.model)
        own = own_states.gather(self.model)
        step = self._saved_step = self._steps_before + self._batches
        if not self.model.distribute_strategy.extended.should_checkpoint:
            return
        facts = {
            "epoch": epoch,
            "batch": batch,
            "step": step,
            "position": current().position_of(self.model, batch > 0, not_taken),
            "content": self._content,
        }
        self._wait()  # so that there is one copy in memory
        variables = [
            (variable.path, np.array(keras.ops.convert_to_numpy(variable)))
            for variable in weights.common_variables(self.model)
        ]
        checkpoint = Checkpoint(facts, variables, own)
        keep = self.max_to_keep
        self._writing = _thread().submit(
            checkpoint_files.write, self.directory, step, checkpoint, keep
        )
        if not self.save_on_background:
            self._wait()

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _restored(self) -> Checkpoint | None:
        """The newest checkpoint, whose variables all workers have then. A collective."""
        # What a training of this process that has failed was writing, with a callback of its own:
        # it may be the newest, and is not to be taken for what a killed process has left.
        _thread().submit(_nothing).result()
        newest = max(checkpoint_files.steps(self.directory), default=-1)
        everyone = gather_objects("training checkpoints", newest)
        root = everyone.index(max(everyone))
        if everyone[root] < 0:
            return None
        taken = self._take_up() if runtime.rank() == root else None
        error, facts, own = broadcast_object(taken, root, name="training checkpoint")
        if error:
            raise on_all_workers(ValueError(error))
        if root:  # worker 0's are made everybody's
            current().broadcast_variables(weights.common_variables(self.model), root)
        return Checkpoint(facts, [], own)

    def _take_up(self) -> list[Any]:
        """Sets this worker's variables; returns an error, or what the others must know."""
        if self.model.optimizer is not None and not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        try:
            found = self._read()
            _assign(weights.common_variables(self.model), found, self.directory)
        except (OSError, ValueError) as error:
            return [str(error), None, None]
        return ["", found.facts, found.own]

    def _read(self) -> Checkpoint:
        checkpoint_files.remove_unfinished(self.directory)
        steps = checkpoint_files.steps(self.directory)
        for step in steps:
            try:
                return checkpoint_files.read(self.directory, step)
            except (OSError, ValueError) as error:
                _logger.warning(
                    "the checkpoint %s cannot be read, so an older one is used: %s",
                    checkpoint_files.path_of(self.directory, step),
                    error,
                )
        raise OSError(
            f"none of the {len(steps)} checkpoints in {self.directory} can be read. Remove them to "
            "begin a new training"
        )

    def _say_where_it_goes_on(self, facts: dict[str, Any]) -> None:
        if runtime.rank() != 0:
            return
        epochs = self.params.get("epochs") or 0
        if facts["epoch"] >= epochs:
            _logger.warning(
                "nothing to train: the checkpoint in %s is of the end of epoch %d, and epochs=%d. "
                "Use another directory for a new training, or more epochs to go on",
                self.directory,
                facts["epoch"],
                epochs,
            )
            return
        _logger.info(
            "the training goes on after %d steps, at epoch %d and batch %d",
            facts["step"],
            facts["epoch"],
            facts["batch"],
        )
        if not same(facts["content"], self._content):
            self._say_others()

    def _say_others(self) -> None:
        if runtime.rank() == 0:
            _logger.warning(
                "the data or their order are not those of the checkpoint, so that rows of this "
                "epoch may come twice or not at all. %s",
                _SAME_ORDER_ELASTIC if runtime.config().elastic else _SAME_ORDER,
            )


def _assign(variables: list[Any], found: Checkpoint, directory: str) -> None:
    saved = found.variables
    advice = f"{directory} has checkpoints of another model: give each training its own directory"
    if len(saved) != len(variables):
        raise ValueError(
            f"{advice}. They have {len(saved)} variables, the model and its optimizer "
            f"{len(variables)}"
        )
    for variable, (path, value) in zip(variables, saved, strict=True):
        if tuple(variable.shape) != value.shape or str(variable.dtype) != str(value.dtype):
            raise ValueError(
                f"{advice}. {path!r} is {value.dtype} {list(value.shape)} in them, and the model's "
                f"{variable.path!r} is {variable.dtype} {list(variable.shape)}"
            )
    for variable, (_, value) in zip(variables, saved, strict=True):
        variable.assign(value)


def _nothing() -> None:
    """What the thread does when it has done all before."""


@functools.cache
def _thread() -> concurrent.futures.ThreadPoolExecutor:
    """One for all callbacks. Python waits for it when the process ends."""
    return concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="byteps-checkpoint")
