"""Which key has which slot, on one worker. NumPy only.

Slots are in blocks. A key belongs to one block, and the same key may be in several: those of other
tables. Finding and giving slots takes time for the keys that are asked for, not for all slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]

KEY, LAST, COUNT = range(3)  # the columns of a slot's line
_EMPTY = -1


def mixed(values: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Numbers of 64 random bits that are a function of others: the finalizer of SplitMix64."""
    x = np.asarray(values).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class KeySlots:
    """Slots that keys have.

    Args:
        sizes: how many slots each block has.

    Attributes:
        lines: an int64 array of shape `[slots, 3]`: the key, the step in which it was last seen
            (0: the slot is free), and how often it was seen.
    """

    def __init__(self, sizes: Ints) -> None:
        self._sizes = np.asarray(sizes, np.int64)
        self._begins = np.cumsum(self._sizes) - self._sizes
        self._blocks = np.repeat(np.arange(len(self._sizes), dtype=np.int32), self._sizes)
        total = len(self._blocks)
        size = 16
        while size < 3 * total:
            size *= 2
        # Open addressing. An entry whose slot has another key by now is passed over.
        self._index = np.full(size, _EMPTY, np.int32 if total < 1 << 31 else np.int64)
        self.lines: Ints = np.zeros((total, 3), np.int64)
        self._entries = 0
        self._filled = np.zeros(len(self._sizes), np.int64)  # slots that have had a key

    def load(self, lines: Ints) -> None:
        """Replaces all slots by the given ones, an array as `lines`. It is copied."""
        self.lines = np.array(lines, np.int64)
        used = self.lines[:, LAST] > 0
        slots = np.arange(len(self.lines)) - self._begins[self._blocks] + 1
        self._filled = np.zeros(len(self._sizes), np.int64)
        np.maximum.at(self._filled, self._blocks[used], slots[used])
        self._reindex()

    def find(self, keys: Ints, blocks: Ints) -> Ints:
        """The slots of keys, or -1 for those that have none.

        Args:
            keys: a vector.
            blocks: the keys' blocks, as many.
        """
        found = np.full(len(keys), -1, np.int64)
        position, todo = self._positions(keys, blocks), np.arange(len(keys))
        while len(todo):
            slots = self._index[position]
            lines = self.lines[slots]
            is_it = (
                (slots != _EMPTY)
                & (lines[:, KEY] == keys[todo])
                & (self._blocks[slots] == blocks[todo])
                & (lines[:, LAST] > 0)
            )
            found[todo[is_it]] = slots[is_it]
            goes_on = ~is_it & (slots != _EMPTY)
            todo = todo[goes_on]
            position = (position[goes_on] + 1) & (len(self._index) - 1)
        return found

    def free(self, slots: Ints) -> None:
        """Takes slots from their keys."""
        self.lines[slots] = 0

    def touch(self, slots: Ints, counts: Ints, step: int) -> None:
        """Notes that the keys of slots, each once, have been seen so often in a step."""
        self.lines[slots, LAST] = step
        self.lines[slots, COUNT] += counts

    def give(
        self, keys: Ints, blocks: Ints, counts: Ints, step: int, oldest: Ints, evicts: Ints
    ) -> Ints:
        """Gives slots to keys that have none.

        In a block keys get slots in ascending order: first slots that nobody has had, then those
        of expired keys, and then those of others.

        Args:
            keys: a vector without repetitions in a block.
            blocks: the keys' blocks, as many.
            counts: how often each has been seen.
            step: the number of this step, at least 1. Keys that were seen in it keep their slots.
            oldest: for each block the first step that is not so long ago that a key has expired.
            evicts: for each block the position in `WHEN_FULL` of what is done if no slot is free.

        Returns:
            The slots; -1 for keys that got none.
        """
        order = np.lexsort((keys, blocks))
        keys, blocks, counts = keys[order], blocks[order], counts[order]
        rank = np.arange(len(keys)) - np.searchsorted(blocks, blocks)
        place = self._filled[blocks] + rank
        slots = np.where(place < self._sizes[blocks], self._begins[blocks] + place, -1)
        given = slots >= 0
        self._write(slots[given], keys[given], counts[given], step)
        np.maximum.at(self._filled, blocks[given], place[given] + 1)
        for block in np.unique(blocks[~given]):
            waiting = np.flatnonzero((blocks == block) & ~given)
            taken = self._taken(block, len(waiting), step, int(oldest[block]), int(evicts[block]))
            waiting = waiting[: len(taken)]
            slots[waiting] = taken
            self._write(taken, keys[waiting], counts[waiting], step)
        self._insert(slots[slots >= 0])
        result = np.empty_like(slots)
        result[order] = slots
        return result

    def _taken(self, block: int, number: int, step: int, oldest: int, evicts: int) -> Ints:
        """Slots of a block, all of which have had keys, for other keys: at most `number`."""
        begin = self._begins[block]
        lines = self.lines[begin : begin + self._sizes[block]]
        last = lines[:, LAST]
        free = np.flatnonzero((last == 0) | (last < oldest))
        if len(free) < number and evicts:
            # The key comes last, so that nothing depends on which slots keys have.
            criteria = (last, lines[:, COUNT]) if evicts == 1 else (lines[:, COUNT], last)
            order = np.lexsort((lines[:, KEY], *reversed(criteria)))
            others = order[(last[order] >= max(oldest, 1)) & (last[order] < step)]
            free = np.concatenate([free, others])
        return begin + free[:number]

    def _write(self, slots: Ints, keys: Ints, counts: Ints, step: int) -> None:
        self.lines[slots, KEY] = keys
        self.lines[slots, LAST] = step
        self.lines[slots, COUNT] = counts

    def _positions(self, keys: Ints, blocks: Any) -> Ints:
        salt = np.asarray(blocks, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mask = np.uint64(len(self._index) - 1)
        return (mixed(mixed(keys) ^ salt) & mask).astype(np.int64)

    def _insert(self, slots: Ints) -> None:
        if self._entries + len(slots) > 0.6 * len(self._index):  # most of them passed over
            self._reindex()
            return
        self._entries += len(slots)
        position = self._positions(self.lines[slots, KEY], self._blocks[slots])
        while len(slots):
            empty = self._index[position] == _EMPTY
            self._index[position[empty]] = slots[empty]  # of two on one position one stays
            goes_on = self._index[position] != slots
            slots = slots[goes_on]
            position = (position[goes_on] + 1) & (len(self._index) - 1)

    def _reindex(self) -> None:
        self._index[:] = _EMPTY
        self._entries = 0
        self._insert(np.flatnonzero(self.lines[:, LAST] > 0))
