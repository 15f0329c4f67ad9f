"""The exit code of bpslaunch in an allocation of Slurm, by how the workers end."""

import sys

import pytest

from tests.elastic.conftest import ENVIRONMENT
from tests.elastic.test_exit_codes import ENDS, JOBS
from tests.slurm.running import on_nodes

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(600)]


@pytest.mark.parametrize("kind", list(JOBS))
@pytest.mark.parametrize("program, codes", list(ENDS.items()))
def test_exit_code(slurm, tmp_path, kind, program, codes):
    command = [sys.executable, "-m", "tests.elastic.programs", *program.split()]
    line = on_nodes(command, *JOBS[kind], "--servers", "1")
    code, _, error = slurm.batch(tmp_path, "-N", "2", "-n", "2", line, **ENVIRONMENT)
    assert code in codes, error
    assert f"{0 if code else 2} of 2 workers ended with code 0" in error, error
