"""srun without any launcher of ours: real slurmctld and three slurmd."""

import re

import pytest

from tf_byteps.rendezvous.secret import new_secret

pytestmark = pytest.mark.slow


def test_srun_is_enough(slurm, program):
    """Two tasks on the first node and one on each other one: they train together."""
    done = slurm.srun("-n", "4", "-N", "3", program("train"), BYTEPS_JOB_SECRET=new_secret())
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "trained 0 4 0 2 6.0",
        "trained 1 4 1 2 6.0",
        "trained 2 4 0 1 6.0",
        "trained 3 4 0 1 6.0",
    ]
    assert "no secret" not in done.stderr


def test_the_second_step_of_a_job(slurm, program, tmp_path):
    """Steps follow each other in a batch script, which itself is one process."""
    command = " ".join(program("train"))
    step = f"srun sh -c 'BYTEPS_HOST_ID=$SLURMD_NODENAME exec {command}'\n"
    script = f"export BYTEPS_JOB_SECRET={new_secret()}\n{command}\n{step}{step}"
    code, text, error = slurm.batch(tmp_path, "-n", "3", "-N", "3", script)
    assert code == 0, error
    assert text.count("trained 0 1 0 1 0.0\n") == 1
    for rank in range(3):
        assert text.count(f"trained {rank} 3 0 1 3.0\n") == 2


def test_two_jobs_at_once(slurm, program):
    """Each has a port of its own."""
    script = " ".join(
        [
            *("srun", "-N", "3", "--overlap", "-n", "3", "sh", "-c"),
            f"'BYTEPS_HOST_ID=$SLURMD_NODENAME exec {' '.join(program('train'))}'",
        ]
    )
    both = f"{script} & {script} & wait"
    done = slurm.run(
        "salloc", "-N", "3", "-n", "3", "sh", "-c", both, BYTEPS_JOB_SECRET=new_secret()
    )
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        assert done.stdout.count(f"trained {rank} 3 0 1 3.0\n") == 2, done.stdout + done.stderr


def test_without_a_secret_nodes_are_not_joined(slurm, program):
    done = slurm.srun("-K", "-n", "3", "-N", "3", program("train"))
    assert done.returncode != 0 and "trained" not in done.stdout
    assert "is to listen at node1, that is at 0.0.0.0" in done.stderr
    assert "BYTEPS_JOB_SECRET_FILE" in done.stderr


def test_a_task_that_fails_ends_the_others(slurm, program):
    done = slurm.srun("-n", "3", "-N", "3", program("fail", "7"), BYTEPS_JOB_SECRET=new_secret())
    assert done.returncode != 0
    # Who hears of it first tells: of its server, or of itself.
    first = next(line for line in done.stderr.splitlines() if " ERROR " in line)
    said = r"in the process of worker 1\) is lost: |worker 1( at \S+)? ended without a goodbye: "
    assert re.search(said, first), done.stderr


def test_the_configuration_says_who_has_decided(slurm, program):
    done = slurm.srun("-n", "2", "-N", "2", [*program("")[:1], "-m", "tf_byteps.config"])
    for rank in range(2):
        assert f"This process is worker {rank} of 2, as Slurm says." in done.stdout


def test_pmi2_says_the_same(slurm, program):
    variables = {"BYTEPS_JOB_SECRET": new_secret()}
    done = slurm.srun("--mpi=pmi2", "-n", "3", "-N", "2", program("train"), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" 3.0\n") == 3
