"""The local sockets of a job's processes: who is answered, and what they cost."""

import contextlib
import logging
import os
import resource
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests.cluster import ROOT, Cluster, clean_environment, run_workers, wait_until
from tests.metrics import programs
from tests.metrics.programs import REQUEST, ask, sockets_of
from tests.metrics.test_metrics import SECONDS, exchange_until
from tf_byteps.config import Config
from tf_byteps.metrics import local
from tf_byteps.metrics.endpoint import open_endpoint, serving
from tf_byteps.metrics.listener import LocalListener
from tf_byteps.metrics.local import LocalJob, LocalSocket, local_jobs, own_socket
from tf_byteps.metrics.reading import Reading, Silence, read_all

NOBODY = 65534
AT_ONCE = 8


def test_processes_of_a_job_agree_on_its_name():
    def key(**settings):
        return own_socket(Config(**settings)).job.key

    scheduler = key(role="scheduler", scheduler_host="a", scheduler_port=1234)
    # Each may know the scheduler by another name.
    assert key(scheduler_host="b", scheduler_port=1234, num_worker_machines=2) == scheduler
    assert key(role="server", scheduler_host="::1", scheduler_port=1234) == scheduler
    assert key(role="server", scheduler_host="a", scheduler_port=1235) != scheduler
    # An ID tells more: a job that bpslaunch restarts has it again, with another port.
    by_id = {"job_id": "x" * 64, "scheduler_host": "a", "num_worker_machines": 2}
    assert key(**by_id, scheduler_port=1) == key(**by_id, scheduler_port=2) != scheduler
    assert key(role="evaluator", job_id="x" * 64) == key() != key(**by_id, scheduler_port=1)
    assert len(own_socket(Config(**by_id, scheduler_port=1)).name.encode()) < 108


def test_only_sockets_that_listen_are_found(tmp_path, monkeypatch):
    key, user = "0123456789abcdef", os.geteuid()
    name = f"@tf_byteps/{user}/{key}/12-00c0ffee"
    start = "0000000000000000: 00000002 00000000 00010000 0001 01 37941 "
    lines = [
        "Num       RefCount Protocol Flags    Type St Inode Path",
        start + name,
        start.replace("00010000", "00000000") + name.replace("12", "13"),  # a connection
        start + f"@tf_byteps/{user}/{key}/x-00c0ffee",
        # Strangers choose the names of theirs, with line breaks, too.
        name,
        start + "/tmp/a b " + name,
        start + f"@tf_byteps/{2**70}/{key}/12-00c0ffee",
        start + "@\xff\x00",
        "",
    ]
    listed = tmp_path / "unix"
    listed.write_bytes("\n".join(lines).encode("latin-1"))
    monkeypatch.setattr(local, "_SOCKETS", listed)
    job = LocalJob(user, key)
    assert local_jobs() == {job: [LocalSocket(job, 12, "00c0ffee")]}
    monkeypatch.setattr(local, "_SOCKETS", tmp_path / "none")
    assert local_jobs() == {}


def test_a_worker_loads_nothing_before_somebody_asks():
    (found,) = run_workers(programs.modules_and_threads, workers=1, servers=0)
    before, after, threads, ports, is_answered = found
    assert before == [] and len(after) == 3
    assert threads == ["byteps-metrics"] and ports == [] and is_answered


def test_a_forked_child_does_not_hold_its_parents_socket():
    assert run_workers(programs.fork_and_leave, workers=1, servers=0) == [[True, False, True]]


def test_garbage_and_idle_connections_do_not_hurt(tmp_path):
    stop = tmp_path / "stop"
    with Cluster(exchange_until, workers=2, servers=1, args=[str(stop)]) as job:
        pid = job.workers[0].popen.pid
        where = next(s for s in sockets_of(pid) if s.process == pid)
        wait_until(lambda: b"exchanges_ended_total" in ask(where), SECONDS)
        process = psutil.Process(pid)
        threads = process.num_threads()
        with contextlib.ExitStack() as opened:
            idle = []
            while len(idle) < 50:
                with contextlib.suppress(BlockingIOError):  # it has not accepted the last ones yet
                    idle.append(opened.enter_context(where.connect()))
            # One that ends gives its place to the next before it is gone.
            assert process.num_threads() <= threads + 2 * AT_ONCE < threads + len(idle)
            for connection in idle:
                connection.settimeout(SECONDS)
                with contextlib.suppress(ConnectionError):
                    assert connection.recv(1) == b""  # it is dropped, after 5 s at the latest
        for data in (
            os.urandom(200),
            b"GET " + b"a" * 70000 + b"\r\n\r\n",
            b"GET /proc",
            b"\n" * 9,
        ):
            with contextlib.suppress(ConnectionError), where.connect() as connection:
                connection.setblocking(True)
                connection.sendall(data)
        wait_until(lambda: isinstance(read_all([where], SECONDS)[where], Reading), SECONDS)
        stop.touch()
        outcomes = job.wait(SECONDS)
    assert all(outcome.code == 0 for outcome in outcomes)
    assert not any("Traceback" in outcome.output for outcome in outcomes)
    rounds, exchanges = outcomes[-1].result
    assert exchanges == 2 * rounds


STRANGER = """\
import os, sys
from tf_byteps.metrics import local, top
from tests.metrics import programs, test_local
job = local.LocalJob(0, sys.argv[1])
theirs = local.LocalSocket(job, int(sys.argv[2]), sys.argv[3])
os.setgroups([]), os.setgid(test_local.NOBODY), os.setuid(test_local.NOBODY)
false = test_local.bound(local.LocalSocket(job, 1, "f" * 8).name)
false_job = test_local.bound(local.LocalSocket(local.LocalJob(0, "f" * 16), 1, "f" * 8).name)
print("answer", programs.ask(theirs), "jobs", dict(local.local_jobs()), flush=True)
print("code", top.main(["--once"]), flush=True)
sys.stdin.read()
"""


def bound(name):
    """A socket that listens, and never answers."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    return listener


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_other_users_get_nothing_and_deceive_nobody():
    with serving(Config(), "the worker", [lambda: []]) as endpoint:
        assert endpoint.address is None
        own = own_socket(Config())
        assert b"process_id" in ask(own)
        command = [sys.executable, "-c", STRANGER, own.job.key, str(own.process), own.token]
        stranger = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with stranger:
            said = [stranger.stdout.readline() for _ in range(3)]
            assert said[0] == "answer b'' jobs {}\n", said
            assert "no job of yours runs on this host" in said[1] and said[2] == "code 1\n", said
            # Sockets of the stranger have names of root's.
            sockets = {s.token: s for s in local_jobs()[own.job]}
            assert own.token in sockets and not sockets["f" * 8].is_genuine
            answers = read_all(sockets.values(), SECONDS)
            assert isinstance(answers[own], Reading)
            false = answers[sockets["f" * 8]]
            assert isinstance(false, Silence) and "Permission denied" in false.why
            (listed,) = local_jobs()[LocalJob(0, "f" * 16)]
            assert not listed.is_genuine
            stranger.stdin.close()
    assert not own.is_genuine


def test_a_name_that_is_taken_is_one_line_for_debugging(caplog):
    with caplog.at_level(logging.DEBUG, "tf_byteps"), bound(own_socket(Config()).name):
        with serving(Config(), "the worker", [lambda: []]) as endpoint:
            assert endpoint.address is None
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG and "Address already in use" in record.getMessage()


class Counting(LocalListener):
    """Counts how often it looks who connects."""

    looks = 0

    def get_request(self):
        self.looks += 1
        return super().get_request()


def test_a_process_with_too_many_files_does_not_spin():
    where = own_socket(Config())
    listener = Counting(where.name, {"/metrics": [], "/process": []}, job=1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        with open(os.devnull) as next_file:
            most = next_file.fileno()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
            client.connect(where.name)
            wait_until(lambda: listener.looks >= 2)  # it has paused in between
            looks = listener.looks
            time.sleep(0.1)
            assert listener.looks <= looks + 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        client.sendall(REQUEST)
        assert client.recv(1000).startswith(b"HTTP/1.0 200 OK")
    listener.close()


def test_closing_is_idempotent():
    endpoint = open_endpoint(Config(), "the worker", [lambda: []])
    assert own_socket(Config()).is_genuine
    endpoint.close()
    endpoint.close()
    assert not own_socket(Config()).is_genuine
