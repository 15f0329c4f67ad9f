"""The API of BytePS and Horovod, with two real workers. A1 to A10 are faults of the original."""

import json
import sys

import pytest

from tests.api import programs
from tests.cluster import Process, clean_environment, free_port, run_workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(420)

ROWS = [[1, 7], [[6.5, 12.0], [3.0, 4.0]]]


@pytest.fixture(scope="module")
def results():
    return run_workers(programs.run_all, workers=2, servers=1, timeout=400)


@pytest.fixture
def result(results, request):
    """What a program returned on both workers, which must be the same."""
    both = []
    for rank, worker in enumerate(results):
        entry = worker[request.node.name.removeprefix("test_")]
        assert "error" not in entry, f"worker {rank}:\n{entry.get('error')}"
        both.append(entry["result"])
    assert both[0] == both[1]
    return both[0]


@pytest.fixture
def each(results, request):
    """What a program returned on each worker."""
    entries = [worker[request.node.name.removeprefix("test_")] for worker in results]
    for rank, entry in enumerate(entries):
        assert "error" not in entry, f"worker {rank}:\n{entry.get('error')}"
    return [entry["result"] for entry in entries]


def test_operations(result):  # A1
    total, mean, low, high = [4.0, 14.0], [2.0, 7.0], [1.0, 6.0], [3.0, 8.0]
    assert result == [total, total, mean, low, high, mean, mean, total, mean]


def test_both_orders_of_arguments(result):
    assert result == [[3.0], [3.0], [1.5]]


def test_refused_arguments(result):
    kinds = {name: kind for name, (kind, _) in result.items()}
    assert kinds == {
        "both": "ValueError",
        "scope": "TypeError",
        "unknown op": "ValueError",
        "adasum": "NotImplementedError",
        "asynchronous": "ValueError",
        "integer average": "ValueError",
        "integer scale": "ValueError",
        "dtype": "TypeError",
        "process set": "TypeError",
        "sparse minimum": "ValueError",
        "compression": "ValueError",
        "gradients' compression": "TypeError",
        "priority": "TypeError",
        "root": "TypeError",
        "no root": "ValueError",
        "gradient": "ValueError",
        "cross_step": "TypeError",
        "config": "BytePSError",
        "other config": "BytePSError",
        "global variables": "RuntimeError",
    }
    messages = {name: message for name, (_, message) in result.items()}
    assert "use one of 'none', 'fp16', 'bf16', 'int8', 'fp8', 'int4'" in messages["compression"]
    assert messages["no root"] == "root_rank must be a rank from 0 to 1, got 2"
    assert "'average' or 'sum', got 'mean'" in messages["gradient"]
    assert "runs already with another configuration" in messages["other config"]
    assert "'median'" in messages["unknown op"]
    assert "int32" in messages["integer average"]
    assert "pass op=" in messages["scope"]


def test_scaling_and_compression(result):
    assert result[0] == [12.0, 36.0]
    float16, bfloat16 = [1.501953125, 4.5078125], [1.5, 4.5]
    assert result[1:3] == [["float32", float16], ["float64", float16]]
    assert result[3:5] == [["float32", bfloat16], ["float64", bfloat16]]
    assert result[5] == ["int32", [6.0]]


def test_dtypes(result):  # A8
    assert len(result) == 8
    assert all(total == [2.0, 5.0] for total in result.values())


def test_lists(result):
    total = [[1.0, 1.0, 1.0], 4.0, [[2.0, 2.0], [2.0, 2.0]]]
    largest = [[1.0, 1.0, 1.0], 2.0, [[1.0, 1.0], [1.0, 1.0]]]
    assert result == ["list", total, [total, largest]]


def test_sparse(result):  # A7
    assert result["average"] == ROWS
    assert result["traced sum"] == [[1, 7], [[13.0, 24.0], [6.0, 8.0]]]
    assert result["compressed"] == ROWS
    assert result["scaled"] == [[1, 7], [[26.0, 48.0], [12.0, 16.0]]]
    assert result["dense"] == [[0.0, 0.0], [13.0, 24.0], [0.0, 0.0]]
    assert result["dtypes"] == [[[3, 4], [[4.0], [2.0]]]] * 4


def test_sparse_without_rows(result):
    assert result == [[4], [[0.5, 1.0]]]


def test_sparse_is_one_exchange(result):
    assert result == 1


def test_unnamed_in_eager_loops(result):  # A4
    assert result == [[[0.0], [2.0], [4.0]], 0]


def test_opposite_orders(result):  # A5
    assert result == {"first": [10.0] * 2, "second": [12.0] * 3}


def test_changed_size(result):  # A6
    sizes, (kind, message) = result
    assert sizes == [[2.0] * 2, [2.0] * 5, [2.0] * 2]
    assert kind == "FailedPreconditionError"
    assert "worker 0 sent float32[2]" in message and "worker 1 sent float32[3]" in message


def test_cancelled_exchanges_complete_later(each):
    assert each[0] == [["FailedPreconditionError"] * 5, []]
    assert each[1] == [["FailedPreconditionError"] * 5, [[2.0] * 4]]


def test_broadcasts(result):
    assert result == [[1.0, 2.0], [[1.0, 2.0], [4.0]]]


def test_variables(result):
    assert result == [[[1.0, 1.0], [[1.0] * 3] * 2, True, [0]], 12.0]


def test_different_variables(each):
    for (eager, eager_message), (traced, traced_message) in each:
        assert (eager, traced) == ("ValueError", "InvalidArgumentError")
        for message in (eager_message, traced_message):
            assert "worker 1 lacks nothing and has extra:0 float32[2]" in message


def test_objects(result):
    assert result == [True, [{"rank": 0, "rows": []}, {"rank": 1, "rows": [0]}]]


def test_objects_that_cannot_be_sent(result):
    assert [kind for kind, _ in result] == ["TypeError"] * 3 + ["ValueError", "RuntimeError"]
    assert "worker 0" in result[0][1] and "object['model'][0] is builtins.object" in result[0][1]
    assert "pass its .numpy()" in result[2][1]


def test_runtime_numbers(each):
    for rank, (numbers, size, constants) in enumerate(each):
        assert numbers == [rank, 2.0, rank, 2.0] and size == 2.0
        assert constants == []  # nothing that a traced function holds knows them


def test_speed(result):
    assert result == [0.0, True, True, 0.0]


def test_tape(result):  # A2, A3
    def half(nested):
        if isinstance(nested, dict):
            return {name: half(value) for name, value in nested.items()}
        return [half(value) for value in nested] if isinstance(nested, list) else nested / 2

    table = [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0], [8.0, 8.0]]
    total = [[[6.0], [12.0]], {"bias": [4.0], "table": table}]
    assert result["sum"] == [*total, True]
    for way in ("average", "traced", "as dense", "predivided"):
        assert result[way] == [*half(total), True], way
    assert [kind for kind, _ in result["refused"]] == ["ValueError", "ValueError", "TypeError"]


def test_tape_around_a_recorded_one(each):
    for rank, result in enumerate(each):
        own = 6.0 * (1 + rank)
        assert result == [True, own, 9.0, [0.0], [own / 2], own]


def test_retracing_on_one_worker(result):
    assert result == [[[1.0, 1.0], 8.0], [[1.0, 1.0], 7.0], [[1.0, 1.0], 6.0]]


def test_averaged_metrics(result):
    logs, (kind, message) = result
    assert logs == {"loss": 1.5, "accuracy": 0.5}
    assert kind == "ValueError" and "val_loss" in message


def test_keras_values(result):
    assert result == ["ndarray", [3.0, 6.0], 4.0, [2.0, 4.0], [1.0, 2.0, 4.0], 2]


def test_learning_rates(result):
    rates, logged, velocity = result
    assert rates == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.08, 0.08])
    assert logged == pytest.approx([0.6, 0.8, 0.08])
    assert velocity == pytest.approx(1.0)  # 2.0, and the rate has halved


def test_local_variables(each):
    assert each == [[[-1.0], [0.5]], [[-1.0], [-0.5]]]


def test_pushes_with_accumulation(result):
    assert result == 2 * 4 * 50_000  # two updates in eight steps, float32


def test_within_the_strategy(result):
    same, (kind, message) = result
    assert same
    assert kind == "ValueError" and "the strategy reduces" in message


def test_suspend_and_resume(tmp_path):
    """With TF_CONFIG alone, so that the workers host all that a second job needs."""
    worker = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    command = [sys.executable, "-m", "tests.cluster", programs.__name__, "suspend_and_resume", "[]"]
    processes = []
    for rank in range(2):
        task = {"type": "worker", "index": rank}
        config = json.dumps({"cluster": {"worker": worker}, "task": task})
        env = clean_environment(TF_CONFIG=config)
        processes.append(Process(f"worker {rank}", command, env, tmp_path))
    for rank, process in enumerate(processes):
        assert process.popen.wait(60) == 0, process.output()
        first, second, (running, (kind, _)), third, size, own_rank = process.outcome().result
        assert (first, second, third) == ([2.0], [4.0], [4.0])
        assert not running and kind == "FailedPreconditionError"
        assert (size, own_rank) == (2, rank)
