"""Exchanges of NumPy arrays between real workers through real servers."""

import itertools

import pytest

from tests.cluster import describe, run_processes, run_workers
from tests.engine import programs
from tests.engine.programs import DTYPES, PART_BYTES
from tests.selection import some_extended

SMALL_PARTS = {"BYTEPS_PARTITION_BYTES": str(PART_BYTES)}


# With no server, each worker hosts one.
_EVERYDAY = ((1, 0), (2, 0), (2, 1), (3, 2))
_JOBS = [
    pytest.param(*job, marks=() if job in _EVERYDAY else pytest.mark.extended)
    for job in itertools.product([1, 2, 3], range(4))
]


@pytest.mark.parametrize(("workers", "servers"), _JOBS)
def test_sums_of_every_dtype_and_size(workers, servers):
    counts = run_workers(programs.sums, workers, servers, SMALL_PARTS)
    assert counts == [(len(DTYPES) + 4) * 8] * workers


def test_several_connections_to_each_server():
    env = {**SMALL_PARTS, "BYTEPS_CONNECTIONS_PER_SERVER": "3", "BYTEPS_ENABLE_IPC": "0"}
    assert run_workers(programs.most_connections_to_one_address, env=env) == [3, 3]


def test_one_worker_through_a_server_of_its_own():
    env = {**SMALL_PARTS, "BYTEPS_FORCE_DISTRIBUTED": "1"}
    assert run_workers(programs.sums, workers=1, servers=0, env=env) == [96]


def test_integers_wrap():
    expected = {"int8": -2, "uint8": 254, "int32": -2, "int64": -2}
    assert run_workers(programs.wrapping_integers) == [expected] * 2


def test_half_precision_is_added_in_float32():
    assert run_workers(programs.half_precision, workers=3) == [2050.0] * 3


def test_minimum_and_maximum():
    assert run_workers(programs.extremes, workers=3) == [[[0, -2, 5], [2, 0, 5]]] * 3


def test_200_tensors_in_a_different_order_on_each_worker():
    assert all(run_workers(programs.different_order, workers=3, servers=2, env=SMALL_PARTS))


def test_opposite_order_with_credit_of_one_part():
    """Credit ends when bytes have arrived (protocol rule 9)."""
    env = {**SMALL_PARTS, "BYTEPS_CREDIT_BYTES": str(PART_BYTES)}
    assert run_workers(programs.opposite_order, servers=2, env=env) == [PART_BYTES] * 2


def test_on_one_machine_payloads_bypass_the_socket():
    for from_memory, by_socket in run_workers(programs.where_payloads_go):
        assert from_memory == 4_000_000
        assert by_socket < 100_000


@pytest.mark.parametrize(
    "env",
    [{"BYTEPS_ENABLE_IPC": "0"}, lambda label: {"BYTEPS_HOST_ID": label}],
    ids=["by choice", "different machines"],
)
def test_payloads_take_the_socket_otherwise(env):
    for from_memory, by_socket in run_workers(programs.where_payloads_go, env=env):
        assert from_memory == 0
        assert by_socket > 4_000_000


def test_mismatches_are_errors_on_every_worker_that_say_who_sent_what():
    """Workers declare what they exchange (protocol rule 3)."""
    results = run_workers(programs.mismatches, servers=2)
    distinct = {
        "shape": ("[4]", "[5]"),
        "dtype": ("float32", "int32"),
        "operation": ("sum", "max"),
        "average": ("sum", "average"),
        "root": ("0", "1"),
    }
    for errors in results:
        for name, (code, message) in errors.items():
            assert code == "FAILED_PRECONDITION", (name, message)
            for part in ("worker 0", "worker 1", f'"{name}"', *distinct[name]):
                assert part in message, (part, message)


def test_a_shape_may_change_on_all_workers_at_once():
    assert run_workers(programs.another_shape_later) == [[6, 10, 6, 8000]] * 2


def test_two_live_tensors_with_one_name():
    (sum_0, error), (sum_1, _) = run_workers(programs.one_name_twice)
    assert sum_0 == sum_1 == [2, 2, 2, 2]
    assert error[0] == "FAILED_PRECONDITION"
    assert '"same" is in flight already' in error[1] and "two names" in error[1]


def test_output_given_by_the_caller():
    assert run_workers(programs.given_output) == [True, True]


@pytest.mark.parametrize("workers", [1, 2])
def test_refused_tensors(workers):
    for errors in run_workers(programs.refused_tensors, workers, servers=workers - 1):
        assert {what: code for what, (code, _) in errors.items()} == dict.fromkeys(
            [
                "bool",
                "complex64",
                "other byte order",
                "integer average",
                "other size",
                "unknown operation",
                "unknown root",
                "scalar gather",
                "other output",
                "gather output",
            ],
            "INVALID_ARGUMENT",
        )
        assert "dtype bool cannot be exchanged; use float32" in errors["bool"][1]
        assert "the array is >f4, which is not this machine's" in errors["other byte order"][1]
        assert (
            "dtype float32 takes 4 bytes an element, but the array is bool"
            in (errors["other size"][1])
        )


@pytest.mark.parametrize("servers", some_extended([0, 2], [0]))
def test_broadcast(servers):
    assert run_workers(programs.broadcasts, 3, servers, SMALL_PARTS) == [True] * 3


@pytest.mark.parametrize("servers", some_extended([0, 2], [0]))
def test_gather(servers):
    assert run_workers(programs.gathers, 3, servers, SMALL_PARTS) == [True] * 3


def test_gather_of_unlike_rows():
    for code, message in run_workers(programs.gather_of_unlike_rows):
        assert code == "FAILED_PRECONDITION"
        assert "worker 0" in message and "worker 1" in message


def test_declaring_many_tensors_at_once():
    assert run_workers(programs.declared_first) == [50 * 12 * 2.0] * 2


def test_a_tensor_that_one_worker_does_not_send_times_out():
    env = {"BYTEPS_OPERATION_TIMEOUT": "2"}
    outcomes = run_processes(programs.only_worker_0_sends, workers=2, servers=1, env=env)
    result = outcomes[-2].result
    assert result is not None, describe(outcomes)
    assert result[0] == "DEADLINE_EXCEEDED"
    assert '"lonely"' in result[1] and "BYTEPS_OPERATION_TIMEOUT" in result[1]
