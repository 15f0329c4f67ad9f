"""Slurm: the tasks of a step, as srun starts them.

A batch script itself is one process, whatever SLURM_NTASKS says: only a step's variables count.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tf_byteps.environments.place import Place, has, numbered, port_for, quote, whole
from tf_byteps.errors import ConfigError

SOURCE = "Slurm"
_NEEDED = ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
_STEP_NODES, _STEP_TASKS = "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"
_NAMES = (*_NEEDED, "SLURM_NODEID", _STEP_NODES, _STEP_TASKS)
# "gpu[07-09,20]-ib": plain text, and numbers in brackets.
_NODE = r"(?:[^\[\],\s]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_NODES = re.compile(rf"({_NODE})(?:,|$)")
_NODE_LIST = re.compile(rf"{_NODE}(?:,{_NODE})*")
_PIECE = re.compile(r"([^\[\]]+)|\[([^\]]+)\]")
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
    tasks = tasks_per_node(environment[_STEP_TASKS])
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
        expand_nodes(environment[_STEP_NODES])[0],
        port_for(job_id),
        job_id,
        per_host=set(tasks) == {1},
    )


def _is_inside_mpiexec(environment: Mapping[str, str]) -> Any:
    """With srun --mpi=pmi2 the numbers are those of the step."""
    return (
        has(environment, "PMI_SIZE")
        and environment["PMI_SIZE"] != (environment["SLURM_STEP_NUM_TASKS"])
    )


def tasks_per_node(text: str, name: str = _STEP_TASKS) -> list[int]:
    """Reads "2,1(x3)", the value of a variable: the tasks of each node, [2, 1, 1, 1].

    Raises:
        ConfigError: the text has another form.
    """
    tasks = []
    for entry in text.split(","):
        match = _TASKS.fullmatch(entry.strip())
        if match is None:
            raise ConfigError(f"{name} is {text!r}: {entry!r} is not understood")
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def expand_nodes(text: str, name: str = _STEP_NODES) -> list[str]:
    """Reads a compressed list, the value of a variable.

    >>> expand_nodes("gpu[07-08,20]-ib,login")
    ['gpu07-ib', 'gpu08-ib', 'gpu20-ib', 'login']

    Raises:
        ConfigError: the text has another form.
    """
    nodes = []
    for match in _NODES.finditer(text.strip()):
        names = [""]
        for plain, ranges in _PIECE.findall(match[1]):
            pieces = [plain] if plain else list(_numbers(ranges))
            names = [name + piece for name in names for piece in pieces]
        nodes += names
    if not _NODE_LIST.fullmatch(text.strip()):
        raise ConfigError(f"{name} is {text!r}, which is not a list of nodes")
    return nodes


def _numbers(ranges: str) -> Iterator[str]:
    """The numbers of "07-09,20", as wide as they are written."""
    for entry in ranges.split(","):
        first, _, last = entry.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}}"
