"""Where a process stands in its job, as the variables of its launcher say it.

Each file here reads the variables of one launcher: `read(environment)` returns a `Place`, or None
if the process does not come from it or is the only one. It raises `ConfigError` where the variables
tell of several processes that cannot be joined: they would each train a model of their own.
"""

from collections.abc import Mapping

from tf_byteps.environments import (
    kubernetes,
    openmpi,
    pmi,
    sagemaker,
    slurm,
    tf_config,
    torchrun,
    trainjob,
    vertex,
)
from tf_byteps.environments.place import Place
from tf_byteps.errors import ConfigError

# Those that number processes come before those that may have started only their launchers.
READERS = (tf_config, vertex, torchrun, openmpi, pmi, slurm, sagemaker, trainjob, kubernetes)
# What completes a description by DMLC_ and BYTEPS_ variables, or has to agree with it.
_COMPLETING = (tf_config, kubernetes)
SOURCES = tuple(reader.SOURCE for reader in READERS)


def find_place(environment: Mapping[str, str], is_described: bool = False) -> Place | None:
    """Asks all readers.

    Args:
        environment: a mapping of variables.
        is_described: whether DMLC_ and BYTEPS_ variables say what this process is; then launchers
            are not asked.

    Returns:
        A `Place`, or None.

    Raises:
        ConfigError: variables are malformed, tell of processes that cannot be joined, or
            contradict each other.
    """
    readers = _COMPLETING if is_described else READERS
    places = [place for reader in readers if (place := reader.read(environment)) is not None]
    if not places:
        return None
    found = places[0]
    for other in places[1:]:
        if not found.agrees_with(other):
            raise ConfigError(
                f"{found.source} says that this process is rank {found.rank} of {found.size} "
                f"({found.said}), but {other.source} says that it is rank {other.rank} of "
                f"{other.size} ({other.said}): unset the variables of one of them"
            )
        found = found.completed_by(other)
    return found
