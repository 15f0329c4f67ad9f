"""SageMaker's script mode: one process on each host."""

import json
from collections.abc import Mapping

from tf_byteps.environments.place import Place, has, numbered, port_for, quote
from tf_byteps.errors import ConfigError

SOURCE = "SageMaker"
_NAMES = ("SM_HOSTS", "SM_CURRENT_HOST")


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package. The first host is rank 0."""
    if not has(environment, *_NAMES):
        return None
    said = quote(environment, *_NAMES)
    try:
        hosts = json.loads(environment["SM_HOSTS"])
        rank = hosts.index(environment["SM_CURRENT_HOST"])
    except (ValueError, AttributeError):
        raise ConfigError(
            f"SageMaker: {said}: SM_HOSTS must be a JSON list with SM_CURRENT_HOST in it"
        ) from None
    job_id = f"sagemaker-{environment.get('TRAINING_JOB_NAME', '')[:48]}"
    place = (hosts[0], port_for(job_id), job_id)
    return numbered(SOURCE, said, rank, len(hosts), 0, 1, *place, per_host=True)
