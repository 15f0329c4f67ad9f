"""Data that differ between the workers are refused; data that must differ and do not are named."""

import os

import pytest

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "data_programs.py")
REFUSED = [
    # Before any strategy is made.
    "shuffled_before_the_strategy",
    "own_arrays",
    "own_labels",
    "own_words",
    "own_evaluation",
    "own_seed",
    "image_directory",
]
SCENARIOS = [
    *REFUSED,
    "last_bits",
    "from_function",
    'from_function={"shards": true}',
    "off",
    'off={"shards": true}',
    'image_directory={"seed": 3}',
]


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, SCENARIOS, 2)


@pytest.mark.parametrize("scenario", REFUSED)
def test_other_content_is_an_error_that_says_what_to_do(group, scenario):
    for failure in group.failures(scenario):
        assert failure.kind == "ValueError"
        assert "the workers' data differ in content" in failure.message
        assert "keras.utils.set_random_seed" in failure.message
        assert "AutoShardPolicy.OFF" in failure.message


def test_with_a_common_seed_every_row_is_trained_on_once(group):
    rows = [row for result in group['image_directory={"seed": 3}'] for row in result]
    assert sorted(rows) == list(range(32))


def test_last_bits_may_differ(group):
    assert group["last_bits"] == [16, 16]


def test_own_unseeded_shuffles_differ(group):
    (first, warned), (second, _) = group["from_function"]
    assert first != second
    assert not warned
    shards = group['from_function={"shards": true}']
    assert sorted(row for result, _ in shards for row in result) == list(range(32))
    assert not any(warnings for _, warnings in shards)


def test_own_data_that_are_the_same_everywhere_are_named(group):
    (warning,), others = group["off"]
    assert "dataset.shard" in warning
    assert not others
    assert group['off={"shards": true}'] == [[], []]
