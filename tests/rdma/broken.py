"""Jobs over RDMA whose network breaks; `test_vm.py` runs these in its virtual machine, with two
devices."""

import contextlib
import subprocess
import time

import numpy as np

import tf_byteps
from tests.cluster import Cluster, describe
from tests.engine import programs
from tests.rdma import jobs
from tf_byteps import _engine

_ENDS = ("veth0", "veth1")
_BREAK_SECONDS = 1.0
_EXCHANGE_SECONDS = 8


def _command(*words):
    subprocess.run(words, check=True, timeout=30)


@contextlib.contextmanager
def _all_packets_lost():
    """As a switch that is off: the interfaces stay up."""
    for end in _ENDS:
        _command("tc", "qdisc", "add", "dev", end, "root", "netem", "loss", "100%")
    try:
        yield
    finally:
        for end in _ENDS:
            _command("tc", "qdisc", "del", "dev", end, "root")


@contextlib.contextmanager
def _interfaces_down():
    """As a cable that is pulled."""
    for end in _ENDS:
        _command("ip", "link", "set", end, "down")
    try:
        yield
    finally:
        for end in _ENDS:
            _command("ip", "link", "set", end, "up")
        _command("sh", "/run/routes")


def exchange_for_a_while():
    """Right sums for some seconds; their number and the longest wait for one."""
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    given = np.arange(jobs.ELEMENTS, dtype=np.float32) % 1000 + rank
    expected = size * (np.arange(jobs.ELEMENTS, dtype=np.float32) % 1000) + sum(range(size))
    print("begun", flush=True)
    began = time.monotonic()
    rounds, longest, goes_on = 0, 0.0, True
    while goes_on:
        before = time.monotonic()
        np.testing.assert_array_equal(programs.start(given, name="large").wait(100), expected)
        # All decide together when it is enough.
        enough = np.array([time.monotonic() - began > _EXCHANGE_SECONDS], np.int32)
        goes_on = programs.start(enough, name="enough").wait(100)[0] == 0
        longest = max(longest, time.monotonic() - before)
        rounds += 1
    counters = _engine.worker_counters()
    tf_byteps.shutdown()
    return [rounds, longest, counters]


@contextlib.contextmanager
def _in_the_middle_of(function):
    """A job of two workers that are in the middle of many writes."""
    with Cluster(function, workers=2, servers=1, env=jobs.environment()) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("begun", 100)
        time.sleep(1)
        yield cluster


def test_a_short_break_is_survived():
    with _in_the_middle_of(exchange_for_a_while) as cluster:
        with _all_packets_lost():
            time.sleep(_BREAK_SECONDS)
        outcomes = cluster.wait(200)
        assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
        for worker in outcomes:
            if not worker.label.startswith("worker"):
                continue
            rounds, longest, counters = worker.result
            assert longest > _BREAK_SECONDS / 2, "the break was not felt"
            jobs.check_worker(counters)
            print(f"{worker.label}: {rounds} rounds, the longest took {longest:.1f} s")


def _expect_unavailable(cluster, words):
    """Both workers end with UNAVAILABLE; one of them with the device's words."""
    began = time.monotonic()
    messages = []
    for worker in cluster.workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.popen.wait(100)
        outcome = worker.outcome()
        assert outcome.code == 0, outcome.output
        assert outcome.result[0] == "UNAVAILABLE", outcome.result
        messages.append(outcome.result[1])
    print(f"known after {time.monotonic() - began:.1f} s: {messages}")
    assert any(word in message for word in words for message in messages), messages


def test_a_long_break_is_an_error():
    with _in_the_middle_of(jobs.exchange_for_ever) as cluster, _all_packets_lost():
        _expect_unavailable(cluster, ["transport retry counter exceeded"])


def test_a_cable_that_is_pulled_is_an_error_and_the_next_job_works():
    with _in_the_middle_of(jobs.exchange_for_ever) as cluster, _interfaces_down():
        _expect_unavailable(cluster, ["RDMA device"])
    with Cluster(exchange_for_a_while, workers=2, servers=1, env=jobs.environment()) as cluster:
        outcomes = cluster.wait(200)
        assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)


def _device_that_is_down():
    """A device whose interface is not up, for workers; servers have another one."""
    _command("ip", "link", "add", "veth2", "type", "veth", "peer", "name", "veth3")
    _command("rdma", "link", "add", "rxe2", "type", "rxe", "netdev", "veth2")


def _environment_without_a_port(van):
    usual = jobs.environment()

    def of(label):
        env = {**usual(label), "BYTEPS_VAN": van}
        return {**env, "BYTEPS_RDMA_DEVICES": "rxe2"} if label.startswith("worker") else env

    return of


def test_a_worker_whose_port_is_down():
    """Over TCP with a warning, or not at all."""
    _device_that_is_down()
    down = "RDMA device rxe2 port 1 is down"
    with Cluster(jobs.sums, workers=2, servers=1, env=_environment_without_a_port("auto")) as job:
        outcomes = job.wait(200)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    for worker in [outcome for outcome in outcomes if outcome.label.startswith("worker")]:
        assert worker.result[1]["rdma_bytes_sent"] == 0 < worker.result[1]["pushed_bytes"]
        assert down in worker.output and "going on over TCP" in worker.output, worker.output
    with Cluster(jobs.sums, workers=2, servers=1, env=_environment_without_a_port("rdma")) as job:
        for worker in job.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.popen.wait(100)
            outcome = worker.outcome()
            assert outcome.code not in (0, None), outcome.output
            assert down in outcome.output and "BYTEPS_VAN=auto" in outcome.output, outcome.output
