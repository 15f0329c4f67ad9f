"""bpslaunch doctor with real processes: this machine, and 127.0.0.2 and 127.0.0.3 through sshd."""

import contextlib
import dataclasses
import io
import json
import os
import resource
import socket
import threading
import time

import numpy as np
import pytest
from rich.console import Console

from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.sessions import within
from tests.cluster import ROOT, wait_until
from tests.launch.conftest import Launch, start_sshd
from tf_byteps import _engine
from tf_byteps.doctor import links
from tf_byteps.doctor.examination import HostRow, LinkRow, Report, read_clock
from tf_byteps.doctor.facts import gather, usable_memory, usable_processors
from tf_byteps.doctor.links import Listener, measure, rounds
from tf_byteps.doctor.table import show
from tf_byteps.doctor.verdicts import judge

HOSTS = "127.0.0.2,127.0.0.3"


def examined(running):
    """The values; the exit code says whether there is something to fix."""
    code = running.wait()
    report = json.loads(running.out)
    assert code == (0 if all(each["is_note"] for each in report["verdicts"]) else 1), running.err
    assert report["seconds"] < 30
    return report


def test_this_machine(launch):
    report = examined(launch("doctor", "-H", "localhost", "--json"))
    (host,) = report["hosts"]
    assert host["error"] == "" and report["links"] == []
    assert abs(host["clock_offset"]) <= host["clock_error"] + 0.01
    assert host["facts"]["processors"] > 0 and host["facts"]["sum_rate"] > 0


def test_without_hosts_it_is_this_machine(launch):
    (host,) = examined(launch("doctor", "--json"))["hosts"]
    assert (host["name"], host["error"]) == ("localhost", "")


def test_the_ports_of_a_job_are_counted(launch):
    running = launch("doctor", "-H", "localhost:4")
    running.wait()
    assert "Ports of a job with these workers: 10 on localhost" in running.out
    running = launch("doctor", "-H", "localhost:4", "--ports", "20000-20003")
    assert running.wait() == 1
    assert "a job with these workers listens at 10 ports, and --ports has 4" in running.out


def test_hosts_and_the_link_between_them(launch, sshd):
    report = examined(launch("doctor", "-H", HOSTS, "--json", *sshd.options))
    assert [host["error"] for host in report["hosts"]] == ["", ""]
    (link,) = report["links"]
    assert {link["source"], link["target"]} == set(HOSTS.split(","))
    assert min(link["values"].values()) > 0


@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_the_slow_one_of_three_hosts_is_named(tmp_path):
    gigabits = [(1.0, 1.0), (1.0, 1.0), (0.05, 1.0)]
    with EmulatedCluster(3, gigabits) as cluster, contextlib.ExitStack() as servers:
        for namespace, address in zip(cluster.namespaces, cluster.addresses):
            server = start_sshd(tmp_path, [address], within(namespace))
            servers.callback(server.popen.wait)
            servers.callback(server.popen.terminate)
        hosts = ",".join(cluster.addresses)
        arguments = ("doctor", "-H", hosts, "--json", *server.options)
        report = examined(Launch(tmp_path, arguments, {}, within(cluster.namespaces[0])))
    slow = [each for each in report["verdicts"] if "less than half" in each["problem"]]
    _, second, third = cluster.addresses
    assert {each["where"] for each in slow} == {
        f"{third} to {end}" for end in (cluster.addresses[0], second)
    }


def test_an_unreachable_host_is_one_row(launch, sshd):
    running = launch("doctor", "-H", "localhost,127.0.0.2,127.0.0.9", *sshd.options)
    assert running.wait() == 1
    assert "What to fix\n" in running.out
    assert "* 127.0.0.9: ssh: connect to host 127.0.0.9 port" in running.out
    assert "No worker can start there" in running.out and "localhost" in running.out


@pytest.mark.parametrize(
    ("arguments", "variables", "sentence"),
    [
        (("-H", "a:0"), {}, "'a:0' is not of the form"),
        (("-H", "nobody.invalid"), {}, "no host can be examined: nobody.invalid: ssh: Could not"),
        (("-H", "127.0.0.2"), {"PATH": "/nowhere"}, "cannot run ssh, to start doctor 0 on"),
    ],
)
def test_bad_input_is_one_sentence(launch, arguments, variables, sentence):
    running = launch("doctor", *arguments, **variables)
    assert running.wait() == 2
    assert sentence in running.err and running.err.count("\n") == 1


def test_links_are_measured_at_ports_that_are_allowed():
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ports = [taken.getsockname()[1], probe.getsockname()[1]]
        probe.close()
        assert Listener("127.0.0.1", ports).port == ports[1]


def test_strangers_are_not_served():
    listener = Listener("127.0.0.1")
    with pytest.raises(OSError):
        measure("127.0.0.1", listener.port, bytes(32), 0.05)
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: tf_byteps.example\r\n\r\n")
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert measure("127.0.0.1", listener.port, listener.token, 0.05)["rate"] > 0


def test_silent_strangers_take_few_threads_and_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(links, "_SLACK_SECONDS", 600.0)  # they would not be given up soon
    listener = Listener("127.0.0.1")
    before = threading.active_count()
    with contextlib.ExitStack() as opened:
        for _ in range(200):
            opened.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        assert measure("127.0.0.1", listener.port, listener.token, 0.05)["rate"] > 0
        wait_until(lambda: threading.active_count() <= before + 20)


def test_a_listener_goes_on_after_a_lack_of_descriptors():
    listener = Listener("127.0.0.1")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        with open(os.devnull) as next_file:
            most = next_file.fileno()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
            client.connect(("127.0.0.1", listener.port))
            time.sleep(0.3)  # it cannot accept
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert measure("127.0.0.1", listener.port, listener.token, 0.05)["rate"] > 0


def test_no_host_is_in_two_links_at_once():
    for hosts in range(7):
        for together in rounds(hosts):
            ends = [host for link in together for host in link]
            assert len(ends) == len(set(ends))
        links = [frozenset(link) for together in rounds(hosts) for link in together]
        assert len(links) == len(set(links)) == max(0, hosts - 1) + max(0, hosts - 2)


def test_sums_that_are_timed_are_the_engine_s():
    sums, values = np.full(1000, 2, np.float32), np.arange(1000, dtype=np.float32)
    _engine.add_to(sums, values)
    np.testing.assert_array_equal(sums, values + 2)
    with pytest.raises(ValueError, match="the arrays have 1000 and 3 elements"):
        _engine.add_to(sums, values[:3])
    with pytest.raises(TypeError):
        _engine.add_to(sums, values.astype(np.float64))


def test_limits_of_a_control_group(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1048576\n")
    assert usable_processors(tmp_path) == 0.5 and usable_memory(tmp_path) == 1 << 20


def test_a_clock_that_is_ahead():
    offset, error = read_clock(lambda: time.time() + 7)
    assert abs(offset - 7) <= error + 0.01


def _report(links=(), slots=1, **facts):
    usual = {**gather(), "nofile_hard": None, "memory_transport": True, "shm_bytes": 1 << 40}
    usual |= {"processors": 64.0, "memory_bytes": 1 << 40, "rdma_missing": []}
    rows = [HostRow("a", slots, facts=usual), HostRow("b", slots, facts={**usual, **facts})]
    return Report(rows, list(links))


@pytest.mark.parametrize("other", ["2.21.0", "2.20.0"])
def test_a_host_is_a_line_of_80_columns(other):
    """Versions are above the table if all hosts have the same."""
    report = _report(tensorflow=other, nofile_hard=20000, nofile_soft=20000)
    report.hosts[0] = dataclasses.replace(report.hosts[0], name="node17-rack4")
    report.hosts[0].facts.update(report.hosts[1].facts, tensorflow="2.21.0")
    console = Console(width=80, file=io.StringIO())
    show(report, [], console)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    same = shown.startswith("Python, tf_byteps, TensorFlow: ")
    assert same == (other == "2.21.0")
    if same:
        assert "node17-rack4" in shown and shown.count(" TCP, memory") == 2, shown


@pytest.mark.parametrize(
    ("slots", "facts", "sentence"),
    [
        (4, {"memory_transport": False, "ptrace_scope": 1}, "may not read each other's memory"),
        (4, {"nofile_hard": 64}, "a process may open 64 files"),
        (4, {"processors": 2.0}, "4 workers share 2 processors"),
        (1, {"tensorflow": "2.20.0"}, "versions of tensorflow differ"),
        (1, {"shm_bytes": 64 << 20}, "/dev/shm has 67 MB"),
    ],
)
def test_verdicts(slots, facts, sentence):
    assert judge(_report(slots=slots), 1) == []
    (verdict,) = judge(_report(slots=slots, **facts), 1)
    assert sentence in verdict.problem and verdict.mend


def test_a_slow_link_is_named():
    def link(source, rate):
        values = {"connect_seconds": 0.1, "latency_seconds": 0.1, "rate_back": 1e9, "rate": rate}
        return LinkRow(source, "a", values=values)

    (verdict,) = judge(_report([link("b", 1e9), link("c", 4e8)]), 1)
    assert verdict.where == "c to a" and "400.0 MB/s" in verdict.problem


def test_the_page_names_all_thresholds():
    from tf_byteps.doctor import verdicts

    page = (ROOT / "docs" / "doctor.md").read_text()
    names = [name for name in vars(verdicts) if name.isupper()]
    assert names and all(f"`{name}`" in page for name in names)
