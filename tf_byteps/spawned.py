"""Children that a worker starts with `multiprocessing` are no workers.

Under "spawn" and "forkserver" a child imports the program anew. If that calls `init` where it is
imported, the child would ask for its parent's place in the job and wait.
"""

import multiprocessing
import os

from tf_byteps.errors import BytePSError

# Children inherit it. Not a setting: no BYTEPS_ in front.
_WORKER = "_TF_BYTEPS_WORKER_PROCESS"


def note_worker() -> None:
    """Notes that this process is a worker of a job."""
    os.environ[_WORKER] = str(os.getpid())


def forget_worker() -> None:
    """Undoes `note_worker`."""
    os.environ.pop(_WORKER, None)


def refuse() -> None:
    """Refuses to make a worker of a worker's child.

    Raises:
        BytePSError: this process is one.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and os.environ.get(_WORKER) == str(parent.pid):
        raise BytePSError(
            f"process {os.getpid()} was started with multiprocessing by process {parent.pid}, "
            "which is a worker of the job already, and has imported the program again: put "
            "tf_byteps.init() and all that trains below `if __name__ == '__main__':`"
        )
