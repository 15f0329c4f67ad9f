"""Whether the tables of a layer can be where they are to be, in this job."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.tables.configs import TableConfig


def in_elastic_job() -> bool:
    """Whether this process is a worker of an elastic job."""
    return runtime.is_initialized() and runtime.config().elastic


def of_worker(layer: str, tables: Iterable[TableConfig]) -> tuple[int, int]:
    """The number of workers, and this worker's rank.

    Args:
        layer: its name.
        tables: those of the layer.

    Raises:
        RuntimeError: there are several workers, and no `BytePSStrategy` is in use, or the job is
            elastic and not all tables are on servers of their own.
    """
    if not runtime.is_initialized():
        return 1, 0
    on_servers = [table.placement == "servers" for table in tables]
    where = "on the servers" if any(on_servers) else "spread over the workers"
    is_elastic = in_elastic_job()
    if is_elastic:
        _check_elastic(layer, all(on_servers))
    if (is_elastic or runtime.size() > 1) and not is_ours(tf.distribute.get_strategy()):
        job = "the job is elastic" if is_elastic else f"there are {runtime.size()} workers"
        raise RuntimeError(
            f"the layer {layer!r} has tables that are {where}, {job}, and no BytePSStrategy is "
            "in use: make the layer and its model in the strategy's scope"
        )
    return runtime.size(), runtime.rank()


def _check_elastic(layer: str, on_servers: bool) -> None:
    """Raises RuntimeError if tables of a layer would be lost with a worker."""
    if not on_servers:
        raise RuntimeError(
            f"the layer {layer!r} has tables that are spread over the workers, and the job is "
            "elastic: rows would be lost when its workers change; give each TableConfig an "
            'optimizer and placement="servers", or start the job with a fixed number of workers'
        )
    if not runtime.config().num_servers:
        raise RuntimeError(
            f"the layer {layer!r} has tables that are on the servers, and those of this elastic "
            "job are in its workers, with which rows would be lost: start servers of their own, as "
            "bpslaunch --servers 2 does"
        )
