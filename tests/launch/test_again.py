"""Workers of a bpslaunch job that leave, and call `init` again: notebooks and test suites do."""

import pytest


@pytest.mark.parametrize("servers", [0, 1])
def test_workers_come_again_after_all_have_left(launch, program, servers):
    running = launch("-np", "2", "--servers", str(servers), "--", *program("come_again", "5"))
    assert running.wait(120) == 0, running.out + running.err
    for number in range(5):
        assert running.out.count(f"round {number}: {2 * number + 1}.0") == 2, running.out
    assert "2 of 2 workers ended with code 0" in running.err
    assert "WARNING" not in running.err and "ERROR" not in running.err, running.err


def test_one_that_does_not_come_again_is_named(launch, program):
    running = launch("-np", "2", "--servers", "1", "--", *program("come_again", "2", "1"))
    assert running.wait(120) == 1, running.out + running.err
    reported = (
        "worker 1 has ended with exit code 0 before the job began again, and others wait for it"
    )
    assert reported in running.err, running.err
