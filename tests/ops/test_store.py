"""`push_pull(enable_async=True)`: servers hold a value and answer each change at once."""

import pytest

from tests.cluster import Cluster, describe, run_workers
from tests.ops import store_programs as programs

pytestmark = pytest.mark.time_limit(300)


@pytest.mark.parametrize("num_workers", [2, 3])
def test_changes_add_up_and_nobody_waits(num_workers):
    for result in run_workers(programs.adds_up, num_workers, 2, timeout=240):
        assert all(result.values()), result


def test_a_store_of_integers_is_exact():
    for num_workers in (1, 2):
        servers = 1 if num_workers > 1 else 0
        for first, last, size in run_workers(programs.integers, num_workers, servers, timeout=240):
            assert (first, last, size) == (5, 5 + 2 * num_workers, num_workers)


def test_refusals_name_the_cure():
    for said in run_workers(programs.refusals, 2, 1, timeout=240):
        assert "needs a name" in said["no name"][1]
        assert "leave average and op out" in said["average"][1]
        assert "takes no compression" in said["compression"][1]
        assert "no factors" in said["factor"][1]
        assert "round small changes away" in said["float16"][1]
        assert "takes dense tensors" in said["rows"][1]
        for case in ("another kind", "another shape", "no store"):
            assert "keeps shape, dtype and staleness" in said[case][1], case


def test_a_killed_server_costs_no_change_and_none_is_added_twice():
    steps = 60
    environment = {"BYTEPS_PARTITION_BYTES": "4096"}
    with Cluster(programs.survives, 3, 3, environment, (steps,)) as cluster:
        for victim, moment in zip(cluster.servers[:2], (10, 30), strict=True):
            cluster.workers[0].wait_for_output(f"step {moment}.", 120)
            victim.kill()
        cluster.wait_for(cluster.workers, 120)
        outcomes = cluster.wait(20)
    results = [each.result for each in outcomes if each.label.startswith("worker")]
    expected = steps * (1 + 1000 + 1000_000)
    assert results == [[expected]] * 3, describe(outcomes)
