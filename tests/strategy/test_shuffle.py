"""Shuffles under BytePSStrategy: alike on all workers, each with an order of its own."""

import os

import pytest

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "shuffle_programs.py")
SCENARIOS = ["two_shuffles", "random_datasets", "zipped"]


@pytest.fixture(scope="module", params=[1, 2], ids=["1worker", "2workers"])
def group(request):
    return workers.run(PROGRAM, SCENARIOS, request.param)


def test_two_shuffles_on_two_lines_have_two_orders(group):
    results = group["two_shuffles"]
    assert all(result == results[0] for result in results)
    for epoch in results[0]:
        # Of 12 pairs of two independent orders one is (i, i) on average.
        assert sum(a == b for a, b in epoch) < 8
    assert len({str(epoch) for epoch in results[0]}) == 3


def test_two_random_datasets_draw_two_sequences(group):
    for first, second in group["random_datasets"]:
        assert first != second
        assert (first, second) == group["random_datasets"][0]


def test_zipped_shuffles_are_independent(group):
    for epoch in range(3):
        pairs = [pair for result in group["zipped"] for pair in result[epoch]]
        assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == list(range(32))
        assert sum(a == b for a, b in pairs) < 16
