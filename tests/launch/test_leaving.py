"""SIGTERM in a training: the step is finished, callbacks save, all workers leave together."""

import json
import signal
import sys

import psutil
import pytest

from tests.cluster import all_gone
from tests.launch.leaving_programs import STEPS


def _command(name, folder):
    return [sys.executable, "-m", "tests.launch.leaving_programs", name, str(folder)]


def _reports(folder, first_epoch):
    return [json.loads((folder / f"{rank}-{first_epoch}.json").read_text()) for rank in range(2)]


def _worker(running, rank):
    """The process of a worker, below its guard."""
    for process in running.processes():
        is_trainer = "tests.launch.leaving_programs" in process.cmdline()
        if is_trainer and "tf_byteps.launch.guard" not in process.cmdline():
            if process.environ()["BYTEPS_GLOBAL_RANK"] == str(rank):
                return process
    raise AssertionError("no such worker")


@pytest.mark.parametrize(
    "program, reported, servers",
    [
        ("strategy", "bpslaunch", "1"),
        pytest.param("strategy", "worker 1", "0", marks=pytest.mark.slow),
        pytest.param("optimizer", "bpslaunch", "1", marks=pytest.mark.slow),
        pytest.param("optimizer", "worker 1", "1", marks=pytest.mark.slow),
        pytest.param("strategy", "worker 0", "0", marks=pytest.mark.slow),
    ],
)
def test_sigterm_in_fit(launch, tmp_path, program, reported, servers):
    flags = ["-np", "2", "--servers", servers, "--grace", "30"]
    running = launch(*flags, *_command(program, tmp_path))
    running.wait_for("training", 2, timeout=120)
    processes = running.processes()
    if reported == "bpslaunch":
        running.send(signal.SIGTERM)
    else:
        _worker(running, int(reported[-1])).send_signal(signal.SIGTERM)
    assert running.wait() == 128 + signal.SIGTERM, running.err
    assert "Traceback" not in running.err and "lost" not in running.err, running.err
    assert all_gone(processes)
    one, other = _reports(tmp_path, 0)
    assert one == other and one["epochs"] == [0]
    assert 3 < one["steps"] < STEPS
    assert "done" not in running.out

    if program == "strategy" and reported == "bpslaunch":
        return  # the slow cases go on

    # Started again, it goes on from the backup with the next epoch, to the end.
    again = launch(*flags, *_command(program, tmp_path))
    assert again.wait(120) == 0, again.err
    assert again.out.count("done") == 2
    later, other = _reports(tmp_path, 1)
    assert later == other and later["epochs"] == [1]
    assert later["steps"] == one["steps"] + STEPS
    assert not list(tmp_path.glob("backup*/*"))  # Keras deletes the backup of a complete training


def test_what_does_not_listen_is_ended_by_the_signal(launch, program):
    """Without the callback nothing waits: workers end of the signal, then all others."""
    running = launch("-np", "2", "--servers", "1", *program("sleep_with_children"))
    running.wait_for("sleeping", 2)
    workers = [p for p in running.processes() if psutil.Process(p.pid).name() == "sleep"]
    running.send(signal.SIGTERM)
    assert running.wait() == 143
    assert all_gone(workers)
