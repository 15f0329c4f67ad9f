"""bpslaunch inside an allocation: its hosts are the nodes, and srun starts their processes."""

import contextlib
import json
import os
import shlex
import signal
import sys

import psutil
import pytest

from tests.cluster import ROOT, all_gone, wait_until
from tests.slurm.running import AS_HOST, BPSLAUNCH, Running, on_nodes, processes_with

pytestmark = pytest.mark.slow
_RANK = "BYTEPS_GLOBAL_RANK"


def test_hosts_and_slots_are_those_of_the_allocation(slurm, program, tmp_path):
    line = on_nodes(program("train"), "--verbose")
    code, out, error = slurm.batch(tmp_path, "-N", "3", "-n", "4", line)
    assert code == 0, error
    places = ["0 4 0 2", "1 4 1 2", "2 4 0 1", "3 4 0 1"]
    assert sorted(out.splitlines()) == [
        f"[worker {rank}] trained {place} 6.0" for rank, place in enumerate(places)
    ]
    assert "4 workers on 3 hosts" in error
    assert "[worker 3] on node3: " in error


def test_nodes_share_workers_when_no_tasks_were_asked_for(slurm, program, tmp_path):
    line = on_nodes(program("train"), "-np", "4", "--servers", "1")
    code, out, error = slurm.batch(tmp_path, "-N", "3", line)
    assert code == 0, error
    assert sorted(text.split()[-3] for text in out.splitlines()) == ["0", "0", "0", "1"]


def test_servers_on_nodes_that_are_named(slurm, program, tmp_path):
    line = on_nodes(program("train"), "-H", "node1:1,node2:1", "--server-hosts", "node3")
    code, out, error = slurm.batch(tmp_path, "-N", "3", line)
    assert code == 0, error
    assert "2 workers on 3 hosts, 1 server" in error and out.count("trained") == 2


def test_a_heterogeneous_job_has_nodes_for_servers(slurm, program, tmp_path):
    """The example, with a program that ends sooner."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    script = [ROOT / "examples" / "slurm_servers.sh", *AS_HOST, *program("train")]
    code, out, error = slurm.batch(tmp_path, script, PATH=path)
    assert code == 0, error
    assert "4 workers on 3 hosts, 2 servers" in error and out.count("trained") == 4


def test_the_secret_is_on_no_command_line(slurm, tmp_path):
    line = shlex.join([*BPSLAUNCH, "sh", "-c", 'echo "secret: $BYTEPS_JOB_SECRET"; sleep 5'])
    lines = []
    with Running(slurm, tmp_path, "-N", "2", "-n", "2", line) as running:
        running.wait_for("secret: ", 2)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
        steps = slurm.run("scontrol", "--details", "show", "step").stdout
        secrets = {text.partition("secret: ")[2] for text in running.out.splitlines()}
    assert len(secrets) == 1 and len(secrets.copy().pop()) == 64
    assert any("--nodelist=node2" in each for each in lines)
    assert not any(secrets.copy().pop() in each for each in [*lines, steps])


def test_the_exit_code_is_that_of_the_first_that_failed(slurm, program, tmp_path):
    line = on_nodes(program("fail", "9"), "--servers", "1")
    code, _, error = slurm.batch(tmp_path, "-N", "3", "-n", "3", line)
    assert code == 9
    assert "worker 1 failed first, with exit code 9" in error and "going to fail" in error


def test_a_killed_task_ends_the_job_and_is_named(slurm, program, tmp_path):
    line = on_nodes(program("exchange_for", "100"))
    with Running(slurm, tmp_path, "-N", "3", "-n", "3", line) as running:
        running.wait_for("exchanging", 3)
        (killed,) = processes_with(slurm, _RANK, 1)
        killed.kill()
        assert running.wait() == 137
    assert "worker 1 failed first, with exit code 137 (SIGKILL)" in running.error
    said = [text for text in running.error.splitlines() if text.startswith("bpslaunch: ")]
    assert "worker 1" in said[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_bpslaunch(slurm, program, tmp_path, number):
    line = on_nodes(program("sleep_with_children"), "--grace", "2")
    with Running(slurm, tmp_path, "-N", "2", "-n", "2", f"exec {line}") as running:
        running.wait_for("sleeping", 2)
        (launcher,) = [p for p, _ in slurm.processes() if "tf_byteps.launch" in p.cmdline()]
        left = [*processes_with(slurm, _RANK, 0), *processes_with(slurm, _RANK, 1)]
        assert len(left) >= 6
        launcher.send_signal(number)
        assert running.wait() != 0
        wait_until(lambda: all_gone(left))


def test_a_host_outside_of_the_allocation_is_refused(slurm, program, tmp_path):
    line = on_nodes(program("train"), "-H", "node1:1,elsewhere:1", "--scheduler-host", "127.0.0.1")
    code, _, error = slurm.batch(tmp_path, "-N", "2", line)
    assert code == 2
    assert "elsewhere is not a node of Slurm's job" in error and "(node1,node2)" in error


def test_tasks_of_a_step_start_jobs_of_their_own(slurm, program):
    done = slurm.srun("-N", "2", "-n", "2", [*BPSLAUNCH, "-np", "1", *program("train")])
    assert done.stdout.count("trained 0 1 0 1 0.0") == 2, done.stderr


def test_the_doctor_examines_the_nodes(slurm, tmp_path):
    line = shlex.join([*BPSLAUNCH, "doctor", "--json"])
    _, out, error = slurm.batch(tmp_path, "-N", "2", line)
    hosts = json.loads(out)["hosts"]
    assert [(host["name"], host["error"]) for host in hosts] == [("node1", ""), ("node2", "")], (
        error
    )
