"""Kubernetes: the index of a pod in an Indexed Job, also as part of a JobSet.

It says neither how many pods there are nor where the first one is: DMLC_NUM_WORKER and
DMLC_PS_ROOT_URI do, and without them each pod works for itself.
"""

from collections.abc import Mapping

from tf_byteps.environments.place import Place, has, quote, whole
from tf_byteps.errors import ConfigError

SOURCE = "Kubernetes"
_NAMES = ("JOB_COMPLETION_INDEX", "DMLC_NUM_WORKER")


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package. Pod 0 hosts the scheduler if DMLC_PS_ROOT_URI is its own name."""
    if not has(environment, *_NAMES) or environment.get("DMLC_ROLE", "worker") != "worker":
        return None
    index, machines = (whole(environment, name) for name in _NAMES)
    if machines == 1:
        return None
    if index >= machines:
        raise ConfigError(
            f"Kubernetes: {quote(environment, *_NAMES)}: the job has more pods than workers; set "
            f"DMLC_NUM_WORKER to its completions"
        )
    # Who is rank 0 of several on a pod is not known here: bpslaunch has started them.
    hosts = environment.get("BYTEPS_LOCAL_SIZE", "1").strip() == "1" and index == 0
    own = environment.get("HOSTNAME", "")
    is_own_name = environment.get("DMLC_PS_ROOT_URI", "").partition(".")[0] == own
    fields = {"worker_id": index}
    if hosts and is_own_name:
        fields["colocated_scheduler"] = True
    return Place(SOURCE, quote(environment, *_NAMES, "HOSTNAME"), fields)
