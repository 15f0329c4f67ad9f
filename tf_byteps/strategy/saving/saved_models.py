"""What `BytePSStrategy` changes about TensorFlow's SavedModels, which `model.export` writes, too.

The names of a SavedModel's variables may differ from worker to worker: its files belong together.
"""

import collections
import hashlib
import logging
import os
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps.private.tensorflow import (
    BaseResourceVariable,
    ObjectGraphView,
    saved_model_load as load,
    saved_model_save as save,
)
from tf_byteps.strategy.saving import beside, turns
from tf_byteps.types import Path
from tf_byteps.wrapping import Change

_logger = logging.getLogger("tensorflow")
_saves = collections.Counter()  # path -> how often this process has saved there


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [(save, "save_and_return_nodes", _save), (load, "load_partial", _load)]


def _save(
    original: Callable[..., Any], obj: object, export_dir: Path, *args: object, **kwargs: object
) -> Any:
    if not tf.executing_eagerly() or not turns.is_shared(export_dir):
        return original(obj, export_dir, *args, **kwargs)
    target = pathlib.Path(os.path.abspath(tf.compat.as_str(os.fspath(export_dir))))
    _saves[target] += 1
    returned = []

    def write() -> list[pathlib.Path]:
        with beside.folder(target) as folder:
            names = _Names(str(folder), str(target.parent))
            _logger.addFilter(names)
            try:
                returned.append(original(obj, os.fspath(folder / target.name), *args, **kwargs))
            finally:
                _logger.removeFilter(names)
            return beside.move(folder, target, lambda path: path.name == "saved_model.pb")

    turns.save_once(target, _identity(obj, target) if turns.are_needed() else "", write)
    return returned[0] if returned else None


def _identity(obj: object, target: pathlib.Path) -> str:
    """A number for the variables, and for the turn in which a program saves there.

    Functions cannot be compared: the workers' saves are those of one program.
    """
    if type(obj).__module__.startswith("tf_keras."):
        return ""  # it needs what was returned
    objects = ObjectGraphView(obj).breadth_first_traversal()[0]
    numbers = []
    for variable in objects:
        if isinstance(variable, BaseResourceVariable):
            value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            digest = hashlib.blake2b(digest_size=16)
            turns.add_to_digest(digest, value)
            numbers.append(digest.hexdigest())
    all_of_them = " ".join([type(obj).__qualname__, str(_saves[target]), *sorted(numbers)])
    return hashlib.blake2b(all_of_them.encode(), digest_size=16).hexdigest()


def _load(original: Callable[..., Any], export_dir: Path, *args: object, **kwargs: object) -> Any:
    """No worker of this host writes the files meanwhile."""
    is_path = isinstance(export_dir, (str, os.PathLike)) and turns.is_shared(export_dir)
    if not is_path or not turns.are_needed():
        return original(export_dir, *args, **kwargs)
    with turns.turn(export_dir, reads=True):
        return original(export_dir, *args, **kwargs)


class _Names(logging.Filter):
    """Makes what TensorFlow logs name the place where a file will be."""

    def __init__(self, where: str, to_be: str) -> None:
        super().__init__()
        self._where, self._to_be = where, to_be

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = record.getMessage().replace(self._where, self._to_be), ()
        return True
