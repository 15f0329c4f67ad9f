"""Which shell reaches other hosts, and what Slurm's variables say of an allocation."""

import pytest

from tf_byteps.errors import ConfigError
from tf_byteps.launch.allocation import read_allocation
from tf_byteps.launch.arguments import read
from tf_byteps.launch.remote_shells import Srun, Ssh, new_remote_shell

# As sbatch -N 3 -n 4 sets them.
ALLOCATION = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "gpu[07-09]",
    "SLURM_TASKS_PER_NODE": "2,1(x2)",
    "SLURM_NTASKS": "4",
}
HETEROGENEOUS = {
    **ALLOCATION,
    "SLURM_HET_SIZE": "2",
    "SLURM_NTASKS_HET_GROUP_0": "4",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu[07-08]",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2(x2)",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "cpu1",
    "SLURM_TASKS_PER_NODE_HET_GROUP_1": "3",
}


def shell(environment, *words):
    return new_remote_shell(read([*words, "true"]), environment)


def slots(hosts):
    return [(host.name, host.slots) for host in hosts]


def test_srun_is_chosen_inside_an_allocation():
    assert isinstance(shell(ALLOCATION), Srun)
    assert isinstance(shell({}), Ssh)
    assert isinstance(shell(ALLOCATION, "--remote-shell", "ssh"), Ssh)
    assert isinstance(shell(ALLOCATION, "--ssh-port", "2222"), Ssh)


@pytest.mark.parametrize(
    "environment, words, message",
    [
        ({}, ["--remote-shell", "srun"], "this is not an allocation of Slurm"),
        (ALLOCATION, ["--remote-shell", "srun", "--ssh-port", "1"], "takes no options for ssh"),
        ({**ALLOCATION, "SLURM_TASKS_PER_NODE": "2"}, [], "gpu.07-09., 3 nodes, but SLURM_TASKS"),
        ({**ALLOCATION, "SLURM_JOB_NODELIST": "a["}, [], "SLURM_JOB_NODELIST is 'a\\['"),
    ],
)
def test_what_is_no_allocation_is_said(environment, words, message):
    with pytest.raises(ConfigError, match=message):
        shell(environment, *words)


def test_a_step_of_one_task_on_a_node():
    command = shell(ALLOCATION).command("gpu08", ["prog", "a b", "$c"], {"NAME": "it's"})
    assert command[:2] == ["srun", "--overlap"] and "--nodelist=gpu08" in command
    assert command[-5:] == ["env", "NAME=it's", "prog", "a b", "$c"]
    assert not any(word.startswith("--het-group") for word in command)
    assert "--het-group=1" in shell(HETEROGENEOUS).command("cpu1", ["true"], {})
    with pytest.raises(ConfigError, match="gpu1 is not a node of Slurm's job 17"):
        shell(ALLOCATION).command("gpu1", ["true"], {})


def test_srun_gets_no_secret_and_not_the_shape_of_our_own_step():
    given = {**ALLOCATION, "HOME": "/home/a", "BYTEPS_JOB_SECRET": "s", "SLURM_CONF": "/c"}
    assert set(shell(given).own_environment(given)) == {"HOME", "SLURM_JOB_ID", "SLURM_CONF"}


def test_ssh_gets_no_secret_and_its_agent(monkeypatch):
    monkeypatch.setenv("BYTEPS_JOB_SECRET", "s")
    monkeypatch.setenv("BYTEPS_JOB_SECRET_FILE", "/s")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    own = Ssh().own_environment({})
    assert own["SSH_AUTH_SOCK"] == "/agent"
    assert not {"BYTEPS_JOB_SECRET", "BYTEPS_JOB_SECRET_FILE"} & set(own)


def test_workers_take_the_tasks_of_nodes():
    allocation = read_allocation(ALLOCATION)
    assert slots(allocation.worker_hosts()) == [("gpu07", 2), ("gpu08", 1), ("gpu09", 1)]
    assert allocation.worker_hosts(9) == allocation.worker_hosts()
    assert allocation.server_hosts() == []


def test_nodes_without_tasks_share_workers():
    allocation = read_allocation({**ALLOCATION, "SLURM_NTASKS": ""})
    assert slots(allocation.worker_hosts(5)) == [("gpu07", 2), ("gpu08", 2), ("gpu09", 1)]
    assert slots(allocation.worker_hosts(2)) == [("gpu07", 1), ("gpu08", 1)]


def test_the_components_of_a_heterogeneous_job():
    allocation = read_allocation(HETEROGENEOUS)
    assert slots(allocation.worker_hosts()) == [("gpu07", 2), ("gpu08", 2)]
    assert allocation.server_hosts() == ["cpu1"] * 3


def test_a_shell_of_srun_has_the_nodes_and_several_tasks_have_none():
    step = {**ALLOCATION, "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1"}
    allocation = read_allocation({**step, "SLURM_STEP_NUM_TASKS": "1"})
    assert slots(allocation.worker_hosts(3)) == [("gpu07", 1), ("gpu08", 1), ("gpu09", 1)]
    assert read_allocation({**step, "SLURM_STEP_NUM_TASKS": "2"}) is None
