"""A scheduler that is held up while it starts; a signal for bpslaunch meanwhile."""

import signal
import sys

import pytest

from tests.cluster import ROOT, wait_until

# Holds the scheduler up as soon as it runs.
_HELD = """
import sys, time
if "tf_byteps.scheduler" in sys.orig_argv and "tf_byteps.launch.guard" not in sys.orig_argv:
    open({flag!r}, "w").close()
    time.sleep(600)
"""


@pytest.fixture
def held(launch, tmp_path):
    """Starts a job whose scheduler is held up; returns the job, and what shows that it is."""

    def start(*arguments):
        flag = tmp_path / "flag"
        (tmp_path / "sitecustomize.py").write_text(_HELD.format(flag=str(flag)))
        command = [*arguments, "--", sys.executable, "-c", "pass"]
        return launch(*command, PYTHONPATH=f"{tmp_path}:{ROOT}"), flag

    return start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("kind", [("-np", "2"), ("--min-np", "1", "--max-np", "2")])
def test_exit_code(held, number, kind):
    """The signal's."""
    running, flag = held(*kind)
    wait_until(lambda: flag.exists() or running.popen.poll() is not None)
    running.send(number)
    assert running.wait(60) == 128 + number, running.err
    assert "did not start" not in running.err
    assert f"{number.name}: ending all processes" in running.err


@pytest.mark.slow
def test_it_does_not_wait_for_ever(held):
    running, _ = held("-np", "2")
    assert running.wait(120) == 1
    assert (
        "the scheduler did not start: it has reported no port in 30 s: is this host" in running.err
    )
