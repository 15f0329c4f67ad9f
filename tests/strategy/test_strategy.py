"""BytePSStrategy in 2 workers, and 1 and 3 (extended), that know nothing but TF_CONFIG."""

import json
import os

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "strategy_programs.py")


def _record(rows, **arguments):
    return f"record={json.dumps({'rows': rows, **arguments})}"


# Lengths of every remainder modulo the batch of 8 that leaves workers without rows, and others.
RECORDED = [
    *(_record(rows) for rows in (16, 17, 18, 19, 23)),
    _record(23, source="dataset"),
    _record(17, source="dataset"),
    _record(23, shuffle="batch"),
    _record(17, source="dataset", seed=3),
    _record(23, seed=3),
]
_OTHER_RECORDS = [_record(rows) for rows in (16, 17, 18, 19)] + [_record(17, source="dataset")]
SCENARIOS = [
    "pieces",
    "reductions",
    "custom_loop",
    "embeddings",
    "own_datasets",
    "unbatched",
    "fetched",
    "two_models",
    "empty_piece_keeps_state",
    "overflow_on_one_worker",
    "missing_variable",
    "missing_variable_in_custom_loop",
    "forgotten_variable",
    "different_arrays",
    "different_seeds",
    "not_for_xla",
    "optimizer_of_another_strategy",
    "stopped_from_outside",
    "rows_asked_for",
    "stopped_where_an_epoch_ends",
]


_SIZES = some_extended([1, 2, 3], [1, 3])


@pytest.fixture(scope="module", params=_SIZES, ids=lambda size: f"{size}workers")
def group(request):
    recorded = asked_values(request, "scenario", test_every_row_once_an_epoch_in_a_new_order)
    return workers.run(PROGRAM, [*recorded, *SCENARIOS], request.param)


def test_pieces_are_those_of_multi_worker_mirrored_strategy(group):
    # Measured with tf.distribute's own rebatching and sharding in TensorFlow 2.21.
    measured = {(16, 4): [4, 4, 4, 4], (10, 4): [3, 3, 3, 1], (8, 3): [3, 3, 2]}
    measured |= {(4, 3): [2, 2, 0], (1, 4): [1, 0, 0, 0], (7, 2): [4, 3], (9, 3): [3, 3, 3]}
    for (rows, size), bounds in group["pieces"][0].items():
        assert [end - begin for begin, end in bounds] == measured.pop((rows, size))
        assert bounds[0][0] == 0 and bounds[-1][1] == rows
        assert all(bounds[i][1] == bounds[i + 1][0] for i in range(size - 1))
    assert not measured


@pytest.mark.parametrize("scenario", some_extended(RECORDED, _OTHER_RECORDS))
def test_every_row_once_an_epoch_in_a_new_order(scenario, group):
    """All workers shuffle alike (protocol rule 25)."""
    arguments = json.loads(scenario.partition("=")[2])
    rows = arguments["rows"]
    results = group[scenario]
    orders = set()
    for epoch in range(4):
        seen = [result["epochs"][epoch] for result in results]
        assert sorted(row for worker in seen for row in worker if row) == list(range(1, rows + 1))
        orders.add(json.dumps(seen))
        assert len({result["steps"][epoch] for result in results}) == 1
        assert results[0]["steps"][epoch] == -(-rows // 8)
    # With a seed of the user's Keras shuffles arrays alike in each epoch.
    is_as_keras = "seed" in arguments and "source" not in arguments
    assert len(orders) == (1 if is_as_keras else 4)


def test_reduce_and_gather(group):
    size = group.size
    total = size * (size + 1) / 2
    mean_rank = sum(rank * (rank + 1) for rank in range(size)) / total
    rows = [rank for rank in range(size) for _ in range(rank + 1)]
    for rank, (replicas, results) in enumerate(group["reductions"]):
        assert replicas == size
        np.testing.assert_allclose(results["sum"], [total, 2 * total])
        np.testing.assert_allclose(results["mean"], [total / size, 2 * total / size])
        np.testing.assert_allclose(results["sum over rows"], 3 * total)
        np.testing.assert_allclose(results["mean over rows"], mean_rank, 1e-6)
        np.testing.assert_array_equal(results["gather"], np.array([rows, rows]).T)
        np.testing.assert_array_equal(results["gather 1"], [rows, rows])
        assert results["value"].tolist() == [rank, size]
        run = results["run"]
        assert run["replica"] == rank
        assert run["all_reduce"] == [sum(range(size)), {"mean": sum(range(size)) + size}]
        assert run["all_gather"].tolist() == list(range(size))


def test_custom_loop(group):
    results = group["custom_loop"]
    losses, weights, switch, count = results[0]
    assert all(result == results[0] for result in results)
    assert switch and count == 1  # worker 0's
    # The first global batch is 1 ... 8 and all weights are 1.
    assert losses[0] == 36 * 3 / 8
    # Adam moves by about its learning rate at first, whatever the number of workers.
    np.testing.assert_allclose(weights, [0.709431] * 3, 1e-5)


def test_embeddings_are_exchanged_as_rows_or_as_dense_tensors(group):
    size = group.size
    table = [[0.0] * 2, *([-float(row <= size)] * 2 for row in range(1, 4)), [-float(size)] * 2]
    for rows, dense in group["embeddings"]:
        assert rows == [["BytePSRowSum"], table]
        assert dense == [["BytePSPushPull"], table]


def test_fetched_batches_are_those_of_the_dataset(group):
    for expected, results, can_fetch, kept_functions in group["fetched"]:
        assert len(expected) == 4
        assert results == [expected] * 2
        assert can_fetch == ["numbers"]
        assert kept_functions == []


def test_own_datasets_end_together(group):
    size = group.size
    for rank, results in enumerate(group["own_datasets"]):
        own = [list(range(3 + 2 * rank))[i : i + 2] for i in range(0, 3 + 2 * rank, 2)]
        steps = -(-(3 + 2 * (size - 1)) // 2)
        expected = own + [[]] * (steps - len(own))
        assert results["from function"] == [expected, expected]
        own = [list(range(4 * (rank + 1)))[i : i + 3] for i in range(0, 4 * (rank + 1), 3)]
        expected = own + [[]] * (-(-4 * size // 3) - len(own))
        assert results["off"] == [expected, expected]
    lines = [line for result in group["own_datasets"] for step in result["file"] for line in step]
    assert sorted(lines) == [f"{n}{line}".encode() for n in range(3) for line in range(3 + n)]


def test_dataset_without_batches_is_refused(group):
    if group.size == 1:
        return  # nothing to split
    for failure in group.failures("unbatched"):
        assert failure.kind == "ValueError"
        assert "call dataset.batch(global_batch_size) first" in failure.message


def test_two_models_with_equal_paths(group):
    """Sums of two models do not meet (protocol rule 12)."""
    total = sum(range(1, group.size + 1))
    for kernels in group["two_models"]:
        np.testing.assert_allclose(kernels, [[1 - 0.1 * total] * 2, [1 - total] * 2], 1e-5)


def test_an_empty_piece_changes_no_state(group):
    """Nor does it contribute anything (protocol rule 24)."""
    for rank, result in enumerate(group["empty_piece_keeps_state"]):
        has_rows = rank == 0
        np.testing.assert_allclose(result["moving mean"], [1.0 if has_rows else 0.0] * 2, 1e-5)
        # At the end of the epoch the workers take their mean.
        mean = 1.0 / len(group["empty_piece_keeps_state"])
        np.testing.assert_allclose(result["moving mean of all"], [mean] * 2, 1e-5)
        assert result["counts"] == [[float(has_rows)] * len(result["counts"][0])]
        assert np.isfinite(result["loss"]).all()
        assert result["kernel"] == group["empty_piece_keeps_state"][0]["kernel"]


def test_overflow_on_one_worker_skips_the_step_on_all(group):
    """All skip a step, or none (protocol rule 27)."""
    for result in group["overflow_on_one_worker"]:
        assert result["scale"] == 32.0  # halved once
        assert result["iterations"] == 3
        assert result["epochs"] == 1
        assert np.isfinite(np.concatenate([np.ravel(w) for w in result["weights"]])).all()
        assert result["weights"] == group["overflow_on_one_worker"][0]["weights"]


@pytest.mark.parametrize("scenario", ["missing_variable", "missing_variable_in_custom_loop"])
def test_missing_variable_is_an_error_on_every_worker(scenario, group):
    """The workers compare their lists first (protocol rule 28)."""
    if group.size == 1:
        return
    for failure in group.failures(scenario):
        assert failure.kind == "ValueError"
        assert "worker 1 lacks" in failure.message
        assert "only_on_worker_0" in failure.message


def test_a_variable_that_is_garbage_on_some_workers_does_not_count(group):
    assert group["forgotten_variable"] == [2.0] * group.size


@pytest.mark.parametrize(
    "scenario, what", [("different_arrays", "rows"), ("different_seeds", "shuffle seed")]
)
def test_different_data_are_an_error_on_every_worker(scenario, what, group):
    if group.size == 1:
        return
    for failure in group.failures(scenario):
        assert failure.kind == "ValueError"
        assert f"the workers' data differ in {what}: worker 0 has" in failure.message


def test_what_xla_cannot_compile_is_an_error_with_a_way_out(group):
    for failure in group.failures("not_for_xla"):
        assert "unsupported operations" in failure.message and "AsString" in failure.message
        assert "pass jit_compile=False to Model.compile" in failure.message


def test_optimizer_of_another_strategy_is_refused_in_a_sentence(group):
    for failure in group.failures("optimizer_of_another_strategy"):
        assert failure.kind == "ValueError"
        assert "made in the scope of a MirroredStrategy" in failure.message
        assert "make it in the scope of the BytePSStrategy" in failure.message


def test_what_stops_one_worker_from_outside_stops_all_after_the_epoch(group):
    for result in group["stopped_from_outside"]:
        assert result["epochs"] == [0]
        # All of the epoch. Where a dataset's length is unknown, Keras counts one more at its end.
        assert group.size == 1 or result["steps"] >= 8


def test_nobody_asks_for_the_rows_of_a_batch_that_is_not_there(group):
    """Who has asked where the input ends, and is stopped, is ahead of the others from then on."""
    batches = 10 if group.size > 1 else 0  # one worker does not ask
    assert group["rows_asked_for"] == [batches] * group.size


def test_one_worker_stops_all_where_an_epoch_ends(group):
    """Workers agree at fixed points (protocol rule 26)."""
    assert group["stopped_where_an_epoch_ends"] == [[0, 1]] * group.size
