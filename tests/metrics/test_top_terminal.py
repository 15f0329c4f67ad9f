"""bpstop in a terminal of 80 columns: what people see of a job whose processes are lost."""

import re
import signal
import subprocess
import sys
import time

import pytest

from tests.cluster import ROOT, clean_environment, wait_until
from tests.debian import find_program
from tests.elastic.conftest import elastic, launch  # noqa: F401
from tests.metrics.test_metrics import free_ports

COLUMNS, LINES = 80, 30
# However busy the machine is: a worker that comes in another one's place loads what it needs first.
SECONDS = 120


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, tmux, name, command):
        # A server of its own: others' sessions and settings stay out of this.
        self._tmux = [tmux, "-L", name, "-f", "/dev/null"]
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        self._run("new-session", "-d", *size, *command, env=clean_environment(), cwd=ROOT)

    def _run(self, *arguments, **how):
        command = [*self._tmux, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=SECONDS, **how
        ).stdout

    def screen(self):
        """Its lines."""
        return self._run("capture-pane", "-p").rstrip().splitlines()

    def seconds_until(self, shown):
        """How long it takes until `shown(lines)`."""
        begin = time.monotonic()
        try:
            wait_until(lambda: shown(self.screen()), SECONDS)
        except AssertionError:
            print("what is shown instead:", *self.screen(), sep="\n")
            raise
        return time.monotonic() - begin

    def close(self):
        self._run("kill-server")


def rows(lines, role):
    """The state of each process in the table of a role, by rank."""
    heads = [number for number, line in enumerate(lines) if line.split()[:2] == [role, "state"]]
    found = {}
    for line in lines[heads[0] + 2 :] if heads else []:
        words = line.split()
        if len(words) < 2 or not re.fullmatch(r"\d+|all", words[0]):
            break
        found[words[0]] = words[1]
    return found


@pytest.fixture(params=["local", "port"])
def job(elastic, request):  # noqa: F811
    """An elastic job of three workers and two servers, and what bpstop is told of it."""
    arguments = ("--min-np", "2", "--max-np", "3", "--servers", "2")
    if request.param == "local":
        started, reported = elastic(*arguments), None
    else:
        first = free_ports()
        started = elastic(*arguments, "--metrics-port", str(first))
        reported = [f"127.0.0.1:{first}"]
    started.running.wait_for("of 3 from 0", 3)
    # Jobs of other tests may run here, too.
    return started, reported or ["--pid", str(started.worker(0).pid)]


@pytest.fixture
def terminal(job, tmp_path):
    started = Terminal(
        find_program("tmux", "tmux"),
        f"byteps-{tmp_path.name}",
        [sys.executable, "-m", "tf_byteps.metrics.top", *job[1]],
    )
    yield started
    started.close()


def all_run(lines):
    workers, servers = rows(lines, "worker"), rows(lines, "server")
    running = {"0": "runs", "1": "runs", "2": "runs", "all": "3"}, {"0": "runs", "1": "runs"}
    return workers == running[0] and servers == {**running[1], "all": "2"}


def server_process(job):
    """One of the job's servers."""
    for process in job.running.processes():
        command = process.cmdline()
        if "tf_byteps.server" in command and "tf_byteps.launch.guard" not in command:
            return process
    raise AssertionError("there is no server")


def test_lost_and_stopped_processes_are_shown(job, terminal):
    started, _ = job
    terminal.seconds_until(all_run)
    shown = terminal.screen()
    print(*shown, sep="\n")
    assert max(map(len, shown)) <= COLUMNS and "…" not in "".join(shown)

    server = server_process(started)
    server.send_signal(signal.SIGSTOP)
    try:
        stopped = terminal.seconds_until(lambda lines: "silent" in rows(lines, "server").values())
        print(*terminal.screen(), sep="\n")
    finally:
        server.send_signal(signal.SIGCONT)
    terminal.seconds_until(all_run)

    started.kill(1)
    # A row says so; or a line, if the others have divided its rank among them already.
    lost = terminal.seconds_until(
        lambda lines: any(re.match(r"lost( \d+ s ago)?: worker \d", line) for line in lines)
    )
    print(*terminal.screen(), sep="\n")
    # Another worker comes in its place. Those that are left have changed ports, and are not lost.
    terminal.seconds_until(
        lambda lines: (
            all_run(lines) and any(re.match(r"lost \d+ s ago: worker \d;", x) for x in lines)
        )
    )
    print(*terminal.screen(), sep="\n")
    print(f"shown after: stopped {stopped:.2f} s, lost {lost:.2f} s; the page says 2 s")
    code, output = started.finish()
    assert code == 0, output
    terminal.seconds_until(lambda lines: "the job has ended" in "\n".join(lines))
