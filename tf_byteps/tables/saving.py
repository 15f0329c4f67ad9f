"""Whole tables, in files that any number of workers can load.

What a file has does not depend on the number of workers: all rows, in order. They are gathered in
blocks, by all workers together. Each worker receives the whole table once; whoever writes a file
needs memory for all of it, and others for one block.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.ops import gather
from tf_byteps.private.tensorflow import (
    VARIABLE_VALUE_KEY,  # pyright: ignore[reportAttributeAccessIssue]
    BaseResourceVariable,
)
from tf_byteps.tables import layout as layouts, vocabulary
from tf_byteps.tables.layout import BlockLayout, Layout, ServerLayout

_BLOCK = 64 << 20  # bytes that are gathered at once
_local = threading.local()


def whole(variable: Any, keeps: bool = True) -> np.ndarray[Any, Any] | None:
    """All rows of a variable whose rows are spread over the workers. A collective.

    Args:
        variable: a `keras.Variable` or `tf.Variable` that `layout.mark` has seen.
        keeps: whether this worker needs them.

    Returns:
        An array of shape `[rows of all tables, ...]`, or `None`.
    """
    layout = layouts.marked(variable)
    assert layout is not None
    if isinstance(layout, ServerLayout):
        return layout.table.read_all(layout.slot) if keeps else None
    mine = variable.value if isinstance(variable, keras.Variable) else variable
    if layout.workers == 1:
        return mine.numpy()[: layout.rows]
    row_bytes = mine.dtype.size * int(np.prod(mine.shape[1:]))
    block = max(1, _BLOCK // (row_bytes * layout.workers))
    everything = None
    if keeps:
        everything = np.empty((layout.rows, *mine.shape[1:]), mine.dtype.as_numpy_dtype)
    for begin in range(0, layout.rows_of_worker, block):
        own = tf.gather(mine, tf.range(begin, min(begin + block, layout.rows_of_worker)))
        rows = gather(own, name="rows of a table").numpy()
        if everything is not None:
            of_workers = rows.reshape(layout.workers, -1, *rows.shape[1:])
            for rank, its_rows in enumerate(of_workers):
                numbers = layout.numbers(rank, begin, begin + its_rows.shape[0])
                everything[numbers] = its_rows[: len(everything[numbers])]
    return everything


def own_rows(rows: Any, layout: Layout) -> np.ndarray[Any, Any]:
    """This worker's rows of those that `whole` has returned to any number of workers.

    If the rows are on the servers, they are set there, which is a collective.

    Args:
        rows: an array of shape `[rows of all tables, ...]`.
        layout: which rows are this worker's.

    Raises:
        ValueError: there are more or fewer rows than the tables have.
    """
    if rows.shape[0] != layout.rows:
        raise ValueError(
            f"the file has {rows.shape[0]} rows of the tables "
            f"{[name for name, _ in layout.tables]}, which have {layout.rows}: load it with the "
            "vocabulary sizes that it was saved with, and with the same placement if tables of one "
            "width have equal optimizers"
        )
    if isinstance(layout, ServerLayout):
        layout.table.write(np.asarray(rows), layout.slot)
        return np.zeros((1, *rows.shape[1:]), rows.dtype)
    numbers = layout.numbers(layout.rank, 0, layout.rows_of_worker)
    mine = np.asarray(rows[numbers] if isinstance(numbers, slice) else np.asarray(rows)[numbers])
    own_lines = getattr(layout, "own_lines", 0)
    missing = layout.rows_of_worker - own_lines - len(mine)
    if missing:
        mine = np.pad(mine, [(0, missing)] + [(0, 0)] * (mine.ndim - 1))
    return vocabulary.stamped(mine) if own_lines else mine


@contextlib.contextmanager
def together(model: keras.Model, path: str | None) -> Iterator[bool]:
    """Around the saving of a model some of whose rows are spread. A collective.

    Args:
        model: a `keras.Model`, the same on all workers.
        path: where this worker saves it; `None` if it only takes part.

    Returns:
        A context manager that gives whether this worker writes: of workers of one host that save
        to one path, one does. In it, `saved` has the values.
    """
    everyone = gather_objects("path of a model with tables", path)
    paths = {each for each in everyone if each is not None}
    writes = path is not None and (len(paths) > 1 or runtime.local_rank() == 0)
    before = getattr(_local, "values", None)
    values = {id(each): whole(each, writes) for each in layouts.spread_variables(model)}
    _local.values = values
    try:
        yield writes
    finally:
        _local.values = before
        gather_objects("a model with tables is written", None)


def note_state(state: Any, variable: Any) -> Any:
    """Notes that an optimizer's state belongs to the rows of what it updates, if those are spread.

    Args:
        state: of the optimizer. One that has no row for each row is left alone.
        variable: what it updates.

    Returns:
        The state.
    """
    layout = layouts.of(variable)
    if isinstance(layout, ServerLayout):  # `on_servers.note_states` does so
        return state
    if layout is not None and tuple(state.shape)[:1] == (layout.rows_of_worker,):
        note_rows(state, layout)
    return state


def saved(variable: Any) -> Any:
    """What a file gets of a variable: all rows, if they are spread over the workers.

    Args:
        variable: a `keras.Variable`.

    Raises:
        RuntimeError: nobody has gathered the rows.
    """
    if layouts.of(variable) is None:
        own_lines = getattr(layouts.marked(variable), "own_lines", 0)
        values: Any = keras.ops.convert_to_numpy(variable)
        return values[:-own_lines] if own_lines else values
    rows = (getattr(_local, "values", None) or {}).get(id(variable))
    if rows is None:
        raise RuntimeError(
            f"the rows of {variable.path!r} are spread over {runtime.size()} workers: save the "
            "model with Model.save, Model.save_weights, keras.callbacks.ModelCheckpoint or "
            "BackupAndRestore, on all workers"
        )
    return rows


def loaded(variable: Any, value: Any) -> Any:
    """What a variable gets from a file: this worker's rows, if they are spread."""
    layout = layouts.of(variable)
    return value if layout is None else own_rows(value, layout)


class Store:
    """A store of Keras's for the variables of an optimizer, with whole tables.

    Args:
        store: what Keras has given to the optimizer.
        variables: the optimizer's, in order.
    """

    def __init__(self, store: Any, variables: list[Any]) -> None:
        self._store = store
        self._variables = variables

    def __setitem__(self, key: str, value: Any) -> None:
        variable = self._variables[int(key)]
        self._store[key] = value if layouts.of(variable) is None else saved(variable)

    def __getitem__(self, key: str) -> Any:
        return loaded(self._variables[int(key)], self._store[key])

    def keys(self) -> Any:
        """The store's."""
        return self._store.keys()


class _Checkpointed(BaseResourceVariable):
    """A variable of which checkpoints of TensorFlow have all rows. Saving it is a collective."""

    def _serialize_to_tensors(self) -> Any:
        rows: Any = whole(self)
        return {VARIABLE_VALUE_KEY: tf.constant(rows)}

    def _write_object_proto(self, proto: Any, options: Any) -> None:
        """What only a SavedModel has."""
        del proto, options
        if isinstance(layouts.marked(self), BlockLayout):
            raise NotImplementedError(
                f"{self.name!r} belongs to a table with a DynamicVocabulary, which a SavedModel "
                "cannot have: make a model of keras.layers.IntegerLookup and Embedding from "
                "layer.get_embedding_tables(), and export that"
            )
        raise NotImplementedError(
            f"the rows of {self.name!r} are spread over {runtime.size()} workers, and a SavedModel "
            "is for one process: save the model with Model.save, load it in one process, and "
            "export it there"
        )

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> Any:
        layout = layouts.marked(self)
        assert layout is not None
        own = own_rows(restored_tensors[VARIABLE_VALUE_KEY].numpy(), layout)
        return super()._restore_from_tensors({VARIABLE_VALUE_KEY: tf.constant(own)})


def note_rows(variable: keras.Variable, layout: Layout) -> None:
    """Notes that a variable has this worker's rows of tables. Checkpoints then have all rows.

    Args:
        variable: of shape `[layout.rows_of_worker, ...]`.
        layout: which rows those are.
    """
    layouts.mark(variable, layout)
    value: Any = variable.value
    own = type(value)
    is_whole = layouts.of(variable) is None and not isinstance(layout, BlockLayout)
    if not is_whole and not issubclass(own, _Checkpointed):
        value.__class__ = type(own.__name__, (_Checkpointed, own), {})
