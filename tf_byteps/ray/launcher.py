"""Starts a job on a Ray cluster, and ends it as a whole."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from tf_byteps.errors import ConfigError
from tf_byteps.launch.hosts import passed_environment
from tf_byteps.launch.plan import TOPOLOGY, ElasticPlan, Plan
from tf_byteps.ray.actors import pickled
from tf_byteps.ray.elastic import ElasticRayJob
from tf_byteps.ray.placement import Placement, Resources, options_anywhere
from tf_byteps.ray.running import RunningJob
from tf_byteps.rendezvous.secret import new_secret

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


class RayLauncher:
    """Runs a function as the workers of a job on a Ray cluster.

    Workers and servers are actors, for which Ray reserves resources in one placement group; an
    autoscaler brings the nodes for it. All nodes need tf_byteps, and workers TensorFlow. All
    processes get the `BYTEPS_*` settings of the caller's environment, and a new secret.

    With `min_workers` the job is elastic: it begins with so many, goes on when workers or nodes are
    lost, and takes in others once the cluster has room for them, up to `workers`. The function
    then trains in one that `tf_byteps.elastic.run` decorates.

    Args:
        workers: number of workers.
        servers: number of servers, which use no GPU; 0: every worker hosts one.
        cpus_per_worker: processors that Ray reserves for a worker.
        gpus_per_worker: GPUs that Ray gives to a worker, which sees no others.
        cpus_per_server: processors that Ray reserves for a server.
        strategy: how Ray places all these: "PACK" (on few nodes, if it can), "SPREAD" (on many),
            "STRICT_PACK" (on one) or "STRICT_SPREAD" (each on another).
        env: further environment variables of all processes.
        placement_timeout: seconds that the cluster has to find room for all, in an elastic job for
            the servers and the least number of workers.
        min_workers: the least number of workers of an elastic job. Default: the number is fixed.
        max_failures: of an elastic job: a worker or server that has failed so often in 10 minutes
            is not started again; 0: however often.

    Raises:
        ConfigError: an argument has a value that cannot be used.

    Example:

    >>> def train(epochs):
    ...     import tf_byteps
    ...     tf_byteps.init()
    ...     return tf_byteps.rank(), epochs
    >>> tf_byteps.ray.RayLauncher(workers=2, servers=1).run(train, args=[3])
    [(0, 3), (1, 3)]
    """

    def __init__(
        self,
        workers: int,
        servers: int = 0,
        cpus_per_worker: float = 1,
        gpus_per_worker: float = 0,
        cpus_per_server: float = 1,
        strategy: str = "PACK",
        env: Mapping[str, str] | None = None,
        placement_timeout: float = 600.0,
        min_workers: int | None = None,
        max_failures: int = 3,
    ):
        if workers < 1 or servers < 0:
            raise ConfigError(f"workers={workers}, servers={servers}: 1 and 0 are the least")
        if strategy not in _STRATEGIES:
            raise ConfigError(f"strategy={strategy!r}: must be one of {', '.join(_STRATEGIES)}")
        if min_workers is not None and not 1 <= min_workers <= workers:
            raise ConfigError(f"min_workers={min_workers}: must be from 1 to workers={workers}")
        if min_workers is not None and strategy.startswith("STRICT"):
            raise ConfigError(
                f"strategy={strategy!r}, but the workers of an elastic job come where there is "
                f"room: must be PACK or SPREAD"
            )
        for name, number in (
            ("cpus_per_worker", cpus_per_worker),
            ("gpus_per_worker", gpus_per_worker),
            ("cpus_per_server", cpus_per_server),
            ("max_failures", max_failures),
        ):
            if number < 0:
                raise ConfigError(f"{name}={number}: must not be negative")
        worker = _bundle({"CPU": cpus_per_worker, "GPU": gpus_per_worker})
        self._is_elastic, self._max_failures = min_workers is not None, max_failures
        self._worker_bundles = [worker] * (min_workers or workers)
        self._more = [options_anywhere(worker, strategy)] * (workers - (min_workers or workers))
        self._server_bundles = [_bundle({"CPU": cpus_per_server})] * servers
        self._strategy = strategy
        self._env = dict(env or {})
        self._placement_timeout = placement_timeout

    def run(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Calls a function on all workers; at the end none of the job's processes is left.

        Connects to a cluster as `ray.init()` does, unless that has been done.

        Args:
            function: what each worker calls. It travels by value if it is defined in a notebook or
                in the program itself; then it should import what it needs.
            args: its positional arguments.
            kwargs: its keyword arguments.

        Returns:
            What the function returned on each worker, a list in the order of ranks. In an elastic
            job these are the workers that were there at the end.

        Raises:
            BytePSError: a worker has raised, or a process of the job was lost; the message begins
                with the cause. `__cause__` is the worker's exception if it has raised. In an
                elastic job too few workers were left.
            ConfigError: the cluster has found no room in `placement_timeout`.

        Example:

        >>> tf_byteps.ray.RayLauncher(workers=2).run(lambda: "done")
        ['done', 'done']
        """
        call = pickled((function, tuple(args), dict(kwargs or {})))
        if not ray.is_initialized():
            ray.init()
        passed = passed_environment(os.environ, ()).items()
        variables = {n: v for n, v in passed if n[:7] == "BYTEPS_" and n not in TOPOLOGY}
        secret = {"BYTEPS_JOB_SECRET": new_secret()}
        bundles = self._worker_bundles, self._server_bundles
        with Placement(*bundles, self._strategy, self._placement_timeout) as placement:
            plan = placement.plan(secrets.token_hex(8))
            given = placement, self._env, {**variables, **self._env, **secret}
            if self._is_elastic:
                more = self._more, self._max_failures
                job = ElasticRayJob(self._elastic(plan), *given, *more)
            else:
                job = RunningJob(plan, *given)
            with job:
                return job.run(call)

    def _elastic(self, plan: Plan) -> ElasticPlan:
        least = len(self._worker_bundles)
        limits = {"BYTEPS_MIN_WORKERS": least, "BYTEPS_MAX_WORKERS": least + len(self._more)}
        return ElasticPlan(**vars(plan), limits={name: str(n) for name, n in limits.items()})


def _bundle(resources: Resources) -> Resources:
    """Without what is 0. An empty bundle is an error of Ray's."""
    needed = {name: number for name, number in resources.items() if number}
    return needed or {"CPU": 0.001}
