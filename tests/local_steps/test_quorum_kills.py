"""A server or a worker is killed in the rounds of a quorum."""

import signal

import numpy as np
import pytest

from tests.cluster import Cluster, describe, outcome_of
from tests.local_steps import quorum_kills

_ENVIRONMENT = {"BYTEPS_PARTITION_BYTES": "8192", "BYTEPS_ENABLE_IPC": "0"}
_STEPS = 60


def test_nothing_is_lost_with_servers():
    """Two of three are killed, whatever rounds are open then."""
    with Cluster(quorum_kills.trains, 3, 3, _ENVIRONMENT, (_STEPS,)) as cluster:
        for victim, step in ((cluster.servers[0], 13), (cluster.servers[2], 35)):
            cluster.workers[0].wait_for_output(f"step {step}.", 120)
            victim.kill(signal.SIGKILL)
        cluster.wait_for(cluster.workers, 240)
        outcomes = cluster.wait(20)
    results = [outcome_of(outcomes, f"worker {rank}").result for rank in range(3)]
    assert all(results), describe(outcomes)
    assert all(each[0] == results[0][0] and each[2] == results[0][2] for each in results)
    np.testing.assert_allclose(results[0][0], sum(np.array(each[1]) for each in results), rtol=1e-9)


@pytest.mark.parametrize("rank", [1, 2])
def test_a_lost_worker_is_named(rank):
    with Cluster(quorum_kills.waits_for_a_fault, 3, 1, _ENVIRONMENT) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("working", 120)
        cluster.workers[rank].kill(signal.SIGKILL)
        others = [each for each in cluster.workers if each is not cluster.workers[rank]]
        cluster.wait_for(others, 120)
        outcomes = cluster.wait(20)
    for outcome in outcomes:
        if outcome.label in {other.label for other in others}:
            assert outcome.result and f"worker {rank}" in outcome.result, describe(outcomes)
