"""Where the processes of a job run: a placement group, and the ranks that follow from it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from tf_byteps.errors import ConfigError
from tf_byteps.launch.hosts import Host
from tf_byteps.launch.plan import Plan

_logger = logging.getLogger("tf_byteps")
_PATIENCE_SECONDS = 10.0  # then the log says what is missing

# What a process needs: Ray's names of resources, and how much of each.
Resources = Mapping[str, float]


class Placement:
    """Reserved resources; use as a context manager, which gives them back.

    If a node is lost, Ray finds another place for what was reserved there, as soon as there is one.

    Args:
        worker_bundles, server_bundles: what each process needs, as Ray's resources.
        strategy: see `RayLauncher`.
        timeout: seconds until the cluster must have found room.

    Raises:
        ConfigError: it has not.
    """

    def __init__(
        self,
        worker_bundles: Sequence[Resources],
        server_bundles: Sequence[Resources],
        strategy: str,
        timeout: float,
    ) -> None:
        self._bundles = [*worker_bundles, *server_bundles]
        self._workers = len(worker_bundles)
        self._group = placement_group([dict(bundle) for bundle in self._bundles], strategy=strategy)
        try:
            self._wait(strategy, timeout)
            # Bundle number: name of a node.
            self._nodes = placement_group_table(self._group)["bundles_to_node_id"]
            self._addresses = {n["NodeID"]: n["NodeManagerAddress"] for n in ray.nodes()}
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        remove_placement_group(self._group)

    def address_of(self, role: str, number: int) -> str:
        """The IP address of the node where a process runs."""
        return self._addresses[self._nodes[self._bundle_of(role, number)]]

    def plan(self, job_id: str) -> Plan:
        """The job as a `Plan`, whose hosts are Ray's names of nodes.

        Workers of one node have ranks that follow each other.
        """
        nodes = [self._nodes[number] for number in range(len(self._bundles))]
        workers, servers = nodes[: self._workers], nodes[self._workers :]
        hosts = tuple(Host(node, workers.count(node)) for node in dict.fromkeys(workers))
        return Plan(len(workers), len(servers), hosts, tuple(servers), job_id, ())

    def options(self, role: str, number: int) -> dict[str, Any]:
        """Where the actor for a process goes, and with what, as options of Ray's."""
        bundle = self._bundle_of(role, number)
        strategy = PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=bundle
        )
        return _options({} if role == "scheduler" else self._bundles[bundle], strategy)

    def _bundle_of(self, role: str, number: int) -> int:
        """The scheduler is where worker 0 is."""
        if role == "server":
            return self._workers + number
        nodes = [self._nodes[bundle] for bundle in range(self._workers)]
        # As the plan does: node by node, in the order in which they first appear.
        by_rank = sorted(range(self._workers), key=lambda bundle: nodes.index(nodes[bundle]))
        return by_rank[number]

    def _wait(self, strategy: str, timeout: float) -> None:
        if self._group.wait(min(timeout, _PATIENCE_SECONDS)):
            return
        bundles = [_in_words(bundle) for bundle in self._bundles]
        asked = [f"{bundles.count(text)} times {text}" for text in dict.fromkeys(bundles)]
        total, free = map(_in_words, (ray.cluster_resources(), ray.available_resources()))
        what = (
            f"{' and '.join(asked)} ({strategy}); the cluster has {total}, of which {free} is free"
        )
        _logger.warning("waiting for Ray to find room for %s", what)
        if not self._group.wait(max(0.0, timeout - _PATIENCE_SECONDS)):
            raise ConfigError(
                f"Ray has found no room in {timeout:g} s for {what}: start more nodes, end other "
                f"jobs, or ask for less"
            )


def options_anywhere(bundle: Resources, strategy: str) -> dict[str, Any]:
    """Those of an actor for which nothing is reserved: it waits for a node with room.

    An autoscaler brings one.

    Args:
        bundle: what it needs, as Ray's resources.
        strategy: see `RayLauncher`.
    """
    return _options(bundle, "SPREAD" if strategy == "SPREAD" else "DEFAULT")


def options_here() -> dict[str, Any]:
    """Those of an actor on the node of this process, which needs next to nothing."""
    node = ray.get_runtime_context().get_node_id()
    return _options({}, NodeAffinitySchedulingStrategy(node, soft=False))


def _options(needs: Resources, strategy: Any) -> dict[str, Any]:
    return {
        "num_cpus": needs.get("CPU", 0),
        "num_gpus": needs.get("GPU", 0),
        "scheduling_strategy": strategy,
    }


def _in_words(resources: Resources) -> str:
    kinds = ("CPU", "GPU")
    return " and ".join(f"{resources[kind]:g} {kind}" for kind in kinds if kind in resources)
