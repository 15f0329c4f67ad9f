"""Datasets of `tf.data` that all workers save to one path.

`strategy.saving` says what must hold.
"""

import collections
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.private.tensorflow import save_op
from tf_byteps.strategy.input import content
from tf_byteps.strategy.saving import beside, turns
from tf_byteps.types import Path
from tf_byteps.wrapping import Change

_saves = collections.Counter()  # path -> how often this process has saved a dataset there


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [(save_op, "_save", _save)]


def _save(
    original: Callable[..., Any],
    dataset: tf.data.Dataset,
    path: Path,
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: object = None,
) -> Any:
    """With `checkpoint_args` a save that was interrupted goes on where it was: in its place."""
    is_path = isinstance(path, (str, os.PathLike)) and turns.is_shared(path)
    if not is_path or checkpoint_args or not tf.executing_eagerly():
        return original(dataset, path, compression, shard_func, checkpoint_args)
    target = pathlib.Path(os.path.realpath(path))
    _saves[target] += 1

    def write() -> list[pathlib.Path]:
        with beside.folder(target) as folder:
            original(dataset, os.fspath(folder / target.name), compression, shard_func)
            return beside.move(folder, target, lambda file: file.name == "snapshot.metadata")

    # What functions and files give cannot be compared: the workers' saves are those of one program.
    known = [_saves[target], compression, shard_func is None, str(dataset.element_spec)]
    known += [[type(stage).__name__ for stage in content.stages(dataset)]]
    turns.save_once(target, json.dumps([*known, content.of_dataset(dataset)]), write)
    return None
