"""Tables whose rows are given to keys, in TensorFlow's programs.

The worker that has a key's block says which row the key has, and sends it. Which key has which row
is decided in Python (`vocabulary`), from functions that TensorFlow calls: outside of what XLA
compiles.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tf_byteps.ops import names
from tf_byteps.ops.custom_gradients import custom_gradient
from tf_byteps.ops.scattering import alltoall, refuse_compiled
from tf_byteps.tables import distributions, saving
from tf_byteps.tables.calling import called
from tf_byteps.tables.configs import TableConfig
from tf_byteps.tables.keyed_layouts import candidate_layout, layout_of
from tf_byteps.tables.layout import BlockLayout, Stack
from tf_byteps.tables.lookup import by_owner, with_numbers, without_numbers
from tf_byteps.tables.vocabulary import NEVER, Vocabulary

_HIGHEST_PRIORITY = 2**31 - 1
_MOST_COUNTS = 2**32 - 1
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of SplitMix64's finalizer
_logger = logging.getLogger("tf_byteps")


class Keyed:
    """What a stack of tables with vocabularies has beside its rows.

    Args:
        tables: the tables.
        layout: of their rows.
        keys: the variable with a line for each row, and one for the stamp.
        candidates: the variable with a line for each key that may be about to get a row.
        steps: the variable with the number of steps of training.
        default: the variable with the row of each table that keys without a row get.
    """

    def __init__(
        self,
        tables: Sequence[TableConfig],
        layout: BlockLayout,
        keys: Any,
        candidates: Any,
        steps: Any,
        default: Any,
    ) -> None:
        self.keys, self.candidates, self.steps, self.default = keys, candidates, steps, default
        self.layout, self.keys_layout = layout, dataclasses.replace(layout, own_lines=1)
        self.candidate_layout = candidate_layout(tables, layout)
        self.names = [table.name for table in tables]
        self.states: list[tuple[Any, Any]] = []
        self._width = tables[0].embedding_dim
        self._vocabularies: list[Any] = [table.vocabulary for table in tables]
        dtype = default.dtype
        found = [
            distributions.of(each.name, each.initializer, self._width, dtype, "a vocabulary")
            for each in tables
        ]
        self._kinds = np.array([kind for kind, _ in found])
        self._numbers = np.array([numbers for _, numbers in found])
        self._vocabulary = Vocabulary(
            self.keys_layout,
            self.candidate_layout,
            self._vocabularies,
            [distributions.seed_of(table.initializer) for table in tables],
            self._width,
            lambda: (keys.value.numpy(), candidates.value.numpy()),
        )

    def expiry(self, number: int) -> int:
        """After how many steps the keys of a table, given by its number, expire."""
        return self._vocabularies[number].expire_after_steps or NEVER

    def note_states(self, optimizer: Any) -> None:
        """Notes what an optimizer keeps for rows, to begin anew when a row gets another key.

        Args:
            optimizer: a `keras.optimizers.Optimizer` that updates these rows only, and has not done
                so yet: all rows of a state are equal.
        """
        for state in optimizer.variables:
            if tuple(state.shape)[:1] == (self.layout.rows_of_worker,):
                with tf.init_scope():  # and outside of a call, in which it would be cast
                    self.states.append((state.value, state.value[:1].numpy()))

    def own_rows(self, variable: tf.Variable, asked: tf.Tensor, training: bool) -> Any:
        """This worker's rows for what workers ask for.

        Args:
            variable: with the rows.
            asked: an int64 tensor of shape `[keys, 2]`: each key, and what `_packed` gives.
            training: whether keys may get rows.

        Returns:
            The places of the rows, -1 for keys without one; and a tensor of `[keys, width]`.
        """
        stamp = tf.gather(self.keys.value, [self.keys.shape[0] - 1])[0, 0]
        if not training:
            step = tf.convert_to_tensor(self.steps.value)
            places = tf.ensure_shape(self._called(_find, [asked, step, stamp], tf.int64), [None])
        else:
            places = self._train(variable, asked, stamp)
        return places, tf.gather(variable, tf.maximum(places, 0))

    def _called(self, function: Callable[..., Any], inputs: list[tf.Tensor], dtype: Any) -> Any:
        return called(function, {self.names[0]: self._vocabulary}, inputs, dtype)

    def _train(self, variable: tf.Variable, asked: tf.Tensor, stamp: tf.Tensor) -> tf.Tensor:
        step: Any = self.steps.value.assign_add(1)
        kinds = [tf.float64 if number == 3 else tf.int64 for number in range(8)]
        found = self._called(_train, [asked, tf.convert_to_tensor(step), stamp], kinds)
        shapes = [[None], [None], [None], [None, self._width], *[[None], [None, 3]] * 2]
        places, new, tables, uniforms, rows, lines, candidates, candidate_lines = (
            tf.ensure_shape(each, shape) for each, shape in zip(found, shapes, strict=True)
        )
        self.keys.value.scatter_update(tf.IndexedSlices(lines, rows))
        self.candidates.value.scatter_update(tf.IndexedSlices(candidate_lines, candidates))
        initial = tf.cast(self._initial(tables, uniforms), variable.dtype)
        variable.scatter_update(tf.IndexedSlices(initial, new))
        for state, row in self.states:
            rows_of_state = tf.repeat(tf.constant(row), tf.size(new), 0)
            state.scatter_update(tf.IndexedSlices(rows_of_state, new))
        return places

    def _initial(self, tables: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        """Initial rows, from uniform numbers."""
        kinds = tf.gather(self._kinds, tables)[:, tf.newaxis]
        numbers = tf.gather(self._numbers, tables)
        first, second = numbers[:, :1], numbers[:, 1:]
        rows = tf.zeros_like(uniforms) + first
        if np.any(self._kinds == distributions.UNIFORM):
            made = first + uniforms * (second - first)
            rows = tf.where(kinds == distributions.UNIFORM, made, rows)
        if np.any(self._kinds == distributions.NORMAL):
            made = first + second * tf.math.ndtri(uniforms)
            rows = tf.where(kinds == distributions.NORMAL, made, rows)
        if np.any(self._kinds == distributions.TRUNCATED_NORMAL):
            below = 0.022750131948179195  # the share of a normal distribution below -2
            made = first + second * tf.math.ndtri(below + uniforms * (1 - 2 * below))
            rows = tf.where(kinds == distributions.TRUNCATED_NORMAL, made, rows)
        return rows


def _find(found: list[Vocabulary], *given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (vocabulary,) = found
    return vocabulary.places(given[0], int(given[1]), int(given[2]))


def _train(found: list[Vocabulary], *given: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    (vocabulary,) = found
    changes = vocabulary.train(given[0], int(given[1]), int(given[2]))
    return tuple(getattr(changes, each.name) for each in dataclasses.fields(changes))


def make(
    tables: Sequence[TableConfig],
    workers: int,
    rank: int,
    suffix: str,
    add_weight: Callable[..., Any],
    made_for: Callable[[Any, Any], Any],
) -> Stack:
    """Makes this worker's rows of tables with vocabularies of one width and optimizer.

    Args:
        tables: the tables.
        workers: how many there are.
        rank: this worker's.
        suffix: of the variables' names.
        add_weight: of the layer.
        made_for: gives a variable an optimizer of its own, equal to another one.
    """
    width = tables[0].embedding_dim
    layout = layout_of(tables, workers, rank)
    spread = {
        "rows": (layout, width),
        "keys": (dataclasses.replace(layout, own_lines=1), 3),
        "candidates": (candidate_layout(tables, layout), 3),
    }
    made = {}
    for what, (its_layout, columns) in spread.items():
        made[what] = add_weight(
            name=f"{what}_of_{width}{suffix}",
            shape=(its_layout.rows_of_worker, columns),
            initializer="zeros",
            autocast=False,
            **({} if what == "rows" else {"dtype": "int64", "trainable": False}),
        )
        saving.note_rows(made[what], its_layout)
    steps = add_weight(
        name=f"steps_of_{width}{suffix}",
        shape=(),
        initializer="zeros",
        dtype="int64",
        trainable=False,
    )
    default = add_weight(
        name=f"default_rows_of_{width}{suffix}",
        shape=(len(tables), width),
        initializer="zeros",
        autocast=False,
    )
    keyed = Keyed(tables, layout, made["keys"], made["candidates"], steps, default)
    optimizer = made_for(made["rows"], tables[0].optimizer)
    keyed.note_states(optimizer)
    return Stack(made["rows"], layout, optimizer, keyed)


def look_up(
    stack: Stack,
    tables: Sequence[str],
    keys: Sequence[tf.Tensor],
    counts: Sequence[tf.Tensor],
    training: bool,
    name: str,
) -> list[tf.Tensor]:
    """Rows for keys. With several workers it is a collective: all must call it alike.

    Args:
        stack: of the tables.
        tables: for each feature the name of its table.
        keys: for each feature an int64 vector of any length.
        counts: as many numbers: 1 for a key that counts as seen, 0 for one that does not.
        training: whether keys may get rows.
        name: of the exchanges, the same on all workers.

    Returns:
        For each feature a tensor of shape `[keys, width]`.
    """
    refuse_compiled("DistributedEmbedding with a DynamicVocabulary")
    keyed: Keyed = stack.keyed
    layout = keyed.layout
    different, seen = [], []
    for name_of_table in keyed.names:
        of_table = [at for at, table in enumerate(tables) if table == name_of_table]
        nothing = tf.zeros([0], tf.int64)
        different.append(tf.unique(tf.concat([nothing, *(keys[at] for at in of_table)], 0)))
        seen.append(
            tf.math.unsorted_segment_sum(
                tf.concat([nothing, *(counts[at] for at in of_table)], 0),
                different[-1].idx,
                tf.size(different[-1].y),
            )
        )
    blocks = [
        layout.first_block_of(number) + block_of(each.y, layout.blocks[number])
        for number, each in enumerate(different)
    ]
    asked = _packed(
        tf.concat([each.y for each in different], 0), tf.concat(blocks, 0), tf.concat(seen, 0)
    )
    rows, has_row = _from_owners(stack, asked, tf.concat(blocks, 0), training, name)
    sizes = [tf.size(each.y) for each in different]
    its_rows, its_has_row = (tf.split(each, sizes, num=len(sizes)) for each in (rows, has_row))
    default = tf.convert_to_tensor(keyed.default.value)
    found: dict[int, Any] = {}
    for number, name_of_table in enumerate(keyed.names):
        # Dense, so that the gradient of the default row is.
        complete = tf.where(its_has_row[number][:, tf.newaxis], its_rows[number], default[number])
        all_rows = tf.gather(complete, different[number].idx)
        features = [at for at, table in enumerate(tables) if table == name_of_table]
        lengths = [tf.size(keys[at]) for at in features]
        if features:
            parts = tf.split(all_rows, lengths, num=len(lengths))
            found.update(zip(features, parts, strict=True))
    return [found[at] for at in range(len(tables))]


def _from_owners(
    stack: Stack, asked: tf.Tensor, blocks: tf.Tensor, training: bool, name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows for different keys, and which of them have a row."""
    keyed: Keyed = stack.keyed
    layout, variable = keyed.layout, stack.variable.value
    if layout.workers == 1:
        places, rows = keyed.own_rows(variable, asked, training)
        return _attached(stack, places, rows, training), places >= 0
    blocks, splits, order = by_owner(layout, blocks)
    name = names.numbered(name)
    wanted, counts = alltoall(
        tf.gather(asked, order), splits, name=f"{name}/keys", priority=_HIGHEST_PRIORITY
    )
    places, own = keyed.own_rows(variable, tf.ensure_shape(wanted, [None, 2]), training)
    reply = with_numbers(places, own)
    received, _ = alltoall(reply, counts, name=f"{name}/rows", priority=_HIGHEST_PRIORITY)
    places, rows = without_numbers(tf.ensure_shape(received, [None, reply.shape[1]]), tf.int64)
    numbers = places * layout.workers + layout.owners(blocks)
    numbers = tf.where(places >= 0, numbers, -1)
    back = tf.math.invert_permutation(order)
    rows = tf.gather(_attached(stack, numbers, rows, training), back)
    return rows, tf.gather(places >= 0, back)


def _attached(stack: Stack, numbers: tf.Tensor, rows: tf.Tensor, training: bool) -> tf.Tensor:
    """The rows, as a function of the variable whose gradient has their numbers; -1: no row."""
    variable, layout = stack.variable.value, stack.layout
    width = cast("list[int]", variable.shape[1:].as_list())
    shape = tf.constant([layout.rows_of_worker * layout.workers, *width], tf.int64)

    @custom_gradient
    def attached(handle: tf.Tensor, rows: tf.Tensor) -> Any:
        del handle

        def gradient(of_rows: tf.Tensor) -> Any:
            if not training:
                _logger.warning(
                    "the table %r has a DynamicVocabulary, and a gradient is taken of rows that "
                    "were not looked up with training=True: its keys get no rows; call the model "
                    "with training=True",
                    layout.tables[0][0],
                )
            has_row = numbers >= 0
            values = tf.boolean_mask(of_rows, has_row)
            return tf.IndexedSlices(values, tf.boolean_mask(numbers, has_row), shape), None

        return tf.identity(rows), gradient

    return attached(variable.handle, tf.stop_gradient(rows))


def block_of(keys: tf.Tensor, blocks: int) -> tf.Tensor:
    """The block of a table that each key belongs to. It is the same everywhere and forever."""
    x = tf.bitcast(keys, tf.uint64)
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint64)))
        x *= tf.constant(multiplier, tf.uint64)
    bits = tf.bitwise.right_shift(x, tf.constant(33, tf.uint64))
    return tf.cast(bits, tf.int64) % blocks


def _packed(keys: tf.Tensor, blocks: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """What owners are asked: each key, and its block and count in one number."""
    counts = tf.minimum(counts, _MOST_COUNTS)
    return tf.stack([keys, blocks * (_MOST_COUNTS + 1) + counts], 1)
