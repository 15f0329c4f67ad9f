"""Whole tables with vocabularies: as arrays of a program, and in stores of Keras's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_byteps.tables import saving
from tf_byteps.tables.key_slots import COUNT, KEY, LAST
from tf_byteps.tables.keyed import Keyed, block_of
from tf_byteps.tables.layout import Stack


class KeyedRows(NamedTuple):
    """The rows of a table with a `DynamicVocabulary`.

    Attributes:
        keys: those that have a row, an int64 vector in ascending order.
        rows: theirs: `[keys, embedding_dim]`.
        default: the row of all other keys: `[embedding_dim]`.
    """

    keys: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]
    default: np.ndarray[Any, Any]


def tables_of(stack: Stack, take: Callable[[Any], Any]) -> dict[str, KeyedRows]:
    """The tables of a stack.

    Args:
        stack: of tables with vocabularies.
        take: gives all rows of a variable, in the order of files.

    Returns:
        A dict of their names and `KeyedRows`.
    """
    keyed: Keyed = stack.keyed
    rows, lines = stack.by_table(take(stack.variable)), stack.by_table(take(keyed.keys))
    default, steps = keyed.default.value.numpy(), int(keyed.steps.value.numpy())
    found = {}
    for number, name in enumerate(keyed.names):
        seen = lines[name][:, LAST]
        has_key = (seen > 0) & (seen >= steps - keyed.expiry(number))
        keys = lines[name][has_key, KEY]
        order = np.argsort(keys)
        found[name] = KeyedRows(keys[order], rows[name][has_key][order], default[number])
    return found


def check(stack: Stack, tables: Mapping[str, Any]) -> None:
    """Checks what `set_tables` is about to set.

    Args:
        stack: of tables with vocabularies.
        tables: for each table `KeyedRows`, or a pair of keys and rows.

    Raises:
        ValueError: shapes do not fit, a key is given twice, or there are more keys than rows.
    """
    width = stack.variable.shape[1]
    for number, name in enumerate(stack.keyed.names):
        found = tables[name]
        if not isinstance(found, tuple) or len(found) not in (2, 3):
            raise ValueError(
                f"the table {name!r} has a DynamicVocabulary: give a tuple of keys and rows, got "
                f"{type(found).__name__}"
            )
        keys, rows = np.asarray(found[0]), np.asarray(found[1])
        is_integer = keys.dtype.kind in "iu" or not keys.size
        if keys.ndim != 1 or not is_integer or rows.shape != (len(keys), width):
            raise ValueError(
                f"the table {name!r} has a DynamicVocabulary: give a vector of integers and a row "
                f"of {width} numbers for each, got arrays of shape {keys.shape}, {keys.dtype}, and "
                f"{rows.shape}"
            )
        _places(stack.keyed, number, name, keys.astype(np.int64))


def set_tables(stack: Stack, tables: Mapping[str, Any]) -> None:
    """Sets the tables of a stack. What their optimizer keeps for rows begins anew.

    Args:
        stack: of tables with vocabularies.
        tables: see `check`, which has seen them.
    """
    keyed: Keyed = stack.keyed
    step = max(1, int(keyed.steps.value.numpy()))
    all_rows, all_lines, default = [], [], keyed.default.value.numpy().copy()
    for number, (name, size) in enumerate(stack.layout.tables):
        keys, rows, *others = tables[name]
        keys = np.asarray(keys).astype(np.int64)
        places = _places(keyed, number, name, keys)
        of_table = np.zeros((size, stack.variable.shape[1]), stack.variable.dtype)
        of_table[places] = rows
        lines = np.zeros((size, 3), np.int64)
        lines[places, KEY], lines[places, LAST], lines[places, COUNT] = keys, step, 1
        all_rows.append(of_table)
        all_lines.append(lines)
        if others:
            default[number] = others[0]
    for state, row in keyed.states:
        state.assign(np.repeat(row, state.shape[0], 0))
    nobody = np.zeros((keyed.candidate_layout.rows, 3), np.int64)
    assign(stack, (step, default, nobody, np.concatenate(all_rows), np.concatenate(all_lines)))


def _places(keyed: Keyed, number: int, name: str, keys: Any) -> Any:
    """Which rows of their table keys get: in each block in ascending order."""
    blocks = block_of(tf.constant(keys), keyed.layout.blocks[number]).numpy()
    order = np.lexsort((keys, blocks))
    blocks, sorted_keys = blocks[order], keys[order]
    if np.any((sorted_keys[1:] == sorted_keys[:-1]) & (blocks[1:] == blocks[:-1])):
        raise ValueError(f"the keys for the table {name!r} are not different: give each once")
    rank = np.arange(len(keys)) - np.searchsorted(blocks, blocks)
    size = keyed.layout.tables[number][1] // keyed.layout.blocks[number]
    if np.any(rank >= size):
        raise ValueError(
            f"the table {name!r} has too few rows for {len(keys)} keys: give it a larger "
            "vocabulary_size"
        )
    places = np.empty(len(keys), np.int64)
    places[order] = blocks * size + rank
    return places


def save(stack: Stack, store: MutableMapping[str, Any]) -> None:
    """Puts tables with vocabularies into a store of Keras's."""
    keyed: Keyed = stack.keyed
    for kind, variable in (("", stack.variable), ("keys of ", keyed.keys)):
        for name, rows in stack.by_table(saving.saved(variable)).items():
            store[kind + name] = rows
    candidates = saving.saved(keyed.candidates)
    begin = 0
    for number, (name, lines) in enumerate(keyed.candidate_layout.tables):
        store[f"candidates of {name}"] = candidates[begin : begin + lines]
        begin += lines
        store[f"default row of {name}"] = keyed.default.value.numpy()[number]
        store[f"steps of {name}"] = keyed.steps.value.numpy()[np.newaxis]


def read(stack: Stack, store: Mapping[str, Any]) -> tuple[Any, ...]:
    """What `save` has put into a store of Keras's, for `assign`.

    Raises:
        ValueError: something is missing, or has another shape.
    """

    def taken(kind: str, name: str, shape: tuple[int, ...]) -> Any:
        found = np.asarray(store[kind + name]) if kind + name in store.keys() else None
        if found is None or found.shape != shape:
            raise ValueError(
                f"the file has {'nothing' if found is None else f'shape {found.shape}'} for "
                f"{kind + name!r} of a table with a DynamicVocabulary, which needs {shape}: load "
                "it with the vocabulary_size, embedding_dim and vocabulary that it was saved with"
            )
        return found

    width, tables = stack.variable.shape[1], stack.layout.tables
    waiting = stack.keyed.candidate_layout.tables
    return (
        max(int(taken("steps of ", name, (1,))[0]) for name, _ in tables),
        np.stack([taken("default row of ", name, (width,)) for name, _ in tables]),
        np.concatenate([taken("candidates of ", name, (size, 3)) for name, size in waiting]),
        np.concatenate([taken("", name, (size, width)) for name, size in tables]),
        np.concatenate([taken("keys of ", name, (size, 3)) for name, size in tables]),
    )


def assign(stack: Stack, values: tuple[Any, ...]) -> None:
    """Sets what `read` has returned: whole tables, of which each worker takes its rows."""
    keyed: Keyed = stack.keyed
    steps, default, candidates, rows, lines = values
    keyed.steps.assign(steps)
    keyed.default.assign(default)
    keyed.candidates.assign(saving.own_rows(candidates, keyed.candidate_layout))
    stack.variable.assign(saving.own_rows(rows, stack.layout))
    keyed.keys.assign(saving.own_rows(lines, keyed.keys_layout))
