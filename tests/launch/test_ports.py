"""--ports, DMLC_PS_ROOT_PORT and BYTEPS_SERVER_PORT: where the processes of a job listen."""

import random
import shutil
import socket
import subprocess

import numpy as np
import psutil
import pytest

import tf_byteps
from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.sessions import within
from tests.cluster import Cluster, describe
from tf_byteps import _engine

_COUNT = 24  # of the ports that are allowed


def _free_ports():
    """First and last of some ports below those that Linux gives away, of which most are free."""
    first = random.randrange(11_000, 29_000)
    return first, first + _COUNT - 1


def _listening(running):
    """Pairs of a process of a job and a port at which it listens."""
    found = []
    for process in running.processes():
        try:
            connections = process.net_connections("tcp")
            name = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        found += [(name, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN]
    return found


@pytest.mark.parametrize("servers, listeners", [(0, 2 + 4), (2, 2 + 2 + 2)])
def test_all_listen_within_the_range(launch, program, servers, listeners):
    """The scheduler at two ports, each server and each worker at one."""
    first, last = _free_ports()
    arguments = ("-np", "2", "--servers", str(servers), "--ports", f"{first}-{last}")
    with socket.create_server(("127.0.0.1", first + 1)):  # another program
        running = launch(*arguments, *program("join_and_sleep"))
        running.wait_for("sleeping", 2)
        found = _listening(running)
        running.send()
        assert running.wait() == 130
    assert len(found) == listeners, found
    ports = [port for _, port in found]
    assert all(first <= port <= last and port != first + 1 for port in ports), found
    assert len(set(ports)) == listeners


def test_the_variable_means_the_same_and_jobs_share_a_range(launch, program):
    first, last = _free_ports()
    jobs = [
        launch("-np", "2", *program("exchange_for", "1"), BYTEPS_PORTS=f"{first}-{last}")
        for _ in range(2)
    ]
    assert [job.wait() for job in jobs] == [0, 0], jobs[0].err + jobs[1].err


def test_an_elastic_job_listens_within_the_range(launch, program):
    first, last = _free_ports()
    arguments = ("--min-np", "2", "--max-np", "2", "-H", "localhost:2")
    running = launch(*arguments, "--ports", f"{first}-{last}", *program("join_and_sleep"))
    running.wait_for("sleeping", 2)
    found = _listening(running)
    running.send()
    assert running.wait() == 130
    assert found and all(first <= port <= last for _, port in found), found


def test_the_schedulers_port_can_be_chosen(launch, program):
    port, _ = _free_ports()
    command = [*program("train")]
    running = launch("-np", "2", "--verbose", *command, DMLC_PS_ROOT_PORT=str(port))
    assert running.wait() == 0
    assert running.err.count(f"DMLC_PS_ROOT_PORT={port} ") == 3  # the scheduler and two workers
    with socket.create_server(("127.0.0.1", port)):
        running = launch("-np", "2", "--env", f"DMLC_PS_ROOT_PORT={port}", *command)
        assert running.wait() == 1
    assert f"the scheduler cannot listen at 127.0.0.1:{port}" in running.err


def test_the_port_of_another_job_is_not_taken(launch, program):
    """What a worker starts has its variables."""
    place = {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_PORT": "1"}
    assert launch("-np", "2", *program("train"), **place).wait() == 0


@pytest.mark.parametrize(
    "arguments, variables, expected",
    [
        (["-np", "2"], {"BYTEPS_SERVER_PORT": "18999"}, "localhost runs 2 servers, and each needs"),
        (
            ["-np", "1", "--servers", "2"],
            {"BYTEPS_SERVER_PORT": "18999"},
            "unset it, and allow several ports with --ports",
        ),
        (["-np", "2", "--ports", "20000"], {}, "'20000' is not a first and a last port, such as"),
        (["-np", "2", "--ports", "20063-20000"], {}, "is not a first and a last port"),
        (
            ["-np", "2", "--ports", "20000-20003"],
            {},
            "--ports 20000-20003 has 4 ports, but the processes on localhost listen at 6",
        ),
        (["-np", "2"], {"BYTEPS_PORTS": "all"}, 'BYTEPS_PORTS is "all", but must be a first and a'),
        (["-np", "2"], {"DMLC_PS_ROOT_PORT": "x"}, 'DMLC_PS_ROOT_PORT is "x", but must be'),
    ],
)
def test_ports_that_cannot_be_used(launch, arguments, variables, expected):
    running = launch(*arguments, "true", **variables)
    assert running.wait() == 2
    assert expected in running.err and "Traceback" not in running.err


def sum_of_ranks():
    tf_byteps.init()
    rank = np.full(1000, tf_byteps.rank(), np.float32)
    return float(_engine.exchange(rank, name="x").wait(60)[0])


def _iptables(namespace, *words):
    command = [*within(namespace), "iptables", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"iptables does not work here: {done.stderr}")
    return done.stdout


def _dropped(namespace):
    rows = _iptables(namespace, "-L", "INPUT", "-v", "-x", "-n").splitlines()
    (row,) = (row for row in rows if " DROP " in row)
    return int(row.split()[0])


@pytest.mark.slow
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
@pytest.mark.parametrize("servers", [0, 2])
def test_a_firewall_between_hosts_has_nothing_to_drop(servers):
    """It lets connections to the range through, and no others."""
    first, last = _free_ports()
    with EmulatedCluster(2, [(1.0, 1.0)] * 2) as hosts:
        places = list(zip(hosts.namespaces, hosts.addresses, strict=True))
        for namespace, _ in places:
            others = ("!", "--dport", f"{first}:{last}")
            _iptables(namespace, *("-A", "INPUT", "-p", "tcp", "--syn", *others, "-j", "DROP"))

        def place(label):
            return places[label in ("server 1", "worker 1")]

        how = {"servers": servers, "env": {"BYTEPS_PORTS": f"{first}-{last}"}, "place": place}
        with Cluster(sum_of_ranks, **how) as cluster:
            outcomes = cluster.wait(120)
        assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
        assert [o.result for o in outcomes if o.label.startswith("worker")] == [1.0, 1.0]
        assert [_dropped(namespace) for namespace, _ in places] == [0, 0]
        # The firewall is one.
        probe = f"import socket; socket.create_connection(('{places[1][1]}', 9), 1)"
        subprocess.run([*within(places[0][0]), "python3", "-c", probe], capture_output=True)
        assert _dropped(places[1][0]) > 0
