"""Each launcher's variables, as processes get them; some are run for real in tests/launch."""

import json
import os

import pytest

from tf_byteps.config import Config
from tf_byteps.environments import READERS, openmpi, slurm
from tf_byteps.errors import ConfigError

OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_MCA_ess_base_jobid": "3155230721",
}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NODELIST": "node[1-3]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1(x2)",
}
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "1",
}
SAGEMAKER = {
    "SM_HOSTS": '["algo-1", "algo-2"]',
    "SM_CURRENT_HOST": "algo-2",
    "TRAINING_JOB_NAME": "digits",
}
VERTEX = {
    "CLUSTER_SPEC": json.dumps(
        {
            "cluster": {"workerpool0": ["a:2222"], "workerpool1": ["b:2222", "c:2222"]},
            "environment": "cloud",
            "task": {"type": "workerpool1", "index": 1},
        }
    )
}
TRAINJOB = {
    "PET_NNODES": "3",
    "PET_NODE_RANK": "2",
    "PET_NPROC_PER_NODE": "auto",
    "PET_MASTER_ADDR": "digits-node-0-0.digits",
    "PET_MASTER_PORT": "29400",
    "JOB_COMPLETION_INDEX": "2",
}
KUBERNETES = {
    "JOB_COMPLETION_INDEX": "0",
    "HOSTNAME": "digits-0",
    "DMLC_NUM_WORKER": "2",
    "DMLC_PS_ROOT_URI": "digits-0.digits",
    "DMLC_PS_ROOT_PORT": "9000",
}
TF_CONFIG = {
    "TF_CONFIG": json.dumps(
        {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    )
}


@pytest.mark.parametrize(
    "environment, rank, size, local, host",
    [
        (OPENMPI, 2, 4, (2, 4), "127.0.0.1"),
        (PMI, 1, 2, (1, 2), "127.0.0.1"),
        (SLURM, 3, 4, (0, 1), "node1"),
        (TORCHRUN, 5, 8, (1, 4), "10.0.0.1"),
        (SAGEMAKER, 1, 2, (0, 1), "algo-1"),
        (VERTEX, 2, 3, (0, 1), "a"),
        (TRAINJOB, 2, 3, (0, 1), "digits-node-0-0.digits"),
        (KUBERNETES, 0, 2, (0, 1), "digits-0.digits"),
        (TF_CONFIG, 1, 2, (0, 1), "a"),
    ],
    ids=["OpenMPI", "PMI", "Slurm", "torchrun", "SM", "Vertex", "TrainJob", "Kubernetes", "TF"],
)
class TestEachLauncher:
    def test_place(self, environment, rank, size, local, host):
        config = Config.from_environment(environment)
        assert (config.rank, config.size) == (rank, size)
        assert (config.local_rank, config.local_size) == local
        assert (
            config.scheduler_host == host
            and 1024 <= config.scheduler_port < 65536
            or (environment in (VERTEX, TF_CONFIG))
        )
        assert config.hosts_server and config.hosts_scheduler == (rank == 0)

    def test_no_malformed_variable_is_taken_for_another_job(
        self, environment, rank, size, local, host
    ):
        """Each variable in turn is missing or malformed: the place stays, or there is an error."""
        for name in environment:
            for value in ("", "x", "-1", "[]", "99999999999999999999"):
                try:
                    config = Config.from_environment({**environment, name: value})
                except ConfigError as error:
                    assert len(str(error)) < 1000
                    continue
                alone = config.size == 1 and not value  # without it, it is not that launcher
                numbered = config.size == size and config.rank in (rank, None)
                assert alone or numbered, (name, value)

    def test_the_same_place_for_all_means_the_same_address(
        self, environment, rank, size, local, host
    ):
        one, other = (Config.from_environment(environment) for _ in range(2))
        address = (one.scheduler_host, one.scheduler_port, one.job_id)
        assert address == (other.scheduler_host, other.scheduler_port, other.job_id)


@pytest.mark.parametrize(
    "environment",
    [
        {**OPENMPI, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_JOB_ID": "17"},  # the batch script
        {**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"},
        {"JOB_COMPLETION_INDEX": "3"},  # each pod has work of its own
        {"PET_NNODES": "1", "PET_NODE_RANK": "0"},
    ],
)
def test_a_launcher_of_one_process_is_none(environment):
    config = Config.from_environment(environment)
    assert (config.rank, config.size, config.distributed) == (0, 1, False)


@pytest.mark.parametrize(
    "environment, parts",
    [
        (
            {**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            ["OMPI_COMM_WORLD_SIZE=4", "several hosts", "mpirun -x DMLC_PS_ROOT_URI=HOST"],
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, ["PMI_SIZE=2", "-genv DMLC_PS_ROOT_URI HOST"]),
        ({"RANK": "1", "WORLD_SIZE": "2"}, ["WORLD_SIZE=2", "MASTER_ADDR and MASTER_PORT"]),
        ({**SLURM, "SLURM_PROCID": "0"}, ["task 0 is not on the first node"]),
        ({**SLURM, "SLURM_STEP_NODELIST": ""}, ["SLURM_STEP_NODELIST is not set"]),
        ({**TRAINJOB, "PET_NPROC_PER_NODE": "4"}, ["4 processes belong on each node"]),
        ({**TRAINJOB, "PET_NNODES": "1:4"}, ["PET_NNODES must be one number"]),
        ({**SAGEMAKER, "SM_CURRENT_HOST": "algo-3"}, ["SM_CURRENT_HOST=algo-3"]),
        ({**KUBERNETES, "JOB_COMPLETION_INDEX": "2"}, ["more pods than workers"]),
        (
            {
                "TF_CONFIG": '{"sparseCluster": {"worker": {"1": "w1:2222"}, "ps": []}, '
                '"task": {"type": "worker", "index": 1}}'
            },
            ["does not say how many workers", "enableDynamicWorker"],
        ),
    ],
)
def test_several_processes_that_cannot_be_joined_are_an_error(environment, parts):
    with pytest.raises(ConfigError) as caught:
        Config.from_environment(environment)
    for part in parts:
        assert part in str(caught.value)


class TestSeveralSources:
    def test_that_agree(self):
        pmi = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_JOBID": "17.0"}  # srun --mpi=pmi2
        config = Config.from_environment({**SLURM, **pmi})
        assert (config.rank, config.size, config.local_size) == (3, 4, 1)
        assert config.scheduler_host == "node1"

    def test_that_contradict_each_other(self):
        with pytest.raises(ConfigError) as caught:
            Config.from_environment({**OPENMPI, **TF_CONFIG})
        assert "TF_CONFIG says that this process is rank 1 of 2 (task worker 1), but OpenMPI" in (
            str(caught.value)
        )
        assert "OMPI_COMM_WORLD_RANK=2" in str(caught.value)

    @pytest.mark.parametrize("outer", [SAGEMAKER, TRAINJOB, {**SLURM, **{
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_NODEID": "1",
        "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    }}])  # fmt: skip
    def test_torchrun_on_each_host_of_another_launcher(self, outer):
        config = Config.from_environment({**outer, **TORCHRUN})
        assert (config.rank, config.size, config.scheduler_host) == (5, 8, "10.0.0.1")

    def test_mpirun_through_slurms_daemons(self):
        config = Config.from_environment({**SLURM, "SLURM_STEP_NUM_TASKS": "3", **OPENMPI})
        assert (config.rank, config.size) == (2, 4)

    def test_an_address_is_free_to_choose(self):
        given = {"DMLC_PS_ROOT_URI": "10.1.1.1", "DMLC_PS_ROOT_PORT": "7777"}
        config = Config.from_environment({**SLURM, **given})
        assert (config.scheduler_host, config.scheduler_port) == ("10.1.1.1", 7777)
        several = {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        config = Config.from_environment({**OPENMPI, **several, "DMLC_PS_ROOT_URI": "10.1.1.1"})
        assert (config.scheduler_host, config.rank, config.local_size) == ("10.1.1.1", 2, 2)

    @pytest.mark.parametrize(
        "given",
        [
            {"DMLC_NUM_WORKER": "3"},
            {"BYTEPS_GLOBAL_SIZE": "2", "BYTEPS_GLOBAL_RANK": "1"},
            {"BYTEPS_GLOBAL_SIZE": "4", "BYTEPS_GLOBAL_RANK": "1"},
        ],
    )
    def test_a_variable_that_contradicts_the_launcher(self, given):
        with pytest.raises(ConfigError, match="says .*, but OpenMPI .*unset one of the two"):
            Config.from_environment({**OPENMPI, **given})

    def test_a_process_of_bpslaunch_inside_a_launcher(self):
        job = {"DMLC_ROLE": "worker", "BYTEPS_GLOBAL_SIZE": "2", "BYTEPS_GLOBAL_RANK": "1"}
        address = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "1"}
        config = Config.from_environment({**OPENMPI, **SLURM, **job, **address})
        assert (config.rank, config.size) == (1, 2)


@pytest.mark.parametrize(
    "processors, bound, expected", [(1, True, True), (8, True, False), (1, False, False)]
)
def test_mpiruns_binding_is_remarked_on(monkeypatch, processors, bound, expected):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)))
    remark = openmpi.binding_remark({"OMPI_MCA_orte_bound_at_launch": "1"} if bound else {})
    assert bool(remark) is expected
    assert not remark or "1 of 16 processors" in remark and "--bind-to none" in remark


class TestSlurmsLists:
    @pytest.mark.parametrize(
        "text, expected",
        [
            ("node7", "node7"),
            ("node[1-3,7]", "node1 node2 node3 node7"),
            ("gpu[08-10,20]-ib,login", "gpu08-ib gpu09-ib gpu10-ib gpu20-ib login"),
            ("a,b[1-2]", "a b1 b2"),
            ("r[1-2]n[03-04]", "r1n03 r1n04 r2n03 r2n04"),
        ],
    )
    def test_nodes(self, text, expected):
        assert slurm.expand_nodes(text) == expected.split()

    @pytest.mark.parametrize("text", ["", "a,,b", "a[1-", "a[x-y]", "a b", "a]1["])
    def test_no_list_of_nodes(self, text):
        with pytest.raises(ConfigError, match="SLURM_STEP_NODELIST is"):
            slurm.expand_nodes(text)

    def test_tasks(self):
        assert slurm.tasks_per_node("2,1(x2)") == [2, 1, 1]
        assert slurm.tasks_per_node("4") == [4]
        for text in ("", "x", "2(3)", "2,,1"):
            with pytest.raises(ConfigError, match="SLURM_STEP_TASKS_PER_NODE"):
                slurm.tasks_per_node(text)


def test_master_is_the_chiefs_old_name():
    cluster = {"master": ["algo-1:2222"], "worker": ["algo-2:2222"], "ps": ["algo-1:2223"]}
    ranks = []
    for task_type in ("master", "worker"):
        text = json.dumps({"cluster": cluster, "task": {"type": task_type, "index": 0}})
        config = Config.from_environment({"TF_CONFIG": text})
        assert (config.size, config.scheduler_host, config.num_servers) == (2, "algo-1", 1)
        ranks.append(config.rank)
    assert ranks == [0, 1]


def test_jobs_side_by_side_have_ports_of_their_own():
    ports = {
        Config.from_environment({**SLURM, "SLURM_JOB_ID": str(number)}).scheduler_port
        for number in range(100)
    }
    assert len(ports) > 95 and all(10_000 <= port < 30_000 for port in ports)


def test_readers_have_names_of_their_own():
    assert len({reader.SOURCE for reader in READERS}) == len(READERS)
