"""TF_CONFIG, TensorFlow's own description of a cluster (protocol rule 23)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tf_byteps.environments.place import Place
from tf_byteps.errors import ConfigError

SOURCE = "TF_CONFIG"
_EXAMPLE = (
    '{"cluster": {"worker": ["host0:1234", "host1:1234"]}, "task": {"type": "worker", "index": 0}}'
)
# Addresses by type of task.
Cluster = dict[str, list[str]]
_TASK_TYPES = ("chief", "worker", "ps", "evaluator", "master")


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package. A cluster of one trainer without servers is no cluster.

    The chief is rank 0 and the workers follow. The first of them listens, as the scheduler, at its
    listed port. `ps` tasks run servers; without any, every worker hosts one. The evaluator is a job
    of its own with one worker.
    """
    text = environment.get(SOURCE, "").strip()
    if not text:
        return None
    cluster, task = _parse(text)
    return place_in(cluster, task, SOURCE) if cluster else None


def place_in(cluster: Cluster, task: Mapping[str, Any], source: str) -> Place | None:
    """A task's place in a cluster.

    Args:
        cluster: a dict of lists of addresses, by type of task.
        task: a dict with "type" and "index".
        source: the variable that says it.

    Returns:
        A `Place`, or None.

    Raises:
        ConfigError: the cluster has no such task, or an address has another form.
    """
    cluster = {name: _addresses(name, tasks, source) for name, tasks in cluster.items()}
    if "master" in cluster:  # what the chief was called before
        cluster["chief"] = cluster.pop("master") + cluster.get("chief", [])
    task_type, index = _check_task(cluster, task, source)
    if task_type == "evaluator":
        return Place(source, "an evaluator", {"role": "evaluator"})
    trainers = cluster.get("chief", []) + cluster.get("worker", [])
    servers = cluster.get("ps", [])
    if not trainers:
        raise ConfigError(f"{source} names no chief and no worker; it should look like {_EXAMPLE}")
    if len(trainers) == 1 and not servers:
        return Place(source, "the only worker", {"role": "worker"})
    scheduler_host, scheduler_port = _split(trainers[0], source)
    fields = {
        "scheduler_host": scheduler_host,
        "scheduler_port": scheduler_port,
        "num_worker_machines": len(trainers),
        "num_servers": len(servers),
        "node_host": _split(cluster[task_type][index], source)[0],
        "job_id": _job_id(trainers, servers),
        "one_machine": len({_split(address, source)[0] for address in trainers + servers}) == 1,
    }
    said = f"task {task_type} {index}"
    if task_type == "ps":
        port = _split(servers[index], source)[1]
        return Place(
            source, said, {**fields, "role": "server", "server_id": index, "server_port": port}
        )
    rank = index + (len(cluster.get("chief", [])) if task_type == "worker" else 0)
    fields |= {
        "role": "worker",
        "worker_id": rank,
        "global_rank": rank,
        "global_size": len(trainers),
        "colocated_scheduler": rank == 0,
    }
    return Place(source, said, fields, rank, len(trainers))


def _parse(text: str) -> tuple[Cluster, dict[str, Any]]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"TF_CONFIG is not JSON ({error}); it should look like {_EXAMPLE}, but is {text!r}"
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(f"TF_CONFIG must be a JSON object like {_EXAMPLE}, but is {text!r}")
    if "sparseCluster" in value:
        raise ConfigError(
            "TF_CONFIG has a sparseCluster, which does not say how many workers there are: turn "
            "off enableDynamicWorker in the TFJob"
        )
    cluster = value.get("cluster") or {}
    task = value.get("task") or {}
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise ConfigError(f'"cluster" and "task" of TF_CONFIG must be objects, but it is {text!r}')
    return cluster, task


def _addresses(name: str, tasks: Any, source: str) -> list[str]:
    # TensorFlow also allows sparse clusters, {"worker": {"1": "host:port"}}; they do not say how
    # many workers there are.
    if isinstance(tasks, list) and all(isinstance(address, str) for address in tasks):
        return tasks
    raise ConfigError(
        f'{source}: cluster["{name}"] must list all addresses, ["host:port", ...], not {tasks!r}'
    )


def _check_task(cluster: Cluster, task: Mapping[str, Any], source: str) -> tuple[str, int]:
    task_type, index = task.get("type"), task.get("index", 0)
    if task_type not in _TASK_TYPES:
        raise ConfigError(
            f'{source}: task["type"] is {task_type!r}, but must be one of {", ".join(_TASK_TYPES)}'
        )
    task_type = "chief" if task_type == "master" else task_type
    if isinstance(index, str) and index.isdecimal():  # some operators write it as text
        index = int(index)
    if task_type == "evaluator":  # commonly not listed in the cluster
        return task_type, 0
    listed = len(cluster.get(task_type, []))
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < listed:
        raise ConfigError(
            f'{source}: task["index"] is {index!r}, but cluster["{task_type}"] lists {listed} '
            f"address(es), numbered from 0"
        )
    if len(cluster.get("chief", [])) > 1:
        raise ConfigError(
            f'{source}: there can be one chief, but cluster["chief"] is {cluster["chief"]}'
        )
    return task_type, index


def _split(address: str, source: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f'{source}: the address {address!r} is not of the form "host:port"')
    return host, int(port)


def _job_id(trainers: list[str], servers: list[str]) -> str:
    """The same on all tasks of one cluster, so that a process of another cluster is recognized."""
    text = json.dumps([trainers, servers])
    return "tf-config-" + hashlib.sha256(text.encode()).hexdigest()[:16]
