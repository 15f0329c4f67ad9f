"""bpslaunch's exit code, by how the workers end: with a fixed number of them, and in elastic jobs.

Nobody is done who ends with a code of its own, by `sys.exit` for example: an elastic job whose
workers all end so has failed.
"""

import pytest

JOBS = {
    "fixed": ("-np", "2"),
    "elastic": ("--min-np", "1", "--max-np", "2", "-np", "2", "--host-failures", "1"),
}


# What workers do (`tests.elastic.programs`): the codes that their job may end with.
ENDS = {
    "end 3": {3},
    "end 3 one": {3, 4},
    "end kill one": {137, 4},
    "end raise": {1},
    "end fall": {0},
    "end 0": {0},
}
# What tests/launch/test_job.py shows of fixed jobs, or the tests below of elastic ones.
_EXTENDED = {
    "fixed": ("end 3 one", "end kill one", "end raise", "end 0"),
    "elastic": ("end 3 one", "end 0"),
}


def _parameters():
    return [
        pytest.param(
            kind,
            program,
            codes,
            id=f"{program}-{kind}",
            marks=pytest.mark.extended if program in _EXTENDED[kind] else (),
        )
        for program, codes in ENDS.items()
        for kind in JOBS
    ]


@pytest.mark.parametrize(("kind", "program", "codes"), _parameters())
def test_exit_code(elastic, kind, program, codes):
    code, output = elastic(*JOBS[kind], "--servers", "1", program=program).end()
    assert code in codes, output
    well = 2 if code == 0 else 0
    assert f"{well} of 2 workers ended with code 0" in output, output


def test_a_worker_that_exits_with_a_code_is_not_done(elastic):
    """Another one takes its place."""
    job = elastic("--min-np", "1", "--max-np", "1", program="exit_first 3")
    job.running.wait_for("member 1: rank 0 of 1 from 0")
    code, output = job.finish()
    assert code == 0, output
    assert "worker 0 on localhost failed with exit code 3" in output
    assert "finished with 1" in output


@pytest.mark.slow
@pytest.mark.time_limit(600)
def test_a_function_that_calls_exit_is_a_failure_of_its_worker(elastic):
    """The others go back to their last commit, as if it had been killed."""
    job = elastic("--min-np", "1", "--max-np", "2", "--servers", "1", program="exit_in_function 3")
    job.running.wait_for("member 2: rank 1 of 2", timeout=300)
    code, output = job.finish(120)
    assert code == 0, output
    assert "worker 1 on localhost failed with exit code 3" in output
    assert output.count("finished with 2") == 2
