"""What stands between a worker's failure and bpslaunch's summary."""

import sys

import pytest

from tests.cluster import ROOT


@pytest.mark.parametrize("servers", [0, 1])
def test_a_failure_is_told_once(launch, program, servers):
    """By bpslaunch, which knows the exit code, and not by the scheduler and servers."""
    running = launch("-np", "2", "--servers", str(servers), "--", *program("fail", "9"))
    assert running.wait(60) == 9
    lines = running.err.splitlines()
    reported = [line for line in lines if line.startswith(("[scheduler] ", "[server "))]
    assert [line for line in reported if " ERROR " in line or "the job has failed" in line] == []
    assert not any("come back" in line or "Joining again" in line for line in reported), running.err
    assert lines.count("bpslaunch: worker 1 failed first, with exit code 9") == 1


@pytest.mark.time_limit(620)
def test_a_mistake_in_a_callback_is_a_report_of_a_screen(launch):
    """The cause first, with the program's own lines, and again at the end."""
    command = [sys.executable, str(ROOT / "tests" / "launch" / "failing_training.py")]
    running = launch("-np", "2", "--", *command, TF_CPP_MIN_LOG_LEVEL="2")
    assert running.wait(500) == 1
    # TensorFlow has something to say of some CPUs, whatever its log level.
    of_tensorflow = ("absl::InitializeLog()", "oneDNN custom operations are on")
    lines = [
        line for line in running.err.splitlines() if not any(text in line for text in of_tensorflow)
    ]
    assert len(lines) + len(running.out.splitlines()) <= 25, running.err
    cause = "KeyError: 'accuracie'"
    own = ['print(logs["accuracie"])', "model.fit(rows, rows[:, :1], batch_size=8, "]
    traceback = lines.index("[worker 1] Traceback (most recent call last):")
    assert not any("Error" in line or "Traceback" in line for line in lines[:traceback])
    assert f"[worker 1] {cause}" in lines[traceback : traceback + 9]
    report = lines[lines.index("bpslaunch: worker 1 failed first, with exit code 1") :]
    for shown in (lines[: traceback + 9], report):
        assert all(any(text in line for line in shown) for text in [*own, cause])
    assert not any("site-packages" in line for line in report)
