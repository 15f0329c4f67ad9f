"""What a worker knows of its job: ranks, sizes, configuration, lags, who was lost."""

import collections
from collections.abc import Sequence
from typing import Any

from tf_byteps import _engine
from tf_byteps.config import Config
from tf_byteps.errors import LostProcess
from tf_byteps.rendezvous.host import own_address as host_address
from tf_byteps.rendezvous.messages import Address
from tf_byteps.runtime.lifecycle import current
from tf_byteps.runtime.session import Session


def session(what: str) -> Session:
    """What identifies this worker's time in its job, between `init` and `shutdown`.

    Args:
        what: is asked for, in the error if there is none.
    """
    return current(what)


def epoch() -> int:
    """The membership epoch: a number that differs whenever other workers take part.

    Returns:
        An integer; 0 in a job of one process.
    """
    return current("epoch").epoch


def coming_change() -> str:
    """Why the workers of an elastic job are about to change, in a sentence.

    Returns:
        "" if they are not. Workers may learn it at different times.
    """
    running = current("coming_change")
    return running.member.change(running.epoch) if running.member else ""


def rank() -> int:
    """This worker's number in the job, from 0.

    Returns:
        An integer. In a `tf.function` it becomes a constant; `rank_op` does not.

    Raises:
        BytePSError: `init` was not called.

    Example:

    >>> if tf_byteps.rank() == 0:
    ...     model.save("model.keras")
    """
    return current("rank").rank


def size() -> int:
    """Number of workers in the job.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> learning_rate = 0.01 * tf_byteps.size()
    """
    return current("size").size


def local_rank() -> int:
    """This worker's number among those on the same machine, from 0.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> port = 9000 + tf_byteps.local_rank()
    """
    return current("local_rank").local_rank


def local_size() -> int:
    """Number of workers on this machine.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> threads = os.cpu_count() // tf_byteps.local_size()
    """
    return current("local_size").local_size


def cross_rank() -> int:
    """This machine's number, from 0, among those that have a worker with this `local_rank`.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> is_first_machine = tf_byteps.cross_rank() == 0
    """
    session = current("cross_rank")
    return _with_local_rank(session.worker_hosts[: session.rank], session.local_rank)


def cross_size() -> int:
    """Number of machines that have a worker with this worker's `local_rank`.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> machines = tf_byteps.cross_size()
    """
    session = current("cross_size")
    return _with_local_rank(session.worker_hosts, session.local_rank)


def _with_local_rank(worker_hosts: Sequence[str], local_rank: int) -> int:
    """How many machines have more workers than `local_rank`."""
    numbers = collections.Counter(worker_hosts).values()
    return sum(number > local_rank for number in numbers)


def is_homogeneous() -> bool:
    """Whether all machines have equally many workers.

    Returns:
        A boolean.

    Raises:
        See `rank`.

    Example:

    >>> assert tf_byteps.is_homogeneous()
    """
    return len(set(collections.Counter(current("is_homogeneous").worker_hosts).values())) == 1


def config() -> Config:
    """The `Config` in use, with what the scheduler has decided filled in."""
    return current("config").config


def requested_config() -> Config:
    """The `Config` that `init` was called with, without what the scheduler has decided."""
    return current("requested_config").requested


def server_counters() -> dict[str, Any] | None:
    """What the server in this process has received and sent.

    Returns:
        A dict of totals, with a list of dicts under "tensors"; None if this process hosts no
        server. What ends in `_bytes` are bytes.

    Raises:
        BytePSError: `init` was not called.

    Example:

    >>> tf_byteps.server_counters()["pushed_bytes"]
    1048576
    """
    server = current("server_counters").server
    return None if server is None else server.counters()


def arrival_lags() -> list[dict[str, float]]:
    """How much later than the first one of its round each worker's tensors are at the servers.

    Of sums and averages. All workers see the same; servers report every
    `Config.heartbeat_interval` seconds.

    Returns:
        A list of dicts, by rank, empty before the first report: "rank", "contributions" (parts of
        tensors), "dropped" (of them: `backup_workers`), and the lag in milliseconds: "mean_ms",
        "recent_ms" (of about the last hundred contributions) and "max_ms".

    Raises:
        BytePSError: `init` was not called.

    Example:

    >>> max(tf_byteps.arrival_lags(), key=lambda worker: worker["recent_ms"])["rank"]
    2
    """
    current("arrival_lags")
    return _engine.arrival_lags()


def lost_process() -> LostProcess | None:
    """Who has ended the job by being lost. For what catches an error of a training.

    Errors that `Model.fit`, `evaluate` and `predict` raise then have it as `byteps_lost`.

    Returns:
        A `LostProcess`, or `None` if nobody was: the job goes on, or it has failed otherwise.

    Example:

    >>> try:
    ...     model.fit(dataset)
    ... except tf.errors.UnavailableError:
    ...     print(tf_byteps.lost_process())
    LostProcess(role='worker', rank=3, address='', reason='worker 3 on host7 (10.0.0.7) ...')
    """
    lost = _engine.lost_peer()
    if lost is None:
        return None
    role, rank, address = lost
    known_rank = None if role == "scheduler" else rank
    return LostProcess(role, known_rank, address, _engine.worker_failure())


def own_address() -> str:
    """Where this worker is, as "host:port". The port is that of its server; 0 if it hosts none."""
    running = current("own_address")
    server = running.server
    return str(server.address if server else Address(host_address(running.config), 0))
