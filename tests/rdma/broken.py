"""Jobs over RDMA whose network breaks; `test_vm.py` runs these in its virtual machine, with two
devices."""

import contextlib
import re
import subprocess
import time

import numpy as np
import pytest

import tf_byteps
from tests.cluster import Cluster, describe, wait_until
from tests.engine import programs
from tests.rdma import jobs
from tf_byteps import _engine

_ENDS = ("veth0", "veth1")
_BREAK_SECONDS = 1.0
_EXCHANGE_SECONDS = 12
# Lost: what the device takes to give up, and 2 s to connect again. A few times as long.
_MOST_SECONDS_TO_AN_ERROR = 25


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

    def environment(label):
        return {**jobs.environment()(label), "BYTEPS_LOG_LEVEL": "DEBUG"}

    with Cluster(function, workers=2, servers=1, env=environment) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("begun", 100)
        time.sleep(1)
        yield cluster


def _expect_right_sums(cluster):
    """Both workers end well, with what they received; returns the workers' outcomes."""
    outcomes = cluster.wait(200)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    workers = [outcome for outcome in outcomes if outcome.label.startswith("worker")]
    for worker in workers:
        rounds, longest, counters = worker.result
        jobs.check_little_over_tcp(counters)
        print(f"{worker.label}: {rounds} rounds, the longest took {longest:.1f} s")
    return workers


def _wait_until_a_connection_has_ended(cluster):
    words = "RDMA connection with"
    processes = [*cluster.workers, *cluster.servers]
    wait_until(
        lambda: any(
            words in line and "has ended: UNAVAILABLE" in line
            for process in processes
            for line in process.output().splitlines()
        ),
        60,
    )


def _connections(worker):
    """How often it has opened one."""
    return len(re.findall(r"RDMA connection with server 0 at \S+ on rxe0", worker.output))


def test_a_short_break_is_survived_by_the_device():
    with _in_the_middle_of(exchange_for_a_while) as cluster:
        with _all_packets_lost():
            time.sleep(_BREAK_SECONDS)
        for worker in _expect_right_sums(cluster):
            _, longest, counters = worker.result
            assert longest > _BREAK_SECONDS / 2, "the break was not felt"
            assert _connections(worker) == 1, worker.output
            jobs.check_worker(counters)


@pytest.mark.parametrize("break_of", [_all_packets_lost, _interfaces_down])
def test_a_break_that_ends_a_connection_is_survived_by_another_one(break_of):
    """The network is back when the device has given up: what was cut off is sent again."""
    with _in_the_middle_of(exchange_for_a_while) as cluster:
        began = time.monotonic()
        with break_of():
            _wait_until_a_connection_has_ended(cluster)
        print(f"ended, and the network is back, after {time.monotonic() - began:.1f} s")
        workers = _expect_right_sums(cluster)
        assert max(_connections(worker) for worker in workers) > 1, workers


@pytest.mark.parametrize("break_of", [_all_packets_lost, _interfaces_down])
def test_a_long_break_is_an_error_and_the_next_job_works(break_of):
    with _in_the_middle_of(jobs.exchange_for_ever) as cluster, break_of():
        began = time.monotonic()
        messages = []
        for worker in cluster.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.popen.wait(100)
            outcome = worker.outcome()
            assert outcome.code == 0, outcome.output
            assert outcome.result[0] == "UNAVAILABLE", outcome.result
            messages.append(outcome.result[1])
        seconds = time.monotonic() - began
        print(f"both workers ended after {seconds:.1f} s: {messages}")
        assert any("it could not be connected again" in message for message in messages), messages
        assert seconds < _MOST_SECONDS_TO_AN_ERROR, messages
    with Cluster(jobs.sums, workers=2, servers=1, env=jobs.environment()) as cluster:
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
