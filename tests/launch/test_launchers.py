"""Jobs that other launchers start: OpenMPI's, MPICH's, torchrun (for Slurm see tests/slurm)."""

import contextlib
import os
import subprocess
import sys

import pytest

from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.sessions import within
from tests.cluster import ROOT, clean_environment, free_port, outputs_of
from tests.debian import find_program
from tests.launch.conftest import start_sshd
from tf_byteps.rendezvous.secret import new_secret


@pytest.fixture(scope="module")
def mpirun():
    """The command of OpenMPI's mpirun, on this machine, which may have fewer processors."""
    command = [find_program("mpirun", "openmpi-bin"), "--oversubscribe"]
    return command + (["--allow-run-as-root"] if os.geteuid() == 0 else [])


def run(command, **variables):
    return subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_mpirun_is_enough(mpirun, program):
    done = run([*mpirun, "-np", "4", *program("train")])
    assert done.returncode == 0, done.stderr
    expected = [f"trained {rank} 4 {rank} 4 6.0" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == expected


@pytest.fixture
def hosts_of_mpirun(tmp_path):
    """mpirun on the first of two emulated hosts; each has a network and an sshd of its own."""
    reason = why_unavailable()
    if reason:
        pytest.skip(reason)
    with EmulatedCluster(2, None) as cluster, contextlib.ExitStack() as servers:
        for namespace, address in zip(cluster.namespaces, cluster.addresses, strict=True):
            sshd = start_sshd(tmp_path, [address], within(namespace))
            servers.callback(sshd.popen.wait)
            servers.callback(sshd.popen.terminate)
        agent = f"ssh -p {sshd.port} -i {tmp_path}/user_key -o StrictHostKeyChecking=no"
        agent += f" -o UserKnownHostsFile={tmp_path}/known_hosts -o LogLevel=ERROR"
        places = ",".join(f"{address}:2" for address in cluster.addresses)
        inside = [*within(cluster.namespaces[0]), "mpirun", "--allow-run-as-root"]
        yield [*inside, "--mca", "plm_rsh_agent", agent, "--host", places], cluster.addresses


def test_mpirun_over_several_hosts(mpirun, hosts_of_mpirun, program):
    command, addresses = hosts_of_mpirun
    names = ["PYTHONPATH", "BYTEPS_JOB_SECRET", f"DMLC_PS_ROOT_URI={addresses[0]}"]
    given = [word for name in names for word in ("-x", name)]
    done = run([*command, *given, *program("train")], BYTEPS_JOB_SECRET=new_secret())
    assert done.returncode == 0, done.stderr
    expected = [f"trained {rank} 4 {rank % 2} 2 6.0" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == expected
    assert "no secret" not in done.stderr


def test_mpirun_over_several_hosts_asks_for_an_address(mpirun, hosts_of_mpirun, program):
    command, _ = hosts_of_mpirun
    done = run([*command, "-x", "PYTHONPATH", *program("train")])
    assert done.returncode != 0 and "trained" not in done.stdout
    assert "mpirun -x DMLC_PS_ROOT_URI=HOST" in done.stderr


def test_mpirun_of_one_process(mpirun, program):
    done = run([*mpirun, "-np", "1", *program("train")])
    assert done.stdout == "trained 0 1 0 1 0.0\n", done.stderr


def test_a_secret_for_mpirun(mpirun, program):
    secret = {"BYTEPS_JOB_SECRET": "a secret of sixteen bytes or more"}
    done = run([*mpirun, "-np", "2", "-x", "BYTEPS_JOB_SECRET", *program("train")], **secret)
    assert done.stdout.count("trained") == 2, done.stderr
    assert "no secret" not in done.stderr


def _end_well_at_once(command):
    """Two jobs that one command starts, side by side."""
    running = [
        subprocess.Popen(command, cwd=ROOT, env=clean_environment(), stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in running:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()


def test_two_jobs_of_mpirun_at_once(mpirun, program):
    _end_well_at_once([*mpirun, "-np", "2", *program("exchange_for", "2")])


def test_a_rank_of_mpirun_that_fails_ends_the_job(mpirun, program):
    done = run([*mpirun, "-np", "2", *program("fail", "7")])
    assert done.returncode == 7 and "going to fail" in done.stderr


def test_bpslaunch_within_mpirun_starts_a_job_of_its_own(mpirun, program):
    inner = [sys.executable, "-m", "tf_byteps.launch", "-np", "1", *program("train")]
    done = run([*mpirun, "-np", "2", *inner])
    assert done.stdout.count("trained 0 1 0 1 0.0\n") == 2, done.stdout + done.stderr


@pytest.fixture
def mpich():
    """mpiexec of MPICH."""
    return find_program("mpiexec.mpich", "mpich")


def test_mpiexec_of_mpich_is_enough(mpich, program):
    done = run([mpich, "-n", "3", *program("train")])
    assert done.returncode == 0, done.stderr
    expected = [f"trained {rank} 3 {rank} 3 3.0" for rank in range(3)]
    assert sorted(done.stdout.splitlines()) == expected


def test_two_jobs_of_mpich_at_once(mpich, program):
    """It tells its processes nothing that another job's have not."""
    _end_well_at_once([mpich, "-n", "2", *program("exchange_for", "2")])


def test_a_rank_of_mpich_that_fails_ends_the_job(mpich, program):
    done = run([mpich, "-n", "2", *program("fail", "7")])
    assert done.returncode != 0 and "going to fail" in done.stdout + done.stderr


@pytest.mark.slow
def test_torchrun_is_enough(program):
    """Debian's, whose PyTorch brings 170 packages; this program knows nothing of it."""
    torchrun = find_program("torchrun", "python3-torch")
    # Without these two options it fails with Python 3.11.
    shown = ["--redirects", "1", "--tee", "1"]
    done = run([torchrun, *shown, "--nproc_per_node", "2", "--no_python", *program("train")])
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"[default{rank}]:trained {rank} 2 {rank} 2 1.0\n" in done.stdout


def test_the_variables_of_torchrun(program):
    port = str(free_port(2))  # the scheduler listens at the second
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            program("train"),
            cwd=ROOT,
            env=clean_environment(
                **shared, RANK=str(rank), LOCAL_RANK=str(rank), MASTER_ADDR="localhost"
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = outputs_of(processes, timeout=120)
    for rank, (out, _) in enumerate(outputs):
        assert out == f"trained {rank} 2 {rank} 2 1.0\n", outputs


def test_contradicting_launchers_are_an_error(mpirun, program):
    done = run([*mpirun, "-np", "2", *program("train")], DMLC_NUM_WORKER="3")
    assert done.returncode != 0 and "trained" not in done.stdout
    assert "DMLC_NUM_WORKER says that num_worker_machines is 3, but OpenMPI has started 2" in (
        done.stderr
    )
