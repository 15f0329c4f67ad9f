"""Slurm: the tasks of a step, as srun starts them.

A batch script itself is one process, whatever SLURM_NTASKS says: only a step's variables count.
"""

import re
from collections.abc import Mapping

from tf_byteps.errors import ConfigError
from tf_byteps.rendezvous.environments.place import Place, has, numbered, port_for, quote, whole

SOURCE = "Slurm"
_NEEDED = ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
_NAMES = (*_NEEDED, "SLURM_NODEID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package. Rank 0 is on the first node of the step."""
    if not has(environment, *_NEEDED) or whole(environment, "SLURM_STEP_NUM_TASKS") == 1:
        return None
    if has(environment, "OMPI_COMM_WORLD_RANK") or _is_inside_mpiexec(environment):
        return None  # the step is of mpirun's daemons, one on each node
    said = quote(environment, *_NAMES)
    missing = [name for name in _NAMES if not has(environment, name)]
    if missing:
        raise ConfigError(f"Slurm has started several tasks ({said}), but {missing[0]} is not set")
    rank, node = whole(environment, "SLURM_PROCID"), whole(environment, "SLURM_NODEID")
    tasks = tasks_per_node(environment["SLURM_STEP_TASKS_PER_NODE"])
    if node >= len(tasks):
        raise ConfigError(f"Slurm: {said}: there is no node {node}")
    if rank == 0 and node != 0 and not has(environment, "DMLC_PS_ROOT_URI"):
        raise ConfigError(
            f"Slurm: {said}: task 0 is not on the first node: set DMLC_PS_ROOT_URI to its node"
        )
    attempt = environment.get("SLURM_RESTART_COUNT", "0")  # after a requeue
    step = f"{environment.get('SLURM_JOB_ID', '')}.{environment['SLURM_STEP_ID']}"
    job_id = f"slurm-{step}-{attempt}"
    return numbered(
        SOURCE,
        said,
        rank,
        whole(environment, "SLURM_STEP_NUM_TASKS"),
        whole(environment, "SLURM_LOCALID") if has(environment, "SLURM_LOCALID") else None,
        tasks[node],
        first_node(environment["SLURM_STEP_NODELIST"]),
        port_for(job_id),
        job_id,
        per_host=set(tasks) == {1},
    )


def _is_inside_mpiexec(environment: Mapping[str, str]):
    """With srun --mpi=pmi2 the numbers are those of the step."""
    return (
        has(environment, "PMI_SIZE")
        and environment["PMI_SIZE"] != (environment["SLURM_STEP_NUM_TASKS"])
    )


def tasks_per_node(text: str) -> list[int]:
    """Reads "2,1(x3)": the tasks of each node, [2, 1, 1, 1].

    Raises:
        ConfigError: the text has another form.
    """
    tasks = []
    for entry in text.split(","):
        match = _TASKS.fullmatch(entry.strip())
        if match is None:
            raise ConfigError(f"SLURM_STEP_TASKS_PER_NODE is {text!r}: {entry!r} is not understood")
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def first_node(text: str) -> str:
    """The first of Slurm's compressed list: of "gpu[07-12,20]-ib,login" it is "gpu07-ib".

    Raises:
        ConfigError: the text has another form.
    """
    name = re.match(r"(?:[^\[\],]|\[[^\[\]]*\])+", text.strip())
    if name is None:
        raise ConfigError(f"SLURM_STEP_NODELIST is {text!r}, which is no list of nodes")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", name[0])
