"""Deterministic jobs: the same sums and weights whatever the servers, the parts and the order.

With two workers the order could not matter: all jobs here have three.
"""

import pytest

from tests.cluster import describe, run_processes, run_workers
from tests.determinism import programs

ON = {"BYTEPS_DETERMINISTIC": "1"}
# Seconds by which each worker is late, in turn: every order of arrival at the servers.
ALL_ORDERS = [
    [0, 0.02, 0.04],
    [0, 0.04, 0.02],
    [0.02, 0, 0.04],
    [0.04, 0, 0.02],
    [0.02, 0.04, 0],
    [0.04, 0.02, 0],
    [0, 0, 0],
]
BY_SOCKET = {"BYTEPS_ENABLE_IPC": "0"}


@pytest.mark.parametrize(
    "servers, env",
    [
        (0, {}),
        pytest.param(1, {"BYTEPS_PARTITION_BYTES": "1000"}, marks=pytest.mark.extended),
        pytest.param(
            *(2, {"BYTEPS_PARTITION_BYTES": "16384", **BY_SOCKET}), marks=pytest.mark.extended
        ),
        (3, {"BYTEPS_IO_THREADS": "4", "BYTEPS_CONNECTIONS_PER_SERVER": "3"}),
    ],
)
def test_sums_are_in_rank_order_for_every_order_of_arrival(servers, env):
    results = run_workers(programs.sums, 3, servers, {**ON, **env}, args=[ALL_ORDERS])
    everything = programs.ROUNDS * len(programs.SHAPES)
    assert results == [[everything, everything, True]] * 3


def test_without_the_option_sums_are_in_the_order_of_arrival():
    """Also that the contributions tell orders apart."""
    late = [[0.2, 0.1, 0]]
    right, total, deterministic = run_workers(programs.sums, 3, 1, args=[late])[0]
    assert right < total and not deterministic


@pytest.mark.time_limit(600)
def test_weights_are_the_same_with_other_servers_parts_and_orders():
    first = run_workers(programs.trained, 3, 1, timeout=250, args=[0, True])
    env = {"BYTEPS_PARTITION_BYTES": "1024", **BY_SOCKET}
    second = run_workers(programs.trained, 3, 2, env, timeout=250, args=[2, True])
    assert first == [[first[0][0], True]] * 3
    assert second == first


def test_workers_that_disagree_are_told_who_and_what():
    env = {"BYTEPS_RENDEZVOUS_TIMEOUT": "30"}
    outcomes = run_processes(programs.starts, 3, 1, env, timeout=200, args=[[1]])
    reported = [o.result for o in outcomes if o.label.startswith("worker") and o.result]
    refused = [text for text in reported if "its deterministic is" in text]
    assert refused, describe(outcomes)
    for text in refused:
        assert "that of worker" in text and "enable_op_determinism" in text
