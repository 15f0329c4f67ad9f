"""Kubeflow's TrainJob: PET_ variables, meant for a torchrun in each pod, or for the program itself.

With a torchrun, its processes have RANK and WORLD_SIZE besides.
"""

from collections.abc import Mapping

from tf_byteps.environments.place import Place, has, numbered, quote, whole
from tf_byteps.errors import ConfigError

SOURCE = "TrainJob"
_NEEDED = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_NAMES = (*_NEEDED, "PET_NPROC_PER_NODE")


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package. Node 0 is rank 0; the scheduler has the port after PyTorch's own store."""
    if not has(environment, "PET_NNODES", "PET_NODE_RANK"):
        return None
    said = quote(environment, *_NAMES)
    least, _, most = environment["PET_NNODES"].strip().partition(":")
    if (least, most or least) == ("1", "1"):
        return None
    missing = [name for name in _NEEDED if not has(environment, name)]
    if missing or not least.isdecimal() or most not in ("", least):
        reason = f"{missing[0]} is not set" if missing else "PET_NNODES must be one number"
        raise ConfigError(f"TrainJob: {said}: {reason}")
    processes = environment.get("PET_NPROC_PER_NODE", "1").strip()
    if processes.isdecimal() and processes != "1" and not has(environment, "RANK", "WORLD_SIZE"):
        raise ConfigError(
            f"TrainJob: {said}: {processes} processes belong on each node, but nothing has started "
            f"them: set numProcPerNode to 1, or let torchrun start the program"
        )
    return numbered(
        SOURCE,
        said,
        whole(environment, "PET_NODE_RANK"),
        int(least),
        0,
        1,
        environment["PET_MASTER_ADDR"].strip(),
        whole(environment, "PET_MASTER_PORT") + 1,
        "trainjob",
        per_host=True,
    )
