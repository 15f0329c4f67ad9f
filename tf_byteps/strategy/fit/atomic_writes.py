"""Saved models and weights of Keras, and datasets, that all workers save to one path.

`strategy.saving` says what must hold.
"""

import collections
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_byteps.private.keras import file_utils, legacy_h5_format, saving_lib
from tf_byteps.private.tensorflow import save_op
from tf_byteps.strategy.fit import statistics
from tf_byteps.strategy.input import content
from tf_byteps.strategy.saving import beside, checkpoints, turns
from tf_byteps.types import Path
from tf_byteps.wrapping import Change

_ADDRESS = re.compile(r'"shared_object_id": \d+')  # of an object in this process's memory
_saves = collections.Counter()  # path -> how often this process has saved a dataset there


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (saving_lib, "save_model", _save),
        (saving_lib, "save_weights_only", _save),
        (legacy_h5_format, "save_model_to_hdf5", _save),
        (save_op, "_save", _save_dataset),
    ]


def _save(
    original: Callable[..., Any],
    model: keras.Model,
    filepath: Path,
    *args: object,
    **kwargs: object,
) -> None:
    is_path = isinstance(filepath, (str, os.PathLike)) and not file_utils.is_remote_path(filepath)
    if not is_path or not checkpoints.is_shared(filepath):
        original(model, filepath, *args, **kwargs)
        return
    statistics.warn_if_own(model)
    target = pathlib.Path(os.path.realpath(filepath))

    def write() -> list[pathlib.Path]:
        with beside.folder(target) as folder:
            original(model, os.fspath(folder / target.name), *args, **kwargs)
            return beside.move(folder, target, lambda file: file.suffix == ".json")

    how = [original.__name__, *map(repr, args), *map(repr, sorted(kwargs.items()))]
    turns.save_once(target, _identity(model, how) if turns.are_needed() else "", write)


def _identity(model: keras.Model, how: list[str]) -> str:
    """A number for all that is saved of a model; "" if its layers save what is not known."""
    parts = list(model._flatten_layers())
    if any(map(_saves_itself, parts)):
        return ""
    how += [f"{type(part).__module__}.{type(part).__qualname__}" for part in parts]
    if how[0] != saving_lib.save_weights_only.__name__:
        config, _ = saving_lib._serialize_model_as_json(model)
        how.append(_ADDRESS.sub("", config))
    digest = hashlib.blake2b("\n".join(how).encode(), digest_size=16)
    optimizer = getattr(model, "optimizer", None)
    for variable in [*model.variables, *(optimizer.variables if optimizer is not None else ())]:
        checkpoints.add(digest, variable.value, variable.path)
    return digest.hexdigest()


def _saves_itself(layer: keras.layers.Layer) -> bool:
    """Whether what a layer saves may be more than its configuration and variables."""
    save = type(layer).save_own_variables
    is_own = save is not keras.Layer.save_own_variables and not save.__module__.startswith("keras.")
    return is_own or hasattr(layer, "save_assets")


def _save_dataset(
    original: Callable[..., Any],
    dataset: tf.data.Dataset,
    path: Path,
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: object = None,
) -> Any:
    """With `checkpoint_args` a save that was interrupted goes on where it was: in its place."""
    is_path = isinstance(path, (str, os.PathLike)) and checkpoints.is_shared(path)
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
