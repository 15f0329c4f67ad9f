"""Jobs of bpslaunch in Slurm that lose tasks, time, or Slurm itself."""

import itertools
import json
import re
import shlex
import sys

import pytest

from tests.cluster import ROOT
from tests.launch.leaving_programs import STEPS
from tests.slurm.running import AS_HOST, BPSLAUNCH, Running, on_nodes, processes_with

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(1200)]

_EPOCHS = 3


def test_an_elastic_job_goes_on_when_a_task_is_killed(slurm, tmp_path):
    """Every sample is used as often as if nothing had happened."""
    limit, progress = tmp_path / "limit.txt", tmp_path / "progress.txt"
    limit.write_text("20")  # batches: training waits there
    training = [sys.executable, "-m", "tests.elastic.training", "fit", str(tmp_path), str(_EPOCHS)]
    line = on_nodes(training, "--min-np", "1", "-np", "2")
    with Running(slurm, tmp_path, "-N", "2", "-n", "2", line) as running:

        def await_workers(number):
            pattern = rf"commit \d+ \S+ {number}\n$"
            running.wait_until(lambda: re.search(pattern, progress.read_text()))

        running.wait_until(progress.exists)
        await_workers(2)
        (killed,) = processes_with(slurm, "BYTEPS_MEMBER", 1)
        killed.kill()
        await_workers(1)
        await_workers(2)
        limit.unlink()
        assert running.wait() == 0, running.error
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["least"], result["most"], result["size"]) == (_EPOCHS, _EPOCHS, 2)
    assert "worker 1 on node2 failed with exit code 137" in running.error
    assert "starting worker 2 on node2" in running.error


def test_a_job_whose_time_is_over_is_requeued_and_resumes(slurm, tmp_path):
    """The example: Slurm's signal, callbacks that save, the queue, and the next epoch."""
    training = [sys.executable, "-m", "tests.launch.leaving_programs", "until_requeued", tmp_path]
    script = [ROOT / "examples" / "slurm_requeue.sh", *AS_HOST, *training]
    options = ["-N", "2", "--ntasks-per-node=1", "--time=5"]  # minutes: machines may be busy
    path = f"{ROOT / '.venv' / 'bin'}:/usr/bin:/bin"
    code, out, error = slurm.batch(tmp_path, *options, script, PATH=path)
    assert code == 0, error
    assert out.count("done") == 2
    # One run, or on a busy machine more, was told to end; each next one has begun where it was.
    runs, others = (
        sorted(map(_read, tmp_path.glob(f"{rank}-*.json")), key=lambda run: run["steps"])
        for rank in range(2)
    )
    assert runs == others and len(runs) > 1, error
    for before, after in itertools.pairwise(runs):
        assert after["epochs"][0] == before["epochs"][-1] + 1
    assert runs[-1]["steps"] == runs[-2]["steps"] + STEPS


def _read(path):
    return json.loads(path.read_text())


def test_without_munge_one_sentence_says_so(slurm, program, tmp_path):
    broken = tmp_path / "slurm.conf"
    break_it = (
        f"sed s/munge.socket/nobody.socket/ $SLURM_CONF > {broken}; export SLURM_CONF={broken}"
    )
    line = shlex.join([*BPSLAUNCH, *program("train")])
    code, out, error = slurm.batch(tmp_path, "-N", "2", f"{break_it}\n{line}")
    assert code == 2 and out == ""
    said = [text for text in error.splitlines() if text.startswith("bpslaunch: ")]
    assert "check that slurmctld and munged run" in said[-1] and "nobody.socket" in said[-1]
    assert "Traceback" not in error
