"""bpstop on real jobs: what it shows of each process, of lost and stopped ones, and of garbage."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console

from tests import fork_server
from tests.cluster import ROOT, Cluster, clean_environment, free_port, wait_until
from tests.metrics.test_metrics import PROCESSES, SECONDS, exchange_until, free_ports, listens
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.metrics import top, view as drawing
from tf_byteps.metrics.finding import address_here, read_address
from tf_byteps.metrics.rows import LOST, RUNS, SILENT, Server, View, Worker
from tf_byteps.metrics.top import to_json
from tf_byteps.metrics.watch import ANSWER_SECONDS, Watch
from tf_byteps.rendezvous.messages import Address


@contextlib.contextmanager
def running_job(stop, **settings):
    """A job of two workers and a server that exchange until the file `stop` is there."""
    first = free_ports()
    env = {"BYTEPS_METRICS_PORT": str(first), **settings}
    with Cluster(exchange_until, workers=2, servers=1, env=env, args=[str(stop)]) as job:
        wait_until(lambda: all(listens(first + n) for n in range(PROCESSES)), SECONDS)
        yield job, first


def command(*arguments):
    return [sys.executable, "-m", "tf_byteps.metrics.top", *map(str, arguments)]


def bpstop(*arguments):
    return subprocess.run(
        command(*arguments),
        env=clean_environment(COLUMNS="80"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def states(view):
    return {(row.role, row.rank): row.state for row in view.rows}


def states_of_all(workers, servers):
    """The places of a job's processes, in order."""
    places = [("worker", rank) for rank in range(workers)]
    return sorted([*places, *(("server", rank) for rank in range(servers)), ("scheduler", 0)])


def look_until(watch, place, state):
    """Looks until a process is in this state."""
    wait_until(lambda: states(watch.look()).get(place) == state, SECONDS)


def test_once_and_json_have_each_process_of_a_running_job(tmp_path):
    with running_job(tmp_path / "stop") as (job, first):
        done = bpstop("--once", "--json", f"127.0.0.1:{first}")
        assert done.returncode == 0 and not done.stderr, done.stderr
        shown = json.loads(done.stdout)
        text = bpstop("--once", first)
        (tmp_path / "stop").touch()
        assert all(outcome.code == 0 for outcome in job.wait(SECONDS))
    assert [worker["rank"] for worker in shown["workers"]] == [0, 1]
    for worker in shown["workers"]:
        assert worker["state"] == "runs" and worker["exchanges_per_second"] > 0
        assert worker["pushed_bytes_per_second"] > 0 and worker["credit_bytes"] > 0
        assert worker["step_seconds"] > 0 and 0 < worker["exposed_share"] <= 1
        assert 0 < worker["exchanging_share"] <= 1.1 and worker["lag_seconds"] >= 0
    (server,) = shown["servers"]
    assert server["received_bytes_per_second"] > 0 and server["memory_bytes"] > 1e6
    assert server["connections"] == 2
    (scheduler,) = shown["schedulers"]
    assert scheduler["failed"] is False and scheduler["lost_servers"] == 0
    sums = shown["totals"]["workers"]
    assert sums["runs"] == 2 and sums["lost"] == 0 and shown["unseen"] == []
    each = [worker["pushed_bytes_per_second"] for worker in shown["workers"]]
    assert sums["pushed_bytes_per_second"] == sum(each)
    reported = {(each["event"], each["peer"]) for each in shown["events"]}
    assert ("process_here", "server 0") in reported
    assert all(0 < time.time() - each["time"] < 600 for each in shown["events"])
    assert text.returncode == 0
    assert "2 workers, 1 server" in text.stdout and "exp %" in text.stdout
    assert "process here" not in text.stdout  # the tables have it
    assert max(map(len, text.stdout.splitlines())) <= 80


def test_a_job_whose_ports_lie_among_those_of_another_is_another(tmp_path):
    first = free_port(2 * PROCESSES + 1)
    stop = tmp_path / "stop"
    settings = {"env": {"BYTEPS_METRICS_PORT": str(first)}, "args": [str(stop)]}
    with Cluster(exchange_until, workers=2, servers=1, **settings) as job:
        wait_until(lambda: all(listens(first + n) for n in range(PROCESSES)), SECONDS)
        with Cluster(exchange_until, workers=2, servers=1, **settings) as other:
            ports = range(first + PROCESSES, first + 2 * PROCESSES)
            wait_until(lambda: all(map(listens, ports)), SECONDS)
            watches = [Watch([Address("127.0.0.1", port)]) for port in (first, ports[0])]
            processes = states_of_all(2, 1)
            for watching in watches:
                wait_until(lambda w=watching: sorted(states(w.look())) == processes, SECONDS)
            seen = [{row.address for row in watching.look().rows} for watching in watches]
            assert not seen[0] & seen[1]
            stop.touch()
            for each in (job, other):
                assert all(outcome.code == 0 for outcome in each.wait(SECONDS))


def test_what_happens_shows_within_two_seconds():
    """Each look shows it, as the two tests below say."""
    assert top._parser().parse_args([]).interval + ANSWER_SECONDS < 2


def test_a_killed_worker_is_shown_as_lost(tmp_path):
    with running_job(tmp_path / "stop", BYTEPS_RESTART_TIMEOUT="30") as (job, first):
        watch = Watch([Address("127.0.0.1", first)])
        look_until(watch, ("worker", 1), RUNS)
        job.workers[1].kill()
        job.workers[1].popen.wait()
        assert_one_worker_is_lost(watch.look())


def assert_one_worker_is_lost(view):
    # Ranks go by who comes first.
    lost = [rank for role, rank in states(view) if states(view)[role, rank] == LOST]
    assert len(lost) == 1 and f"lost: worker {lost[0]}" in on_screen(view)


def is_stopped(pid):
    """Whether all threads are; on a busy machine that takes a while."""
    stats = pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)


def test_a_stopped_server_is_shown_as_silent(tmp_path):
    with running_job(tmp_path / "stop") as (job, first):
        watch = Watch([Address("127.0.0.1", first)])
        look_until(watch, ("server", 0), RUNS)
        job.servers[0].kill(signal.SIGSTOP)
        wait_until(lambda: is_stopped(job.servers[0].popen.pid))
        view = watch.look()
        assert states(view)["server", 0] == SILENT
        assert "silent: server 0" in on_screen(view)
        job.servers[0].kill(signal.SIGCONT)
        look_until(watch, ("server", 0), RUNS)
        (tmp_path / "stop").touch()
        assert all(outcome.code == 0 for outcome in job.wait(SECONDS))


def test_who_is_lost_before_bpstop_comes_is_not_seen(tmp_path):
    with running_job(tmp_path / "stop", BYTEPS_RESTART_TIMEOUT="30") as (job, first):
        watch = Watch([Address("127.0.0.1", first)])
        look_until(watch, ("worker", 0), RUNS)
        wait_until(lambda: len(watch.look().workers) == 2)
        job.workers[1].kill(signal.SIGSTOP)  # killed, it would end the others
        view = Watch([Address("127.0.0.1", first)]).look()
        job.workers[1].kill(signal.SIGCONT)
        (tmp_path / "stop").touch()
        job.wait(SECONDS)
    assert ("worker", 1) in view.unseen
    assert to_json(view)["unseen"] == [{"role": "worker", "rank": 1}]


def on_screen(view, **settings):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(drawing.draw(view, **settings))
    return console.export_text()


def a_worker(rank, state=RUNS, **changes):
    values = {
        "exchanges_per_second": 1234.5,
        "pushed_bytes_per_second": 12345.6e6,
        "pulled_bytes_per_second": 12345.6e6,
        "exchanging_share": 1.0,
        "step_seconds": 12.3456,
        "exposed_share": 1.0,
        "in_flight_bytes": 123.4e6,
        "credit_bytes": 123.4e6,
        "queued_parts": 10.0,
        "lag_seconds": 0.001,
        "retried_parts": 0.0,
        "outer_rounds": None,
        "steps_since_round": None,
        "saved_bytes": None,
        "late_changes": None,
        "row_sum_tensors": None,
        "row_gather_tensors": None,
        "divergence": None,
        "staleness": None,
        **changes,
    }
    return Worker("worker", rank, f"10.0.0.{rank}:9400", state, 1e9, 1.0, **values)


def a_server(rank):
    return Server("server", rank, f"10.0.1.{rank}:9400", RUNS, 1e10, 15.0, 1e10, 1e10, 1e5, 1e9, 64)


def test_64_workers_fit_80_columns_and_the_slowest_are_shown():
    slow = {7: 2.5, 40: 1.25}
    workers = [a_worker(rank, lag_seconds=slow.get(rank, 0.001)) for rank in range(63)]
    workers.append(a_worker(63, LOST))
    view = View(workers, [a_server(rank) for rank in range(64)], [], [("worker", 64)], ["x" * 70])
    text = on_screen(view)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in text
    assert len(lines) < 40 and "slowest workers" in text
    ranks = [line.split()[0] for line in lines if line.strip()]
    assert {"7", "40", "63"} <= set(ranks)
    assert "64 workers, 64 servers" in text and "63 run" in text
    assert "lost: worker 63" in text and "worker 7 is waited for" in text
    assert str(round(63 * 12345.6)) in text


def test_the_last_events_are_below_the_tables():
    events = [(1e9 + n, "process_lost", f"server {n}") for n in range(5)] + [(2e9, "stalled", "")]
    events.append((3e9, "process_here", "worker 0"))
    lines = on_screen(View([a_worker(0)], [], [], [], [], events)).splitlines()
    assert [line[10:] for line in lines[-3:]] == [
        "server 3: process lost",
        "server 4: process lost",
        "stalled",
    ]


def test_how_rows_are_added_up_is_shown_where_there_are_any():
    with_rows = a_worker(0, row_sum_tensors=3.0, row_gather_tensors=1.0)
    line = "rows: servers add up those of 3 tensors, 1 are gathered"
    assert line in on_screen(View([a_worker(1), with_rows], [], [], [], []))
    assert "rows:" not in on_screen(View([a_worker(0)], [], [], [], []))


def test_blocks_of_tables_that_have_lost_a_server_are_counted():
    servers = [
        dataclasses.replace(a_server(rank), lacking_table_blocks=count)
        for rank, count in enumerate((2.0, 1.0, 0.0))
    ]
    line = "tables: 3 blocks are on one server only"
    assert line in on_screen(View([a_worker(0)], servers, [], [], []))
    assert "tables:" not in on_screen(View([a_worker(0)], servers[2:], [], [], []))


def test_the_end_of_a_job_is_one_line():
    text = on_screen(View([a_worker(rank, LOST) for rank in range(3)], [], [], [], []))
    assert "no process answers any more" in text and "lost: " not in text


def test_20_workers_are_all_shown():
    text = on_screen(View([a_worker(rank) for rank in range(20)], [], [], [], []))
    shown = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert {str(rank) for rank in range(20)} <= shown


@contextlib.contextmanager
def answering(data):
    """A port where everybody gets these bytes, and then its end; None: nothing, for ever."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    kept = []

    def answer():
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                kept.append(connection)
                if data is not None:
                    connection.recv(1000)
                    connection.sendall(data)
                    connection.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for connection in kept:
        connection.close()


OK = b"HTTP/1.0 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    "data, said",
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP: b'SSH-2.0-OpenSSH_9.2"),
        (bytes(range(128, 228)), "not HTTP"),
        (b"HTTP/1.1 404 Not Found\r\n\r\nno", "HTTP status 404"),
        (OK + b"<html>\nhello", "not a list of metrics"),
        (OK + b"\xff\xfe", "not a list of metrics"),
        (OK, "with no metrics"),
        (OK + b'tf_byteps_credit_bytes{role="worker"} 1\n', "not a list of metrics"),
        (OK + b'tf_byteps_credit_bytes{role="cook",rank="0"} 1\n', "not a list of metrics"),
        (OK + b'tf_byteps_credit_bytes{role="worker",rank="0"} NaN\n', "not a list of metrics"),
        (OK + b'tf_byteps_arrivals_total{role="server",rank="0"} 1\n', "not a list of metrics"),
        (b"", "closed the connection without an answer"),
        (None, "has not answered in 0.8 s"),
    ],
)
def test_garbage_at_an_address_is_one_sentence(data, said):
    with answering(data) as port:
        done = bpstop("--once", f"127.0.0.1:{port}")
    assert done.returncode == 1 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"bpstop: 127.0.0.1:{port} ") and said in line


def test_an_address_where_nobody_listens_is_one_sentence():
    port = free_ports()
    done = bpstop("--once", "--json", f"localhost:{port}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"bpstop: 127.0.0.1:{port} cannot be reached: ")
    assert json.loads(done.stdout)["workers"] == []


@pytest.mark.parametrize("text", ["host", "a:b", ":9400", "127.0.0.1:0", "127.0.0.1:65536", ""])
def test_a_wrong_address_is_refused(text):
    with pytest.raises(ConfigError, match="HOST:PORT"):
        read_address(text)


def test_addresses_are_read():
    assert read_address("9400") == Address("127.0.0.1", 9400)
    assert read_address("[::1]:9400") == Address("::1", 9400)
    with pytest.raises(ConfigError, match="no host of this name"):
        read_address("no-such-host.invalid:9400")


def test_options_that_do_not_belong_together_are_refused():
    wrong = ["--json"], ["9400"], ["--once", "--interval", "nan"], ["--once", "--pid", "1", "9400"]
    for arguments in wrong:
        done = bpstop(*arguments)
        assert done.returncode == 2 and "bpstop: error: " in done.stderr


def test_the_port_of_the_job_on_this_host_is_found(tmp_path):
    folder = tmp_path / "proc"  # other tests' jobs run on this host, too
    folder.mkdir()
    with pytest.raises(BytePSError, match="no job of yours runs on this host"):
        address_here(folder)
    with fork_server.starting_anew(), running_job(tmp_path / "stop") as (job, first):
        for process in job.processes():
            number = str(process.popen.pid)
            (folder / number).symlink_to(f"/proc/{number}")
        assert address_here(folder) == Address("127.0.0.1", first)
        env = clean_environment(BYTEPS_METRICS_PORT="9", BYTEPS_METRICS_ADDRESS="0.0.0.0")
        with subprocess.Popen(["sleep", "60"], env=env) as other:
            link = folder / str(other.pid)
            link.symlink_to(f"/proc/{other.pid}")
            wait_until((link / "environ").read_bytes)  # it is empty for a moment
            with pytest.raises(BytePSError, match=f"choose one of 127.0.0.1:9, 127.0.0.1:{first}"):
                address_here(folder)
            other.kill()


def test_ctrl_c_ends_the_live_view(tmp_path):
    with running_job(tmp_path / "stop") as (_, first):
        terminal, its_end = pty.openpty()
        env = clean_environment(TERM="xterm", COLUMNS="80", LINES="24")
        process = subprocess.Popen(
            command(first), cwd=ROOT, env=env, stdout=its_end, stderr=its_end, stdin=its_end
        )
        os.close(its_end)
        seen = b""
        with process:
            while b"2 workers, 1 server" not in seen:
                seen += os.read(terminal, 4096)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the end of a terminal
                while data := os.read(terminal, 4096):
                    seen += data
        os.close(terminal)
    assert process.returncode == 0 and b"Traceback" not in seen
    assert b"\x1b[?1049l" in seen  # the screen is given back
