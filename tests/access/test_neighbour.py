"""A user of the job's host who does not know its secret keeps none of its processes out."""

import os
import pathlib
import shutil
import subprocess

import psutil
import pytest

from tests.access import hostile, neighbour, programs
from tests.cluster import Cluster, describe, outcome_of, wait_until

_NOBODY = 65534
_PYTHON = shutil.which("python3", path="/usr/bin:/bin")
_SS = shutil.which("ss", path="/usr/sbin:/sbin:/usr/bin:/bin")
_RESETS = 5
_SECONDS = 60  # at most


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@pytest.mark.skipif(_PYTHON is None or _SS is None, reason="no Python and ss for all users")
@pytest.mark.time_limit(240)
def test_connections_come_back_while_another_user_connects_from_the_same_address(tmp_path):
    stop = tmp_path / "stop"
    with Cluster(programs.steps, 2, args=[str(stop), 0.02]) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        server = cluster.servers[0]
        ports = hostile.listening_ports(server) + hostile.listening_ports(cluster.scheduler)
        with subprocess.Popen(
            [_PYTHON, "-", str(_SECONDS), *map(str, ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=_NOBODY,
            group=_NOBODY,
            extra_groups=[],
            cwd="/",
            text=True,
        ) as attacker:
            try:
                attacker.stdin.write(pathlib.Path(neighbour.__file__).read_text())
                attacker.stdin.close()
                assert attacker.stdout.readline() == "begun\n"
                wait_until(lambda: "more before)" in server.output())  # it fails all the time
                for _ in range(_RESETS):
                    _reset_a_connection(cluster.workers[0], ports[0])
            finally:
                attacker.kill()
        stop.touch()
        outcomes = cluster.wait(60)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)[-6000:]
    refused = outcome_of(outcomes, "server 0").output.count("refused a connection from 127.0.0.1")
    assert refused > 0


def _reset_a_connection(worker, port):
    """Has the kernel end what a worker has opened to a port, and waits for another connection."""
    before = _connections(worker, port)
    assert before, worker.output()
    filters = [f"( sport = :{local} )" for local in before]
    command = [_SS, "-K", "-t", "dst", "127.0.0.1", "dport", "=", f":{port}", "and"]
    subprocess.run([*command, " or ".join(filters)], check=True, capture_output=True)
    wait_until(lambda: not before & _connections(worker, port))
    wait_until(lambda: _connections(worker, port) or worker.popen.poll() is not None)
    assert worker.popen.poll() is None, worker.output()


def _connections(worker, port):
    """The worker's ports of its open connections to a port."""
    sockets = psutil.Process(worker.popen.pid).net_connections("tcp")
    return {
        s.laddr.port
        for s in sockets
        if s.raddr and s.raddr.port == port and s.status == psutil.CONN_ESTABLISHED
    }
