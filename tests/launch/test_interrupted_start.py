"""A signal for bpslaunch while its scheduler starts: the exit code is the signal's."""

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("kind", [("-np", "2"), ("--min-np", "1", "--max-np", "2")])
def test_exit_code(launch, tmp_path, number, kind):
    flag = tmp_path / "flag"
    (tmp_path / "sitecustomize.py").write_text(_HELD.format(flag=str(flag)))
    running = launch(*kind, "--", sys.executable, "-c", "pass", PYTHONPATH=f"{tmp_path}:{ROOT}")
    wait_until(lambda: flag.exists() or running.popen.poll() is not None)
    running.send(number)
    assert running.wait(60) == 128 + number, running.err
    assert "did not start" not in running.err
    assert f"{number.name}: ending all processes" in running.err
