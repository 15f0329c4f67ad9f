"""bpstop on jobs with default settings, which it finds on its host."""

import contextlib
import json
import os
import re
import signal
import subprocess

import psutil
import pytest

from tests.cluster import ROOT, Cluster, clean_environment, wait_until, worker_command
from tests.launch.conftest import Launch
from tests.metrics.test_metrics import SECONDS, exchange_until
from tests.metrics.test_top import assert_one_worker_is_lost, command, look_until, on_screen, states
from tf_byteps.errors import BytePSError
from tf_byteps.metrics import finding
from tf_byteps.metrics.finding import find_here
from tf_byteps.metrics.local import LocalJob, LocalSocket
from tf_byteps.metrics.rows import RUNS, SILENT, View
from tf_byteps.metrics.top import to_json
from tf_byteps.metrics.watch import Watch
from tf_byteps.rendezvous.messages import Address


@pytest.fixture
def room():
    """The words before a command that runs where no other job of this user is seen."""
    kind = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    script = "ip link set lo up && echo ready && exec sleep 600"
    holder = subprocess.Popen(
        ["unshare", *kind, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with holder:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("network namespaces cannot be made here")
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        yield ["nsenter", "--target", str(holder.pid), *user, "--net"]
        holder.kill()


@contextlib.contextmanager
def launched(room, folder):
    """A job of two workers and a server that bpslaunch has started; ends well."""
    folder.mkdir()
    stop = folder / "stop"
    arguments = ["-np", "2", "--servers", "1", *worker_command(exchange_until, [str(stop)])]
    result = {"TESTS_RESULT_FILE": str(folder / "result.json")}
    launch = Launch(folder, arguments, result, room)
    try:
        yield launch
        stop.touch()
        assert launch.wait(SECONDS) == 0, launch.out + launch.err
    finally:
        launch.popen.kill()
        launch.popen.wait()


def bpstop(room, *arguments):
    return subprocess.run(
        [*room, *command("--once", "--json", *arguments)],
        env=clean_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def shown(done):
    """How many of each role run."""
    if done.returncode != 0:
        return {}
    view = json.loads(done.stdout)
    roles = "workers", "servers", "schedulers"
    return {role: [row["state"] for row in view[role]] for role in roles}


def addresses(room, number):
    """Where the processes of the job answer that a process belongs to, once all are there."""
    runs = []
    wait_until(
        lambda: shown(runs.append(bpstop(room, "--pid", str(number))) or runs[-1]) == WHOLE, SECONDS
    )
    view = json.loads(runs[-1].stdout)
    return {row["address"] for role in WHOLE for row in view[role]}


WHOLE = {"workers": ["runs"] * 2, "servers": ["runs"], "schedulers": ["runs"]}


def test_bpstop_finds_a_job_with_default_settings_and_tells_two_apart(room, tmp_path):
    # Other jobs of this machine may be found by their environment, and are not reached.
    assert bpstop(room).returncode == 1
    with launched(room, tmp_path / "a"):
        wait_until(lambda: shown(bpstop(room)) == WHOLE, SECONDS)
        done = bpstop(room)
        assert not done.stderr and shown(done) == WHOLE
        view = json.loads(done.stdout)
        assert all(worker["exchanges_per_second"] > 0 for worker in view["workers"])
        assert view["unseen"] == view["elsewhere"] == []
        with launched(room, tmp_path / "b"):
            wait_until(lambda: "several jobs" in bpstop(room).stderr, SECONDS)
            jobs = re.findall(r"(\d+) \((.*?), for \d+ (?:s|min), 2 workers\)", bpstop(room).stderr)
            assert len(jobs) == 2 and jobs[0] != jobs[1], jobs
            first = {row["address"] for role in WHOLE for row in view[role]}
            for process, command in jobs:
                # A scheduler or a server stands for its job until a worker is there.
                assert "-m tests.cluster" in command or "-m tf_byteps." in command
                launcher = psutil.Process(int(process)).parents()[1]  # above its guard
                found = [addresses(room, number) for number in (process, launcher.pid)]
                assert found[0] == found[1] and f"process {process}" in found[0]
                assert found[0] == first or not found[0] & first
            with subprocess.Popen(["sleep", "600"]) as other:
                done = bpstop(room, "--pid", str(other.pid))
                other.kill()
            assert done.returncode == 1
            assert f"process {other.pid} belongs to no job of yours" in done.stderr


def running(stop, **settings):
    """The same without bpslaunch, and the network namespace of the test."""
    return Cluster(exchange_until, workers=2, servers=1, args=[str(stop)], **settings)


def watch_of(job):
    """A `Watch` of a `Cluster` whose processes have all joined."""
    found = []

    def is_found():
        with contextlib.suppress(BytePSError):
            found.append(find_here(job.workers[0].popen.pid))
        return found

    wait_until(is_found, SECONDS)
    watch = Watch(found[:1])
    wait_until(lambda: set(states(watch.look()).values()) == {RUNS}, SECONDS)
    wait_until(lambda: len(states(watch.look())) == 4, SECONDS)
    return watch


def test_a_killed_worker_is_shown_as_lost(tmp_path):
    with running(tmp_path / "stop", env={"BYTEPS_RESTART_TIMEOUT": "30"}) as job:
        watch = watch_of(job)
        job.workers[1].kill()
        job.workers[1].popen.wait()
        assert_one_worker_is_lost(watch.look())


def test_a_stopped_process_stays_silent_until_it_goes_on(tmp_path):
    with running(tmp_path / "stop") as job:
        watch = watch_of(job)
        server = job.servers[0]
        (where,) = [a for a in watch._processes if a.process == server.popen.pid]
        server.kill(signal.SIGSTOP)
        with contextlib.ExitStack() as waiting:
            with contextlib.suppress(BlockingIOError):
                while True:  # until it accepts no more
                    waiting.enter_context(where.connect())
            assert states(watch.look())["server", 0] == SILENT
        server.kill(signal.SIGCONT)
        look_until(watch, ("server", 0), RUNS)
        (tmp_path / "stop").touch()
        assert all(outcome.code == 0 for outcome in job.wait(SECONDS))


def test_who_is_on_another_host_is_said(tmp_path):
    host = lambda label: {"BYTEPS_HOST_ID": label}  # noqa: E731
    with running(tmp_path / "stop", env=host) as job:
        watch = watch_of(job)
        assert watch.look().elsewhere == []
        # Like one that is elsewhere, it does not answer who comes now.
        job.workers[1].kill(signal.SIGSTOP)
        view = Watch(list(watch._found)).look()
        job.workers[1].kill(signal.SIGCONT)
        (tmp_path / "stop").touch()
        job.wait(SECONDS)
    (missing,) = view.elsewhere
    assert missing[0] == "worker" and view.unseen == []
    assert to_json(view)["elsewhere"] == [{"role": "worker", "rank": missing[1]}]
    line = f"on other hosts: worker {missing[1]}; bpstop on the scheduler's host shows them"
    assert line in on_screen(view) and "not seen" not in on_screen(view)


def test_a_long_list_of_others_fits_on_the_screen():
    text = on_screen(View([], [], [], [], [], elsewhere=[("worker", n) for n in range(100)]))
    assert "worker 7 and 92 more; bpstop on the scheduler's host shows them" in " ".join(
        text.split()
    )


def test_a_job_without_local_sockets_is_found_by_its_port(monkeypatch):
    reported = Address("127.0.0.1", 9400)
    monkeypatch.setattr(finding, "address_here", lambda: reported)
    monkeypatch.setattr(finding, "local_jobs", dict)
    assert find_here() == reported
    # Nor does a name at which nobody listens count.
    job = LocalJob(os.geteuid(), "0" * 16)
    monkeypatch.setattr(finding, "local_jobs", lambda: {job: [LocalSocket(job, 1, "0" * 8)]})
    assert find_here() == reported
    with pytest.raises(BytePSError, match="process 1 belongs to no job of yours: there is none"):
        find_here(1)
