"""Slots for keys, compared with dicts of Python."""

import numpy as np
import pytest

from tf_byteps.tables.key_slots import KEY, KeySlots
from tf_byteps.tables.vocabularies import DynamicVocabulary, cut

SIZES = np.array([5, 7, 4])


def _see(keys, step, slots):
    """Notes that keys which have slots are seen."""
    keys = np.asarray(keys, np.int64)
    found = slots.find(keys, np.zeros_like(keys))
    slots.touch(found, np.ones_like(found), step)


def _give(slots, keys, step, oldest=0, evicts=0):
    keys = np.asarray(keys, np.int64)
    zeros, blocks = np.zeros(len(SIZES), np.int64), np.zeros_like(keys)
    return slots.give(keys, blocks, np.ones_like(keys), step, zeros + oldest, zeros + evicts)


def test_keys_keep_their_slots_like_those_of_a_dict():
    random = np.random.default_rng(0)
    slots, expected = KeySlots(np.array([60, 70, 65])), {}
    nobody = np.zeros(3, np.int64)
    for step in range(1, 200):
        keys = np.unique(random.integers(-90, 90, 25))
        blocks = keys % 3
        found = slots.find(keys, blocks)
        assert [expected.get(key, -1) for key in keys] == found.tolist()
        new = found < 0
        keys, blocks = keys[new], blocks[new]
        given = slots.give(keys, blocks, np.ones_like(keys), step, nobody, nobody)
        expected.update(zip(keys.tolist(), given.tolist(), strict=True))
    assert len(set(expected.values())) == len(expected) == 180
    other = KeySlots(np.array([60, 70, 65]))
    other.load(slots.lines)
    keys = np.array(sorted(expected))
    np.testing.assert_array_equal(other.find(keys, keys % 3), slots.find(keys, keys % 3))


def test_one_key_has_a_slot_in_each_block():
    slots = KeySlots(SIZES)
    keys, blocks = np.array([8, 8, 8]), np.arange(3)
    zeros = np.zeros(3, np.int64)
    given = slots.give(keys, blocks, zeros + 1, 1, zeros, zeros)
    assert given.tolist() == [0, 5, 12]
    np.testing.assert_array_equal(slots.find(keys, blocks), given)


def test_a_full_block_gives_slots_only_if_others_may_lose_theirs():
    slots = KeySlots(SIZES)
    assert sorted(_give(slots, [50, 10, 40, 20, 30], 1)) == [0, 1, 2, 3, 4]
    assert _give(slots, [60], 2).tolist() == [-1]
    _see([10, 20, 30], 3, slots)
    oldest = slots.find(np.array([40]), np.array([0]))
    assert _give(slots, [60], 3, evicts=1).tolist() == oldest.tolist()  # of 40 and 50
    assert slots.find(np.array([40]), np.array([0])).tolist() == [-1]


def test_the_rarest_key_loses_its_slot():
    slots = KeySlots(SIZES)
    _give(slots, [1, 2, 3, 4, 5], 1)
    for step, keys in ((2, [1, 2, 4, 5]), (3, [1, 2, 5]), (4, [3])):
        _see(keys, step, slots)
    before = slots.find(np.arange(1, 6), np.zeros(5, np.int64))
    assert _give(slots, [9, 8], 5, evicts=2).tolist() == [before[2], before[3]]  # 4, then 3
    assert slots.lines[before[3], KEY] == 8


def test_expired_keys_lose_their_slots_first_and_keys_of_the_step_never():
    slots = KeySlots(SIZES)
    _give(slots, [1, 2, 3, 4, 5], 1)
    _see([1, 2, 3, 4], 9, slots)
    assert _give(slots, [6], 10, oldest=5).tolist() == [4]
    _see([1, 2, 3, 4, 6], 11, slots)
    assert _give(slots, [7], 11, evicts=1).tolist() == [-1]


@pytest.mark.parametrize("rows", [1, 1000, 5000, 100_000, 3_000_000])
def test_a_table_has_room_for_as_many_keys_as_rows(rows):
    blocks, size = cut(rows)
    keys = np.bincount(np.random.default_rng(1).integers(0, blocks, rows), minlength=blocks)
    assert keys.max() <= size and blocks * size <= 1.2 * rows + 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_count": 0}, "min_count of DynamicVocabulary must be an integer of at least 1"),
        ({"expire_after_steps": 1.5}, "expire_after_steps of DynamicVocabulary must be an"),
        ({"min_count": None}, "min_count of DynamicVocabulary must be an"),
        ({"when_full": "grow"}, "when_full of DynamicVocabulary must be one of"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DynamicVocabulary(**arguments)
