"""PMI: mpiexec of MPICH and Intel MPI, and srun --mpi=pmi2. Without calling MPI.

It tells each process its rank, but not where rank 0 is: on one host that is plain, and Slurm says
it; else DMLC_PS_ROOT_URI has to.
"""

import os
import re
from collections.abc import Mapping

from tf_byteps.environments import slurm
from tf_byteps.environments.place import Place, has, numbered, port_for, quote, whole
from tf_byteps.errors import ConfigError

SOURCE = "PMI"
_NAMES = ("PMI_RANK", "PMI_SIZE")
_LOCAL_NAMES = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")
# What mpiexec starts on each host; all of a job's processes there come from it.
_PROXY = "hydra_pmi_proxy"


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package."""
    if not has(environment, *_NAMES):
        return None
    rank, size = (whole(environment, name) for name in _NAMES)
    local_rank = local_size = None
    if has(environment, *_LOCAL_NAMES):
        local_rank, local_size = (whole(environment, name) for name in _LOCAL_NAMES)
    said = quote(environment, *_NAMES, *_LOCAL_NAMES)
    if slurm.read(environment) is not None:  # it says all of this, and where rank 0 is
        return numbered(SOURCE, said, rank, size, local_rank, local_size)
    host = "127.0.0.1" if local_size == size else None
    if size > 1 and host is None and not has(environment, "DMLC_PS_ROOT_URI"):
        raise ConfigError(
            f"mpiexec has started {size} processes ({said}) and does not tell them where rank 0 "
            f"is: give its host with mpiexec -genv DMLC_PS_ROOT_URI HOST, and one secret with "
            f"-genv BYTEPS_JOB_SECRET"
        )
    job_id = f"pmi-{environment.get('PMI_JOBID') or (_proxy() if host else '')}"[:52]
    return numbered(
        SOURCE, said, rank, size, local_rank, local_size, host, port_for(job_id), job_id
    )


def _proxy() -> str:
    """The number of the proxy's process, which tells jobs of one host apart; "" if there is none.

    MPICH's mpiexec gives a job no name.
    """
    number = os.getpid()
    while number > 1:
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
                described = re.match(r"\d+ \((.*)\) \S (\d+) ", file.read(), re.DOTALL)
        except OSError:
            return ""
        if described is None:
            return ""
        if described[1] == _PROXY:
            return str(number)
        number = int(described[2])
    return ""
