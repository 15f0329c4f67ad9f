"""Leaving a job and joining the next one within the same process."""

import threading

from tf_byteps import runtime
from tf_byteps.errors import BytePSError

_lock = threading.Lock()
_suspended = None  # the Config with which the job was joined that was left


def suspend() -> None:
    """Leaves the job; variables, models and traced functions stay. All workers call it.

    Separate servers and the scheduler end with the job, as in BytePS: whoever started them starts
    them again before `resume`. Servers and a scheduler inside workers need no care.

    Raises:
        BytePSError: `tf_byteps.init()` was not called.

    Example:

    >>> tf_byteps.suspend()
    >>> tf_byteps.resume(num_workers=3, num_servers=0, global_rank=rank)
    """
    global _suspended
    with _lock:
        _suspended = runtime.requested_config()
        runtime.shutdown()


def resume(
    num_workers: int, num_servers: int, global_rank: int | None = None, context: object = None
) -> None:
    """Joins a job of another size, after `suspend`. Waits until all of its workers have come.

    Args:
        num_workers: an integer, the number of machines with workers (`DMLC_NUM_WORKER`).
        num_servers: an integer, the number of separate servers (`DMLC_NUM_SERVER`).
        global_rank: an integer, this worker's rank in the new job. Default: as at the start.
        context: accepted for compatibility and not used.

    Raises:
        BytePSError: `suspend` was not called before, or the others cannot be reached.

    Example: see `suspend`.
    """
    global _suspended
    del context
    with _lock:
        if _suspended is None:
            raise BytePSError("resume() joins a job again after suspend(), which was not called")
        rank = _suspended.rank if global_rank is None else global_rank
        runtime.init(
            _suspended.replace(
                num_worker_machines=num_workers,
                num_servers=num_servers,
                global_rank=rank,
                global_size=None if rank is None else num_workers * _suspended.local_size,
            )
        )
        _suspended = None
