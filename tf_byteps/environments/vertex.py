"""Vertex AI: CLUSTER_SPEC, which custom containers get also where TF_CONFIG is missing."""

import json
from collections.abc import Mapping

from tf_byteps.environments import tf_config
from tf_byteps.environments.place import Place
from tf_byteps.errors import ConfigError

SOURCE = "CLUSTER_SPEC"
_TASK_TYPES = {
    "workerpool0": "chief",
    "workerpool1": "worker",
    "workerpool2": "ps",
    "workerpool3": "evaluator",
}


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package. The pools are what they are in Vertex AI's TF_CONFIG."""
    text = environment.get(SOURCE, "").strip()
    if not text:
        return None
    try:
        value = json.loads(text)
        task = dict(value["task"])
        cluster = {_TASK_TYPES[pool]: tasks for pool, tasks in value["cluster"].items()}
        task["type"] = _TASK_TYPES[task["type"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f'CLUSTER_SPEC should look like {{"cluster": {{"workerpool0": ["host:2222"]}}, "task": '
            f'{{"type": "workerpool0", "index": 0}}}}, but is {text!r}'
        ) from None
    return tf_config.place_in(cluster, task, SOURCE)
