"""`alltoall` and `reducescatter` in 1, 2, 3 and 4 real worker processes."""

import os

import pytest

from tests import workers
from tests.ops.scattering_programs import DTYPES, split_of
from tests.selection import some_extended

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "scattering_programs.py")
SCENARIOS = [
    "start",
    "every_dtype",
    "traced",
    "even",
    "gradients",
    "refusals",
    "refused_by_one",
    "disagreements",
    "of_numpy",
    "reduced_rows",
    "gradients_of_reduced_rows",
    "refused_reductions",
    "bytes_of_a_worker",
]


@pytest.fixture(scope="module", params=some_extended([1, 2, 3], [1, 2]), ids="{}workers".format)
def group(request):
    return workers.run(PROGRAM, SCENARIOS, request.param)


def received_by(rank, size):
    rows = [
        [sender, rank, number] for sender in range(size) for number in range(split_of(sender, rank))
    ]
    return rows, [split_of(sender, rank) for sender in range(size)]


def test_each_worker_gets_what_the_others_have_for_it(group):
    assert group["start"] == [(rank, group.size) for rank in range(group.size)]
    for rank, found in enumerate(group["every_dtype"]):
        rows, splits = received_by(rank, group.size)
        as_bool = [[int(bool(number)) for number in row] for row in rows]
        assert list(found) == list(DTYPES)
        for dtype, result in found.items():
            assert result == (as_bool if dtype == "bool" else rows, splits), dtype


def test_in_a_function(group):
    for rank, found in enumerate(group["traced"]):
        assert found == received_by(rank, group.size)


def test_numpy_arrays(group):
    for rank, found in enumerate(group["of_numpy"]):
        assert found == received_by(rank, group.size)


def test_without_splits_each_gets_as_many(group):
    for rank, (found, empty) in enumerate(group["even"]):
        expected = [
            100 * sender + 2 * rank + number for sender in range(group.size) for number in range(2)
        ]
        assert found == [expected, expected]
        assert empty == [0, 4]


def test_gradients_come_back_from_the_receivers(group):
    for rank, (eager, in_graph) in enumerate(group["gradients"]):
        expected = [
            [receiver + 1.0] * 3
            for receiver in range(group.size)
            for _ in range(split_of(rank, receiver))
        ]
        assert eager == expected
        assert in_graph == [[2 * number for number in row] for row in expected]


def test_wrong_arguments_are_refused(group):
    for found in group["refusals"]:
        uneven = found.pop("uneven")
        assert {name: kind for name, (kind, _) in found.items()} == {
            "dtype": "TypeError",
            "scalar": "ValueError",
            "floating splits": "TypeError",
            "matrix of splits": "ValueError",
            "negative": "InvalidArgumentError",
            "length": "InvalidArgumentError",
            "sum": "InvalidArgumentError",
            "no splits": "InvalidArgumentError",
            "compiled": "NotImplementedError",
        }
        assert "got 4 splits for" in found["length"][1]
        assert "add up to 3 rows, but the tensor has 4" in found["sum"][1]
        assert "got float32" in found["floating splits"][1]
        assert "the split for worker 0 is -4" in found["negative"][1]
        assert "jit_compile=False" in found["compiled"][1]
        if group.size > 1:
            assert uneven[0] == "ValueError"
            assert f"{group.size + 1} rows cannot be split evenly" in uneven[1]


def test_wrong_splits_of_one_worker_free_the_others(group):
    for rank, (error, rows) in enumerate(group["refused_by_one"]):
        assert "more than the tensor's 4 rows" in error[1]
        if rank > 0:
            assert "worker 0" in error[1]
        assert rows == (4 * group.size if rank == 0 else 0)


def test_workers_that_disagree_all_hear_of_it(group):
    if group.size == 1:
        pytest.skip("one worker agrees with itself")
    for errors, rows in group["disagreements"]:
        for error, what in zip(errors, ("float64[?]", "float32[?,3]", "gather"), strict=True):
            assert error[0] == "FailedPreconditionError"
            assert what in error[1] and "alltoall" in error[1]
        assert rows == group.size


def own_range(rank, size, rows):
    """The first workers have one row more."""
    lengths = [rows // size + (other < rows % size) for other in range(size)]
    return range(sum(lengths[:rank]), sum(lengths[: rank + 1]))


def test_each_worker_gets_its_rows_of_the_sum(group):
    size = group.size
    factor = sum(range(1, size + 1))
    for rank, (found, pair) in enumerate(group["reduced_rows"]):
        for rows, (summed, averaged, of_integers) in found.items():
            own = [[2 * row, 2 * row + 1] for row in own_range(rank, size, rows)]
            assert summed == [[factor * number for number in row] for row in own]
            assert of_integers == summed
            for mean, row in zip(averaged, summed, strict=True):
                assert mean == pytest.approx([number / size for number in row])
        assert pair == [summed, [[number + size for number in row] for row in summed]]


def test_gradients_of_the_rows_of_a_sum(group):
    """All workers' losses depend on each worker's tensor, each on its rows."""
    size = group.size
    owners = [rank for row in range(5) for rank in range(size) if row in own_range(rank, size, 5)]
    for found in group["gradients_of_reduced_rows"]:
        assert found["sum"] == [owner + 1.0 for owner in owners]
        assert found["average"] == pytest.approx([(owner + 1.0) / size for owner in owners])


def test_wrong_reductions_are_refused(group):
    for found in group["refused_reductions"]:
        assert {name: kind for name, (kind, _) in found.items()} == {
            "scalar": "ValueError",
            "scalar of several": "ValueError",
            "slices": "TypeError",
            "dtype": "TypeError",
            "average": "ValueError",
            "process set": "TypeError",
            "compiled": "NotImplementedError",
        }
        assert "jit_compile=False" in found["compiled"][1]


def test_rows_for_other_workers_go_up_once_and_down_once():
    """Those for the worker itself stay there."""
    for size in (2, 4):
        group = workers.run(PROGRAM, ["start", "bytes_of_a_worker"], size)
        for found in group["bytes_of_a_worker"]:
            for times in found.values():
                assert times == pytest.approx(1 - 1 / size, rel=0.001)
