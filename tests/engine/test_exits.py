"""Ways in which a worker's process may end, first or last, with and without others in it."""

import signal

import pytest

from tests.cluster import describe, run_processes
from tests.engine import exit_programs

# The exit code, and whether the others are told of a failure.
_ENDS = {
    "pending": (0, False),
    "waiting thread": (0, False),
    "exit code": (3, False),
    "two threads": (0, False),
    "exception": (1, True),
    "interrupt": (-signal.SIGINT, True),
}
_NEVER = ("Fatal Python error", "terminate called", "Segmentation", "deadlock")
_slow = pytest.mark.slow


@pytest.mark.parametrize(
    "how, first, servers",
    [
        pytest.param(how, first, servers, marks=[] if (first, servers) == (1, 1) else _slow)
        for how in _ENDS
        for servers in (0, 1)
        for first in (0, 1)
    ],
)
def test_ends(how, first, servers):
    code, is_failure = _ENDS[how]
    env = {"BYTEPS_SHUTDOWN_TIMEOUT": "3"}
    outcomes = run_processes(
        exit_programs.ends, workers=2, servers=servers, env=env, args=[how, first, 1], timeout=30
    )
    ended, other = (outcomes[-2 + rank] for rank in (first, 1 - first))
    assert ended.code == code, describe(outcomes)
    assert other.code == 0, describe(outcomes)
    assert not is_failure or f"worker {first}" in other.result, describe(outcomes)
    assert is_failure or other.result == "", describe(outcomes)
    for outcome in outcomes:
        assert not any(text in outcome.output for text in _NEVER), describe(outcomes)
        if not is_failure:
            assert outcome.code in (0, code), describe(outcomes)
