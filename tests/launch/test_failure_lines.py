"""What stands between a worker's failure and bpslaunch's summary."""

import pytest


@pytest.mark.parametrize("servers", [0, 1])
def test_a_failure_is_told_once(launch, program, servers):
    """By the scheduler, which has noticed it, and by bpslaunch, which knows the exit code."""
    running = launch("-np", "2", "--servers", str(servers), "--", *program("fail", "9"))
    assert running.wait(60) == 9
    lines = running.err.splitlines()
    told = [line for line in lines if line.startswith(("[scheduler] ", "[server "))]
    assert len([line for line in told if "without a goodbye" in line]) <= 1, running.err
    assert not any("come back" in line or "Joining again" in line for line in told), running.err
    # Whose connection ends first: a worker that hosts a server is a worker.
    ended = [line for line in told if " ended without a goodbye" in line]
    assert all("ERROR tf_byteps: worker 1 " in line for line in ended), running.err
    assert "bpslaunch: worker 1 failed first, with exit code 9" in lines
