"""Models and weights that Keras saves, by all workers to one path. For all backends.

`strategy.saving` says what must hold.
"""

import hashlib
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import keras

from tf_byteps.private.keras import BaseOptimizer, file_utils, legacy_h5_format, saving_lib
from tf_byteps.strategy.fit import statistics
from tf_byteps.strategy.saving import beside, turns
from tf_byteps.tables import layout as layouts
from tf_byteps.types import Path
from tf_byteps.wrapping import Change

_ADDRESS = re.compile(r'"shared_object_id": \d+')  # of an object in this process's memory


def changes() -> list[Change]:
    """Each an owner, the name of its attribute, and what replaces that."""
    return [
        (saving_lib, "save_model", _save),
        (saving_lib, "save_weights_only", _save),
        (legacy_h5_format, "save_model_to_hdf5", _save),
        (BaseOptimizer, "save_own_variables", _optimizer),
        (BaseOptimizer, "load_own_variables", _optimizer),
    ]


def _save(
    original: Callable[..., Any],
    model: keras.Model,
    filepath: Path,
    *args: object,
    **kwargs: object,
) -> None:
    if not layouts.spread_variables(model):
        _save_alone(original, model, filepath, *args, **kwargs)
        return
    from tf_byteps.tables import saving as tables  # imports TensorFlow

    with tables.together(model, os.fspath(filepath)) as writes:
        if writes:
            _save_alone(original, model, filepath, *args, **kwargs)


def _optimizer(original: Callable[..., Any], self: Any, store: Any) -> None:
    """`save_own_variables` and `load_own_variables`."""
    if layouts.any_of(self.variables):
        from tf_byteps.tables import saving as tables  # imports TensorFlow

        store = tables.Store(store, self.variables)
    original(self, store)


def _save_alone(
    original: Callable[..., Any],
    model: keras.Model,
    filepath: Path,
    *args: object,
    **kwargs: object,
) -> None:
    """Without an exchange."""
    is_path = isinstance(filepath, (str, os.PathLike)) and not file_utils.is_remote_path(filepath)
    if not is_path or not turns.is_shared(filepath):
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
        turns.add_to_digest(digest, variable.value, variable.path)
    return digest.hexdigest()


def _saves_itself(layer: keras.layers.Layer) -> bool:
    """Whether what a layer saves may be more than its configuration and variables."""
    save = type(layer).save_own_variables
    is_own = save is not keras.Layer.save_own_variables and not save.__module__.startswith("keras.")
    return is_own or hasattr(layer, "save_assets")
