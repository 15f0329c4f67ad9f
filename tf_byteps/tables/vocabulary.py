"""Which keys have which of this worker's rows, and which are about to get one. NumPy only.

Variables of TensorFlow have the same, so that it is saved, loaded and set with all other weights.
They count. What is here is a copy of them in which keys are found quickly; a number that changes
with each change, the stamp, says whether it still is one.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tf_byteps.per_process import per_process
from tf_byteps.tables.key_slots import COUNT, LAST, Ints, KeySlots, mixed
from tf_byteps.tables.layout import BlockLayout
from tf_byteps.tables.vocabularies import WHEN_FULL, DynamicVocabulary

_COUNT_BITS = 32
NEVER = 1 << 62  # steps after which keys expire


def stamped(lines: Ints) -> Ints:
    """The lines of this worker's rows, and a new stamp."""
    return np.concatenate([lines, np.array([[_new_stamp(), 0, 0]], np.int64)])


def _new_stamp() -> int:
    """Different for all changes of all vocabularies in a process, and very likely of others.

    A variable that nobody has changed has 0, and no keys.
    """
    return next(_stamps())


@per_process
def _stamps() -> Iterator[int]:
    return itertools.count(secrets.randbits(60) | 1)


@dataclasses.dataclass(frozen=True)
class Changes:
    """What a step changes.

    Attributes:
        places: of this worker's rows for what was asked for; -1 for keys without a row.
        new: rows that have got keys in this step.
        tables: the numbers of the tables of those.
        uniforms: numbers between 0 and 1 for their initial values: `[len(new), width]`.
        rows: of the variable `keys` that change, and to what: `[len(rows), 3]`. The last one is
            the stamp.
        key_lines: see `rows`.
        candidates: the same of the variable `candidates`.
        candidate_lines: see `candidates`.
    """

    places: Ints
    new: Ints
    tables: Ints
    uniforms: np.ndarray[Any, np.dtype[np.float64]]
    rows: Ints
    key_lines: Ints
    candidates: Ints
    candidate_lines: Ints


class Vocabulary:
    """The keys of this worker's rows of some tables.

    Its methods may be called from any thread.

    Args:
        layout: of the rows.
        candidates: the layout of what is known of keys without a row.
        vocabularies: what the program says of each table.
        seeds: for each table that of its initial values.
        width: numbers in a row.
        current: returns the values of the variables `keys` and `candidates`.
    """

    def __init__(
        self,
        layout: BlockLayout,
        candidates: BlockLayout,
        vocabularies: Sequence[DynamicVocabulary],
        seeds: Sequence[int],
        width: int,
        current: Callable[[], tuple[Ints, Ints]],
    ) -> None:
        self._lock = threading.Lock()
        self._names = [name for name, _ in layout.tables]
        self._sizes = [rows for _, rows in layout.tables]
        self._workers, self._width, self._current = layout.workers, width, current
        self._stamp, self._stamp_line = 0, layout.rows_of_worker - 1
        self._rows = KeySlots(layout.own_sizes(layout.rank))
        self._candidates = KeySlots(candidates.own_sizes(candidates.rank))
        self._tables = layout.tables_of_blocks[layout.rank :: layout.workers]
        self._seeds = [
            int(mixed([(seed % (1 << 32)) << 32 | zlib.crc32(name.encode())])[0])
            for seed, name in zip(seeds, self._names, strict=True)
        ]

        def of_blocks(values: list[int]) -> Ints:
            return np.asarray(values, np.int64)[self._tables]

        self._least = of_blocks([each.min_count for each in vocabularies])
        self._expiry = of_blocks([each.expire_after_steps or NEVER for each in vocabularies])
        self._evicts = of_blocks([WHEN_FULL.index(each.when_full) for each in vocabularies])

    def places(self, asked: Ints, step: int, stamp: int) -> Ints:
        """This worker's rows for keys, which changes nothing.

        Args:
            asked: an array of shape `[keys, 2]`: each key, and its block and count, packed.
            step: how many steps of training there were.
            stamp: in the last line of the variable `keys`.

        Returns:
            A vector: the places of the rows; -1 for keys that have none.
        """
        with self._lock:
            self._follow(stamp)
            keys, blocks, _ = self._unpacked(asked)
            slots = self._rows.find(keys, blocks)
            seen = self._rows.lines[slots, LAST]
            return np.where((slots >= 0) & (seen >= step - self._expiry[blocks]), slots, -1)

    def train(self, asked: Ints, step: int, stamp: int) -> Changes:
        """This worker's rows for the keys of a step of training.

        Args:
            asked: see `places`; of all workers. A key may occur several times.
            step: the number of this step, from 1.
            stamp: see `places`.

        Returns:
            `Changes`, which must become those of the variables.

        Raises:
            ValueError: a key needs a row, none is free, and none may be taken from another key.
        """
        with self._lock:
            self._follow(stamp)
            self._stamp = _new_stamp()  # if this fails, the next call begins with the variables
            keys, blocks, counts, position = _merged(*self._unpacked(asked))
            oldest = step - self._expiry
            slots, freed = self._alive(self._rows, keys, blocks, oldest)
            is_seen = counts > 0
            known = (slots >= 0) & is_seen
            self._rows.touch(slots[known], counts[known], step)
            new = (slots < 0) & is_seen
            waiting, changed = self._admitted(keys, blocks, counts, new, step, oldest)
            given = self._rows.give(
                keys[waiting], blocks[waiting], counts[waiting], step, oldest, self._evicts
            )
            if np.any(given < 0):
                raise self._full(blocks[waiting[given < 0]])
            slots[waiting] = given
            rows = np.concatenate([freed, slots[slots >= 0]])
            tables = self._tables[blocks[waiting]]
            stamp_line = np.array([[self._stamp, 0, 0]], np.int64)
            return Changes(
                places=slots[position],
                new=given,
                tables=tables,
                uniforms=self._uniforms(keys[waiting], tables),
                rows=np.append(rows, self._stamp_line),
                key_lines=np.concatenate([self._rows.lines[rows], stamp_line]),
                candidates=changed,
                candidate_lines=self._candidates.lines[changed],
            )

    def _follow(self, stamp: int) -> None:
        """Takes the keys from the variables, if something else has set these."""
        if stamp == self._stamp:
            return
        keys, candidates = self._current()
        self._rows.load(keys[: len(self._rows.lines)])
        self._candidates.load(candidates[: len(self._candidates.lines)])
        self._stamp = int(stamp)

    def _unpacked(self, asked: Ints) -> tuple[Ints, Ints, Ints]:
        """Keys, their blocks as this worker counts them, and how often each occurs."""
        blocks = (asked[:, 1] >> _COUNT_BITS) // self._workers
        return asked[:, 0], blocks, asked[:, 1] & ((1 << _COUNT_BITS) - 1)

    def _alive(self, slots: KeySlots, keys: Ints, blocks: Ints, oldest: Ints) -> tuple[Ints, Ints]:
        """The slots of keys, -1 for expired ones, and the slots taken from those."""
        found = slots.find(keys, blocks)
        is_expired = (found >= 0) & (slots.lines[found, LAST] < oldest[blocks])
        freed = found[is_expired]
        slots.free(freed)
        found[is_expired] = -1
        return found, freed

    def _admitted(
        self, keys: Ints, blocks: Ints, counts: Ints, new: Any, step: int, oldest: Ints
    ) -> tuple[Ints, Ints]:
        """Which of the new keys get a row now, and which lines of the candidates have changed.

        `counts` of those become what they have with those of earlier steps.
        """
        candidates = self._candidates
        needs_more = self._least[blocks] > 1
        counted = np.flatnonzero(new & needs_more)
        slots, freed = self._alive(candidates, keys[counted], blocks[counted], oldest)
        before = np.where(slots >= 0, candidates.lines[slots, COUNT], 0) if len(slots) else 0
        total = counts[counted] + before
        is_enough = total >= self._least[blocks[counted]]
        counts[counted[is_enough]] = total[is_enough]
        ends = slots[is_enough & (slots >= 0)]
        candidates.free(ends)
        goes_on = ~is_enough & (slots >= 0)
        candidates.touch(slots[goes_on], counts[counted[goes_on]], step)
        begins = counted[~is_enough & (slots < 0)]
        always = np.ones(len(oldest), np.int64)  # the oldest candidate goes
        given = candidates.give(keys[begins], blocks[begins], counts[begins], step, oldest, always)
        changed = np.concatenate([freed, ends, slots[goes_on], given[given >= 0]])
        waiting = np.sort(np.concatenate([np.flatnonzero(new & ~needs_more), counted[is_enough]]))
        return waiting, np.unique(changed)

    def _uniforms(self, keys: Ints, tables: Ints) -> np.ndarray[Any, np.dtype[np.float64]]:
        """As many numbers for each key as a row has, a function of key, table and seed."""
        seeds = np.asarray(self._seeds, np.uint64)[tables]
        of_keys = mixed(mixed(keys) ^ seeds)[:, np.newaxis]
        columns = np.arange(1, self._width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = mixed(of_keys + columns) >> np.uint64(11)
        return (bits.astype(np.float64) + 0.5) * 2.0**-53

    def _full(self, blocks: Ints) -> ValueError:
        table = int(self._tables[blocks[0]])
        advice = (
            "its DynamicVocabulary a smaller expire_after_steps, a larger min_count, or "
            "when_full='evict_oldest'"
        )
        if self._evicts[blocks[0]]:
            advice = "train with smaller batches: the keys of a step keep their rows in it"
        return ValueError(
            f"the table {self._names[table]!r} is full: {len(blocks)} keys of this step need a row "
            f"of blocks in which all rows have keys ({self._sizes[table]} rows in all blocks); "
            f"give it a larger vocabulary_size, or {advice}"
        )


def _merged(keys: Ints, blocks: Ints, counts: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Each key of a block once, with the sum of its counts, and where each given one is."""
    order = np.lexsort((keys, blocks))
    keys, blocks = keys[order], blocks[order]
    is_first = np.ones(len(keys), bool)
    is_first[1:] = (keys[1:] != keys[:-1]) | (blocks[1:] != blocks[:-1])
    position = np.empty(len(keys), np.int64)
    position[order] = np.cumsum(is_first) - 1
    firsts = np.flatnonzero(is_first)
    summed = np.add.reduceat(counts[order], firsts) if len(firsts) else counts[order]
    return keys[firsts], blocks[firsts], summed, position
