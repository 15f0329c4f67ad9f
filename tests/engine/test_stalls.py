"""What a worker says when a tensor waits for other workers."""

import re
import signal

import pytest

from tests.cluster import Cluster, describe, run_processes
from tests.engine import programs

_SOON = {"BYTEPS_STALL_WARNING_SECONDS": "1"}


def _waiting(cluster):
    for worker in cluster.workers:
        worker.wait_for_output("ready")


def test_a_report_names_who_has_sent_and_what_the_others_do():
    env = {**_SOON, "BYTEPS_HEARTBEAT_INTERVAL": "0.2"}  # servers report lags as often
    with Cluster(programs.one_does_not_send, workers=3, servers=1, env=env, args=[4]) as cluster:
        outcomes = cluster.wait(30)
        workers = outcomes[-3:]
        report = workers[0].output
        assert 'worker 0 waits for tensor "late" (float32[2] sum), round 0' in report
        assert "sent by ranks 0, 2; not by rank 1" in report, describe(outcomes)
        assert 'rank 1: waits for nothing; its last exchange, tensor "before", round' in report
        assert "rank 2:" not in report  # it has sent all that is asked for
        assert re.search(r"after the first of each round: rank 0 by \d+ ms, rank 1 by", report)
        # One report is enough: the others refer to it.
        own = r'worker 2 waits for tensor "late", round 0, since \d+ s; the log of worker 0 says'
        assert re.search(own, workers[2].output), describe(outcomes)
        assert "sent by" not in workers[2].output
        assert "waits for tensor" not in workers[1].output
        assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)


def test_a_stopped_process_does_not_answer():
    with Cluster(programs.waits_for_end, workers=2, servers=1, env=_SOON) as cluster:
        _waiting(cluster)
        cluster.workers[1].kill(signal.SIGSTOP)
        cluster.workers[0].wait_for_output("rank 1: does not answer")
        assert 'tensor "alone 0"' in cluster.workers[0].output()
        assert "sent by rank 0; unknown of rank 1" in cluster.workers[0].output()


def test_a_signal_asks_for_a_report():
    with Cluster(programs.waits_for_end, workers=2, servers=1) as cluster:
        _waiting(cluster)
        cluster.workers[0].kill(signal.SIGUSR1)
        cluster.workers[0].wait_for_output("not by rank 1", 30)
        output = cluster.workers[0].output()
        assert 'worker 0 waits for tensor "alone 0" (float32[1] sum), round 0' in output
        assert 'rank 1: waits for tensor "alone 1", round 0, since' in output
        assert "waits for" not in cluster.workers[1].output()


@pytest.mark.parametrize("warning", ["1", "0", "2"], ids=["before", "never", "together"])
def test_a_stall_can_end_the_job_and_says_first_for_whom_it_waits(warning):
    env = {"BYTEPS_STALL_WARNING_SECONDS": warning, "BYTEPS_STALL_SHUTDOWN_SECONDS": "2"}
    outcomes = run_processes(programs.one_does_not_send, workers=2, env=env, args=[30])
    for outcome in outcomes[-2:]:
        assert outcome.code != 0, describe(outcomes)
    assert "BYTEPS_STALL_SHUTDOWN_SECONDS" in outcomes[-2].output
    assert "not by rank 1" in outcomes[-2].output
