"""Rows of an alltoall that are lost with a server: the job goes back to its last commit."""

import sys

import pytest

from tests.elastic.conftest import ENVIRONMENT
from tests.elastic.lost_rows_programs import LOST, STEPS

# Worker 1 is stopped for a while; its rows go through a socket.
_VARIABLES = {**ENVIRONMENT, "BYTEPS_HEARTBEAT_TIMEOUT": "60", "BYTEPS_ENABLE_IPC": "0"}


@pytest.mark.parametrize("how", ["numpy", pytest.param("tensorflow", marks=pytest.mark.extended)])
def test_all_go_back_and_go_on(how, launch, tmp_path):
    """One worker lacks its rows, and nobody has them (protocol rule 15)."""
    program = [sys.executable, "-m", "tests.elastic.lost_rows_programs", how, str(tmp_path)]
    job = launch("--min-np", "2", "--max-np", "2", "--servers", "2", "--", *program, **_VARIABLES)
    code = job.wait()
    output = job.out + job.err
    assert code == 0, output
    again = [*range(LOST, STEPS)]
    assert f"rank 0 made {[*range(LOST + 2), *again]}" in output, (
        output
    )  # it waits in the next step
    assert f"rank 1 made {[*range(LOST + 1), *again]}" in output, output
    assert output.count("going back to the last commit") == 2
    assert "is over on another server, before one was lost or came back" in output
