"""What `BytePSStrategy` changes about TensorFlow's checkpoints.

TensorFlow writes a checkpoint into a folder whose name follows from the checkpoint's, and whoever
is the first to be ready deletes that folder. Two workers with one path would end each other's job.
"""

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tf_byteps.private.tensorflow import (
    OBJECT_GRAPH_PROTO_KEY,  # pyright: ignore[reportAttributeAccessIssue]
    checkpoint,
    checkpoint_management,
    file_io,
    functional_saver,
)
from tf_byteps.strategy.saving import beside, turns
from tf_byteps.wrapping import Change


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (functional_saver.MultiDeviceSaver, "save", _save),
        (checkpoint.TrackableSaver, "restore", _restore),
        (checkpoint_management, "_delete_file_if_exists", _delete),
    ]


def _save(original: Callable[..., Any], self: Any, file_prefix: str, options: object = None) -> Any:
    if not tf.executing_eagerly():
        return original(self, file_prefix, options)
    path = tf.compat.as_str(tf.convert_to_tensor(file_prefix).numpy())
    if not turns.is_shared(path) or self._num_unique_tasks > 1:
        return original(self, file_prefix, options)
    # Variables that all workers take together are exchanged here, before anybody waits for a turn.
    shards = self._get_shards_by_task(getattr(options, "experimental_sharding_callback", None))

    def write() -> list[pathlib.Path]:
        target = pathlib.Path(os.path.abspath(path))
        with beside.folder(target) as folder, _with_shards(self, shards):
            original(self, tf.constant(os.fspath(folder / target.name)), options)
            return beside.move(folder, target, lambda file: file.suffix == ".index")

    # What a saver of the program's own writes is not known.
    is_known = turns.are_needed() and not self._registered_savers
    turns.save_once(path, _identity(shards) if is_known else "", write)
    return None


@contextlib.contextmanager
def _with_shards(saver: Any, shards: list[Any]) -> Iterator[None]:
    saver._get_shards_by_task = lambda callback: shards
    try:
        yield
    finally:
        del saver._get_shards_by_task


def _identity(shards: list[Any]) -> str:
    """A number for all values of a checkpoint, under their keys.

    The graph of objects is left out: it lists the same ones in an order of the process's.
    """
    values = {
        (key, spec): tensor
        for _, parts in shards
        for part in parts
        for key, slices in part.items()
        for spec, tensor in slices.items()
        if key != OBJECT_GRAPH_PROTO_KEY
    }
    digest = hashlib.blake2b(digest_size=16)
    for key in sorted(values):
        turns.add_to_digest(digest, values[key], *key)
    return digest.hexdigest()


def _restore(
    original: Callable[..., Any], self: Any, save_path: str, *args: object, **kwargs: object
) -> Any:
    """No worker of this host writes the checkpoint meanwhile."""
    is_path = isinstance(save_path, (str, os.PathLike)) and turns.is_shared(save_path)
    if not is_path or not turns.are_needed():
        return original(self, save_path, *args, **kwargs)
    with turns.turn(save_path, reads=True):
        return original(self, save_path, *args, **kwargs)


def _delete(original: Callable[..., Any], filespec: str) -> None:
    """Leaves a checkpoint that a worker of this host has saved, and not deleted so far."""
    if not turns.is_shared(filespec):
        original(filespec)
        return
    prefix = re.sub(r"\.(index|data-\?{5}-of-\?{5})$", "", filespec)
    with turns.turn(prefix) if turns.are_needed() else contextlib.nullcontext(turns.Turn()) as mine:
        if mine.give_up():
            for path in file_io.get_matching_files(filespec):
                with contextlib.suppress(tf.errors.NotFoundError):  # by a worker of another host
                    file_io.delete_file(path)
