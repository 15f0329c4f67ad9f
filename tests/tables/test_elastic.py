"""Tables on the servers of elastic jobs whose workers are killed, come and leave (rule 40).

What the workers train is compared with one process and Keras's embeddings: each batch changes each
row once, whatever happens to the workers.
"""

import json
import sys
import types

import numpy as np
import pytest

from tests.cluster import run_workers, wait_until
from tests.elastic import worker_kills
from tests.launch.conftest import launch  # noqa: F401
from tests.tables import elastic_training

pytestmark = pytest.mark.time_limit(420)

EPOCHS = 3
PROGRAM = "tests.tables.elastic_training"
BATCHES = 29


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    run_workers(
        elastic_training.plain, workers=1, servers=0, timeout=240, args=(str(folder), EPOCHS)
    )
    return json.loads((folder / "result.json").read_text())


def assert_same(outcome, plain):
    assert outcome.code == 0 and outcome.result is not None, outcome.output
    assert outcome.strays == []
    result = outcome.result
    assert result["iterations"] == [EPOCHS * BATCHES] * 2 == plain["iterations"] * 2
    for name, rows in plain["tables"].items():
        np.testing.assert_allclose(result["tables"][name], rows, atol=1e-9, err_msg=name)
    for found, expected in zip(result["dense"], plain["dense"], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_who_is_left_goes_on_with_the_rows_of_the_last_commit(plain):
    """One of two is killed between two commits, and nobody comes in its place."""
    outcome = worker_kills.train(
        "fit", EPOCHS, 1, seed=3, workers=2, limit=300, restart=False, program=PROGRAM, servers=2
    )
    assert_same(outcome, plain)
    assert outcome.kills == 1
    assert outcome.output.count("going back to the last commit") == 1
    assert outcome.result["kept_bytes"] == 2 * 4  # only who says so: nothing is left behind


class Steered:
    """A training on hosts that change, which goes only as far as it is told to."""

    def __init__(self, launch, folder):  # noqa: F811
        self._folder = folder
        (folder / "progress.txt").touch()
        self.set_hosts(2, until=10)
        script = folder / "hosts.sh"
        script.write_text(f"#!/bin/sh\ncat {folder}/hosts.txt\n")
        script.chmod(0o700)
        command = [sys.executable, "-m", PROGRAM, "fit", str(folder), str(EPOCHS)]
        options = ["--min-np", "1", "--servers", "2", "--host-discovery-script", str(script)]
        self._running = launch(*options, "--", *command, **worker_kills._ENVIRONMENT)

    def set_hosts(self, workers, until):
        """So many workers are to be there, and to train until this batch."""
        for name, text in {"hosts": f"localhost:{workers}\n", "limit": f"{until}\n"}.items():
            new = self._folder / f"new-{name}.txt"
            new.write_text(text)
            new.rename(self._folder / f"{name}.txt")

    def wait_for(self, workers):
        """Until so many have committed."""

        def is_there():
            lines = (self._folder / "progress.txt").read_text().splitlines()
            commits = [line.split() for line in lines if line.startswith("commit")]
            ended = self._running.popen.poll() is not None
            return ended or any(line[3:] == [str(workers)] for line in commits)

        wait_until(is_there, 180)

    def kill_server(self):
        """One of the two."""
        servers = [
            process
            for process in self._running.processes()
            if "tf_byteps.server" in process.cmdline()[:3]
        ]
        assert len(servers) == 2
        servers[1].kill()

    def outcome(self):
        code = self._running.wait(180)
        path = self._folder / "result.json"
        return types.SimpleNamespace(
            code=code,
            output=self._running.out + self._running.err,
            result=json.loads(path.read_text()) if path.exists() else None,
            strays=worker_kills._strays(self._folder),
        )


def test_workers_come_and_leave(launch, tmp_path, plain):  # noqa: F811
    job = Steered(launch, tmp_path)
    job.wait_for(2)
    job.set_hosts(3, until=30)
    job.wait_for(3)
    job.set_hosts(1, until="inf")
    job.wait_for(1)
    outcome = job.outcome()
    assert_same(outcome, plain)
    assert "going back" not in outcome.output


def test_tables_that_would_be_lost_with_a_worker_are_refused(launch, tmp_path):  # noqa: F811
    command = [sys.executable, "-m", PROGRAM, "refused", str(tmp_path), "0"]
    running = launch("--min-np", "1", "--max-np", "1", "--", *command)
    assert running.wait(120) == 0, running.out + running.err
    spread, on_servers = json.loads((tmp_path / "result.json").read_text())
    assert 'an optimizer and placement="servers"' in spread
    assert "start servers of their own, as bpslaunch --servers 2 does" in on_servers


@pytest.mark.slow
def test_a_server_that_was_lost_gets_rows_when_the_workers_change(launch, tmp_path, plain):  # noqa: F811
    job = Steered(launch, tmp_path)
    job.wait_for(2)
    job.kill_server()
    job.set_hosts(3, until=30)
    job.wait_for(3)
    job.set_hosts(2, until="inf")
    outcome = job.outcome()
    assert_same(outcome, plain)
    assert outcome.output.count("are on two servers again") >= 2  # of both tables


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 5])
def test_random_kills(plain, seed):
    """Another worker comes for each that is killed, and the first may be killed, too."""
    outcome = worker_kills.train(
        "fit", EPOCHS, kills=3, seed=seed, workers=3, limit=400, program=PROGRAM, servers=2
    )
    assert_same(outcome, plain)
    assert outcome.kills == 3
