"""OpenMPI's mpirun (4 and 5), without calling MPI.

It tells each process its rank, but not where rank 0 is: on one host that is plain, else
DMLC_PS_ROOT_URI has to say it.
"""

import os
from collections.abc import Mapping

from tf_byteps.environments.place import Place, has, numbered, port_for, quote, whole
from tf_byteps.errors import ConfigError

SOURCE = "OpenMPI"
_NAMES = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
# The first that is set: of PMIx, and of OpenMPI 4.
_JOB_IDS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package."""
    if not has(environment, *_NAMES[:2]):
        return None
    rank, size = (whole(environment, name) for name in _NAMES[:2])
    local_rank = local_size = None
    if has(environment, *_NAMES):
        local_rank, local_size = (whole(environment, name) for name in _NAMES[2:])
    host = "127.0.0.1" if local_size == size else None
    if size > 1 and host is None and not has(environment, "DMLC_PS_ROOT_URI"):
        raise ConfigError(
            f"mpirun has started {size} processes ({quote(environment, *_NAMES)}) on several "
            f"hosts and does not tell them where rank 0 is: give its host with "
            f"mpirun -x DMLC_PS_ROOT_URI=HOST, and one secret with -x BYTEPS_JOB_SECRET"
        )
    number = next((environment[name] for name in _JOB_IDS if has(environment, name)), "")
    job_id = f"openmpi-{number[:48]}"
    said = quote(environment, *_NAMES)
    return numbered(
        SOURCE, said, rank, size, local_rank, local_size, host, port_for(job_id), job_id
    )


def binding_remark(environment: Mapping[str, str]) -> str:
    """What mpirun's binding costs, in a sentence, or "": by default it gives a process one core."""
    processors, all_processors = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    if "OMPI_MCA_orte_bound_at_launch" not in environment or processors > all_processors // 4:
        return ""
    return (
        f"mpirun has bound this process to {processors} of {all_processors} processors, and "
        f"TensorFlow computes with no others: mpirun --bind-to none leaves it all"
    )
