"""Who is in the job, in the words of `tf.distribute.cluster_resolver`."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects

_resolvers = tf.distribute.cluster_resolver


def cluster_resolver(addresses: Mapping[int, str] | Sequence[str] | None = None) -> Any:
    """The resolver of this worker.

    Args:
        addresses: of all workers, in rank order. Default: they tell each other, as a collective;
            but the workers of an elastic job do not know each other before they train.

    Returns:
        A `tf.distribute.cluster_resolver.ClusterResolver` that does not change any more: what
        `TF_CONFIG` says if the job follows it; otherwise all tasks are workers, numbered by rank.
    """
    if addresses is None and runtime.config().elastic:
        addresses = {runtime.rank(): runtime.own_address()}
    elif addresses is None:
        addresses = [runtime.own_address()]
        if runtime.size() > 1:
            addresses = gather_objects("cluster", addresses[0])
    cluster, task_type, task_id = {"worker": addresses}, "worker", runtime.rank()
    given = _resolvers.TFConfigClusterResolver()
    if _follows(given):
        cluster, task_type, task_id = given.cluster_spec(), given.task_type, given.task_id
    cluster = tf.train.ClusterSpec(cluster)
    listed = task_type in cluster.jobs  # an evaluator commonly is not
    return _resolvers.SimpleClusterResolver(
        cluster,
        master=cluster.task_address(task_type, task_id) if listed else "",
        task_type=task_type,
        task_id=task_id,
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )


def _follows(given: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> Any:
    """Whether this worker's place in the job is the one that `TF_CONFIG` gives it."""
    requested = runtime.requested_config()
    if "TF_CONFIG" not in requested.sources.values():
        return False
    if requested.role == "evaluator":
        return given.task_type == "evaluator"
    tasks = given.cluster_spec().as_dict()
    chiefs, workers = len(tasks.get("chief", [])), len(tasks.get("worker", []))
    first = {"chief": 0, "worker": chiefs}.get(given.task_type)
    in_place = first is not None and first + given.task_id == runtime.rank()
    return in_place and chiefs + workers == runtime.size()
