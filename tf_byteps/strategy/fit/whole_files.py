"""Saved models and weights appear under their path only when they are whole.

All workers may be told to save to one path, at the same time, and may read it at once. Each writes
beside the path and moves the result there. Nobody waits for another worker, so that a program may
as well save on one worker alone, and paths may be each host's own.
"""

import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib
from keras.src.utils import file_utils

from tf_byteps import runtime


def changes() -> list[Any]:
    """The changes to Keras, as `callbacks.changes` returns them."""
    return [
        (saving_lib, "save_model", _save),
        (saving_lib, "save_weights_only", _save),
        (legacy_h5_format, "save_model_to_hdf5", _save),
    ]


def _save(
    original: Callable[..., Any], model: Any, filepath: str, *args: Any, **kwargs: Any
) -> None:
    is_local = isinstance(filepath, (str, os.PathLike)) and not file_utils.is_remote_path(filepath)
    if not is_local or not runtime.is_initialized() or runtime.size() == 1:
        original(model, filepath, *args, **kwargs)
        return
    target = pathlib.Path(os.path.realpath(filepath))
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=target.parent) as folder:
        original(model, os.path.join(folder, target.name), *args, **kwargs)
        _move_content(pathlib.Path(folder), target.parent)


def _move_content(source: Any, destination: Any) -> None:
    """Moves files, replacing those that are there; files that name others come last."""
    for path in sorted(source.rglob("*"), key=lambda path: path.suffix == ".json"):
        moved = destination / path.relative_to(source)
        if path.is_dir():
            moved.mkdir(parents=True, exist_ok=True)
        else:
            moved.parent.mkdir(parents=True, exist_ok=True)
            path.replace(moved)
