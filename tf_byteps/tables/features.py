"""Rows for the features of a layer, whatever tables they look up in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_byteps.tables import keyed
from tf_byteps.tables.combining import Lookups
from tf_byteps.tables.layout import Stack
from tf_byteps.tables.lookup import look_up_all


def look_up(
    stacks: Sequence[Stack],
    of_stacks: Sequence[Sequence[Lookups]],
    counts: Callable[[Lookups], tf.Tensor],
    training: bool,
) -> list[list[tf.Tensor]]:
    """Rows of tables. With several workers it is a collective: all must call it alike.

    Args:
        stacks: of the tables, each once.
        of_stacks: for each stack what its features look up.
        counts: gives for each key of a feature 1 if it counts as seen, or 0.
        training: whether keys may get rows.

    Returns:
        For each stack the rows of its features, tensors of shape `[indices, width]`.
    """
    numbered = [at for at, stack in enumerate(stacks) if stack.keyed is None]
    indices = {at: _among_all(stacks[at], of_stacks[at]) for at in numbered}
    joined = [tf.concat(indices[at], 0) for at in numbered]
    found = look_up_all([stacks[at] for at in numbered], joined)
    rows = {
        at: tf.split(its_rows, [tf.size(each) for each in indices[at]], num=len(indices[at]))
        for at, its_rows in zip(numbered, found, strict=True)
    }
    return [
        rows[at] if at in rows else _of_keys(stack, of_stacks[at], counts, training)
        for at, stack in enumerate(stacks)
    ]


def _among_all(stack: Stack, lookups: Sequence[Lookups]) -> list[tf.Tensor]:
    """The indices of several features among the rows of all tables of a stack."""
    return [each.indices + stack.layout.begin_of(each.feature.table.name) for each in lookups]


def _of_keys(
    stack: Stack, lookups: Sequence[Lookups], counts: Callable[[Lookups], tf.Tensor], training: bool
) -> list[tf.Tensor]:
    """The rows of several features of tables with vocabularies."""
    tables = [each.feature.table.name for each in lookups]
    keys = [each.indices for each in lookups]
    return keyed.look_up(
        stack, tables, keys, [counts(each) for each in lookups], training, stack.variable.path
    )
