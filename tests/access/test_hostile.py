"""A short attack on a live job; `python -m tests.access.hostile` is the long one."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.access import hostile, memory_thief, programs
from tests.cluster import Cluster, describe
from tf_byteps.rendezvous.secret import engine_key

_NOBODY = 65534
_PYTHON = shutil.which("python3", path="/usr/bin:/bin")
_SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.time_limit(180)
def test_hostile_connections_cost_little_and_change_nothing():
    figures, outcomes = hostile.measure(seconds=6, rate=50)
    # Every sum was checked by the workers, which all ended well.
    assert figures["connections"] == 300 and figures["ports"] >= 3
    assert figures["cpu_ms_per_connection"] <= 1, figures
    assert figures["kb_per_connection"] <= 64, figures
    assert 1 <= figures["lines_logged_by_server"] <= 60, describe(outcomes)[-4000:]


@pytest.fixture
def victim():
    """A process of this user whose first bytes in memory everybody knows, and where they are."""
    command = [_PYTHON, "-c", "print(flush=True); import time; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            with open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
                memory.seek(memory_thief.FIXED_PLACE)
                assert memory.read(16) == memory_thief.FIRST_BYTES
            yield process.pid
        except OSError:
            pytest.skip(f"{_PYTHON} is somewhere else in memory each time")
        finally:
            process.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@pytest.mark.skipif(_PYTHON is None, reason="no Python that other users can run")
@pytest.mark.parametrize("secret", ["", _SECRET], ids=["without_secret", "with_secret"])
def test_nobody_has_a_server_read_another_process(victim, secret, tmp_path):
    """Not even one who knows the secret, and has his own memory read, as workers do."""
    stop = tmp_path / "stop"
    env = {"BYTEPS_JOB_SECRET": secret}
    with Cluster(programs.steps, 2, env=env, args=[str(stop), 0.05]) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("ready")
        server = cluster.servers[0]
        arguments = [hostile.listening_ports(server)[0], victim, hostile.VERSION]
        thief = subprocess.run(
            [_PYTHON, "-", *map(str, arguments), engine_key(secret or None)],
            input=pathlib.Path(memory_thief.__file__).read_text(),
            user=_NOBODY,
            group=_NOBODY,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
        )
        assert thief.returncode == 0, thief.stderr + server.output()
        stop.touch()
        outcomes = cluster.wait(60)
    reads = json.loads(thief.stdout)
    assert reads == {"victim": False, "own": bool(secret)}, describe(outcomes)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
