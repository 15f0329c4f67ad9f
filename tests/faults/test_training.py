"""What `fit` says when a process is lost: one sentence, and soon."""

import signal
import time

import pytest

from tests.cluster import Cluster, describe
from tests.faults import training
from tests.faults.suite import DETECTION
from tests.selection import some_long


@pytest.mark.parametrize(
    "role", some_long(["worker", "server", "scheduler"], ["server", "scheduler"])
)
def test_fit_ends_with_a_sentence(role):
    with Cluster(training.fit_until_a_fault, workers=2, servers=1) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("working", 120)
        time.sleep(0.5)
        named = {
            "worker": cluster.workers[1],
            "server": cluster.servers[0],
            "scheduler": cluster.scheduler,
        }
        begin = time.monotonic()
        named[role].kill(signal.SIGKILL)
        outcomes = cluster.wait(30)
        survivors = [o for o in outcomes if o.label.startswith("worker") and o.code == 0]
        assert len(survivors) == (1 if role == "worker" else 2), describe(outcomes)
        for outcome in survivors:
            message, when, lost_role, lost_rank, address, reason = outcome.result
            assert lost_role == role and reason in message
            assert lost_rank == {"worker": 1, "server": 0, "scheduler": None}[role]
            assert address.startswith("127.0.0.1:") if role != "worker" else address == ""
            assert when - begin < DETECTION
            assert message.startswith('tensor "') and "round " in message
            assert named[role].label in message and "127.0.0.1" in message
            assert "\n" not in message and len(message) < 400
            assert "Traceback" not in outcome.output and "Detected at" not in outcome.output
