"""What `RayLauncher.run` makes of how its workers end, as tests/elastic/test_exit_codes.py."""

import re

import pytest

from tests.elastic import programs
from tests.elastic.test_exit_codes import ENDS
from tf_byteps.errors import BytePSError

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(240)]

JOBS = {"fixed": {}, "elastic": {"min_workers": 1, "max_failures": 1}}

# How the error ends, of a job that fails.
_ERRORS = {
    "end 3": r"raised.*SystemExit: 3$",
    "end 3 one": r"raised.*SystemExit: [34]$",
    "end kill one": r"worker 1 on \S+ was lost: |raised.*SystemExit: 4$",
    "end raise": r"raised.*ValueError: an error of the program$",
}


@pytest.mark.parametrize("kind", list(JOBS))
@pytest.mark.parametrize("program", list(ENDS))
def test_an_end(launcher, kind, program):
    _, *how = program.split()
    job = launcher(2, servers=1, **JOBS[kind])
    if 0 in ENDS[program]:
        assert job.run(programs.end, how) == [None, None]
        return
    with pytest.raises(BytePSError) as caught:
        job.run(programs.end, how)
    message = str(caught.value)
    assert message.startswith("the job has failed: worker ")
    assert re.search(_ERRORS[program], message, re.DOTALL), message
