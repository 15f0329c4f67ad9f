"""The TensorFlow operations in 1, 2 (slow) and 3 real worker processes."""

import os
import re

import numpy as np
import pytest

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "ops_programs.py")
SCENARIOS = [
    "before_init",
    "start",
    "many_names",
    "all_dtypes",
    "copied_dtypes",
    "shapes",
    "gradients",
    "unused_result_runs",
    "many_in_flight",
    "broadcast_copies",
    "while_loop",
    "one_name_in_program_order",
    "alternating_shapes",
    'alternating_shapes={"name": "alternating"}',
    "unnamed",
    "slices",
    "slices_of_several_ranks",
    "refusals",
    "disagreements",
    "refused_by_one",
    "refused_in_flight",
    "one_name_in_two_threads",
    "overlap",
    "eager_lists",
    "eager_tape",
    "stateful_compressors",
    "cancelled_step",  # last: it leaves an exchange behind that never ends
]


_SIZES = [1, pytest.param(2, marks=pytest.mark.slow), 3]


@pytest.fixture(scope="module", params=_SIZES, ids=lambda size: f"{size}workers")
def group(request):
    return workers.run(PROGRAM, SCENARIOS, request.param)


def test_call_before_init_is_an_error(group):
    for messages in group["before_init"]:
        assert len(messages) == 2
        assert all("call tf_byteps.init() first" in message for message in messages)


def test_rank_and_size(group):
    assert group["start"] == [(rank, group.size) for rank in range(group.size)]


def test_a_name_costs_little_memory(group):
    assert all(growth < 10_000 for growth in group["many_names"]), group["many_names"]


def test_every_dtype_and_op(group):
    size = group.size
    own = [np.arange(15.0).reshape(5, 3) % 7 + 10 * rank for rank in range(size)]
    expected = {
        "sum": sum(own),
        "average": sum(own) / size,
        "min": own[0],
        "max": own[-1],
        "product": np.prod([each % 3 + 1 for each in own], axis=0),
        "broadcast": own[-1],
        "gather": np.concatenate([own[rank][: rank + 1] for rank in range(size)]),
    }
    for results in group["all_dtypes"]:
        assert len(results) == 8
        for dtype, ops in results.items():
            assert ("average" in ops) == ("float" in dtype)
            tolerance = 2e-2 if dtype == "bfloat16" else 2e-3 if dtype == "float16" else 1e-6
            for op, found in ops.items():
                for mode, value in zip(("eager", "graph"), found, strict=True):
                    np.testing.assert_allclose(
                        value, expected[op], tolerance, err_msg=f"{dtype} {op} {mode}"
                    )


def test_shapes(group):
    for found, scalar, nothing, no_rows in group["shapes"]:
        assert found["push_pull"] == found["broadcast"] == [[None, 3], [2, 3]]
        assert found["gather"] == [[None, 3], [None, 3]]
        assert scalar == group.size
        assert nothing == [0, 4]
        assert no_rows == [0, 4]


def test_gradients(group):
    size = group.size
    total = size * (size + 1) / 2  # the workers weight their losses 1, 2, ...
    row = 1
    for rank, results in enumerate(group["gradients"]):
        rows = rank % 2 + 1
        gathered = np.zeros([2, 2])
        gathered[:rows] = total * np.arange(row, row + rows)[:, None]
        row += rows
        expected = {
            "sum": np.full([2, 2], total),
            "average": np.full([2, 2], total / size),
            "broadcast_sum": np.full([2, 2], total if rank == 0 else 0.0),
            "gather_sum": gathered,
        }
        for name in ("broadcast", "gather"):  # as in Horovod
            expected[name] = expected[f"{name}_sum"] / size
        expected["grouped_gather"] = expected["gather"]
        for (name, mode), value in ((k, v) for k, v in results.items() if k != "max"):
            np.testing.assert_allclose(value, expected[name], 1e-6, err_msg=f"{name} {mode}")
        assert len(results) == 15
        assert "no gradient" in results["max"]


def test_unused_result_still_runs(group):
    results = group["unused_result_runs"]
    assert results[0] == [group.size] * 3
    assert all(result == [1.0] * 3 for result in results[1:])


def test_many_in_flight_in_different_order(group):
    ranks = sum(range(group.size))
    expected = {i: ranks + group.size * i for i in range(200)}
    for results in group["many_in_flight"]:
        assert results == [expected] * 3


def test_exchanges_of_one_graph_do_not_wait_for_each_other(group):
    assert group["overlap"] == [[2.0 * group.size] * 8] * group.size


def test_members_of_an_eager_list_do_not_wait_for_each_other(group):
    size = group.size
    sums = [[size * (1.0 + index)] * (2 + index) for index in range(4)]
    rows = [[1.0] * (2 * size), [2.0] * (3 * size)]
    for results in group["eager_lists"]:
        assert results == {"list/0": sums, "list/1": sums, "gathered": rows}


def test_gradients_of_an_eager_tape_do_not_wait_for_each_other(group):
    size = group.size
    for results in group["eager_tape"]:
        for step, gradients in enumerate(results):
            # Worker r takes the first step + r + 1 rows of the table.
            counts = [sum(row < step + rank + 1 for rank in range(size)) for row in range(5)]
            assert gradients == {
                "a": [4.0 * size] * 3,
                "b": [[3.0 * size] * 2] * 2,
                "table": [[float(count)] * 2 for count in counts],
            }


def test_what_only_copies_takes_every_dtype(group):
    for results in group["copied_dtypes"]:
        gradient = results.pop("gradient")
        table, nothing = results.pop("table"), results.pop("nothing")
        assert len(results) == 8
        for dtype, (values, found) in results.items():
            gathered = [value for rank in range(group.size) for value in values[rank:]]
            assert found == [[gathered, values[-1:], values[group.size - 1]]] * 2, dtype
        rows = [[b"a", b""], [b"\xff\0", b"long"]]
        assert table == [row for rank in range(group.size) for row in rows[: rank + 1]]
        assert nothing == []
        assert gradient


def test_broadcast_copies_the_root(group):
    for eager, graph in group["broadcast_copies"]:
        np.testing.assert_array_equal(eager, [1.0, 2.0])
        np.testing.assert_array_equal(graph, [1.0, 2.0])


def test_iterations_of_a_loop_stay_in_order(group):
    """In spite of delays that differ between workers (protocol rule 11)."""
    for results in group["while_loop"]:
        assert results == [[float(group.size * i) for i in range(12)]] * 2


def test_uses_of_one_name_stay_in_program_order(group):
    expected = [group.size * x for x in (1.0, 10.0, 100.0, 1000.0, 10000.0)]
    for results in group["one_name_in_program_order"]:
        assert results == [expected] * 5


@pytest.mark.parametrize(
    "scenario", ["alternating_shapes", 'alternating_shapes={"name": "alternating"}']
)
def test_alternating_shapes(scenario, group):
    a, b = [group.size * 1.0] * 2, [group.size * 10.0] * 3
    for inside, outside in group[scenario]:
        assert inside == outside == [a, b, a, b]


def test_retracing_on_one_worker_keeps_names(group):
    """Names come from the program (protocol rule 12)."""
    for results in group["unnamed"]:
        assert results == [21.0 * group.size] * 3


def test_indexed_slices_merge_duplicates(group):
    size = group.size
    expected = np.zeros([9, 2])
    for rank in range(size):
        expected[5] += np.array([101.0, 202.0]) * (rank + 1)
        expected[rank] += np.array([10.0, 20.0]) * (rank + 1)
    for results in group["slices"]:
        for op, found in results.items():
            for indices, dense in found:
                assert indices == [*range(size), 5]
                np.testing.assert_allclose(dense, expected / (size if op == "average" else 1))


def test_indexed_slices_of_several_ranks_at_one_place(group):
    expected = [[2, 3], [2, 3, 4], [2], [2, 3]]
    for shapes in group["slices_of_several_ranks"]:
        assert shapes == [shape for shape in expected for _ in range(2)]


def test_wrong_calls_are_refused_in_a_sentence(group):
    expected = {
        "bool": ("TypeError", "bool; supported are float32, float64"),
        "string": ("TypeError", "string; supported are"),
        "complex": ("TypeError", "complex128; supported are"),
        "ragged": ("TypeError", "gather takes dense tensors, got a RaggedTensor"),
        "integer average": ("ValueError", "average of int32"),
        "average and op": ("ValueError", "either average or op"),
        "unknown op": ("ValueError", "'median'"),
        "least rows": ("ValueError", "op 'min' does not exist for tf.IndexedSlices"),
        "scalar gather": ("ValueError", "scalar has no axis 0"),
        "empty name": ("ValueError", "name must be"),
    }
    for results in group["refusals"]:
        for case, (kind, text) in expected.items():
            assert results[case][0] == kind, (case, results[case])
            assert text in results[case][1], (case, results[case])


def test_disagreements_are_errors_on_every_worker(group):
    for results in group["disagreements"]:
        if group.size == 1:
            assert results == {}
            continue
        assert len(results) == 16, results
        for (case, mode), message in results.items():
            name = "ops_programs.py:" if case.startswith("unnamed") else f"differs.{case}"
            assert name in message
            assert message.startswith('tensor "') == (mode == "eager"), message
            assert "[Op:" not in message or mode == "graph", message
            assert len(set(re.findall(r"worker \d sent", message))) >= 2, message


def test_what_one_worker_refuses_is_an_error_on_all(group):
    """Nobody waits for it."""
    alone, *others = group["refused_by_one"]
    for (case, name), result in alone.items():
        for other in others:
            if name == "after":
                assert other[case, name] == result == [2.0, 1.0, 1.0]
                continue
            kind, message = result
            assert kind in ("TypeError", "ValueError")
            assert (
                f"worker 0 has given it up: it refused the call: {kind}: {message}"
                in (other[case, name][1])
            )
            assert (name or "ops_programs.py:") in other[case, name][1]


def test_a_refusal_waits_for_the_round_in_flight(group):
    """The engine does, not the call."""
    first, *others = group["refused_in_flight"]
    if group.size == 1:
        assert first == [1.0] * 3
        return
    assert "'median'" in first[0]
    assert first[1:] == [group.size] * 2
    for total, message, after in others:
        assert total == after == group.size
        assert "worker 0 has given it up: it refused the call: ValueError: " in message


def test_one_name_twice_at_once_is_an_error(group):
    results = group["one_name_in_two_threads"]
    if group.size == 1:
        return  # nothing is ever pending
    assert [outcome for outcome, _ in results] == [[group.size]] * group.size
    assert "two threads" in results[0][1]


def test_a_failing_step_does_not_wait_for_its_exchanges(group):
    assert "the step fails" in group["cancelled_step"][0]


def test_a_step_compresses_once(group):
    for results in group["stateful_compressors"]:
        assert set(results) == {"eager", "traced", "compiled"}
        for how, (calls, total) in results.items():
            assert calls == 10, how
            assert total == [3, 4, 6], how
