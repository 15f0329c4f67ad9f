"""Errors of start-up and configuration, of exchanges without TensorFlow, and who was lost.

What goes wrong inside an exchange is otherwise another layer's: `tf.errors.OpError` from the
TensorFlow operations, `tf_byteps._engine.EngineError` from the engine's own Python module.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class LostProcess:
    """A process whose loss has ended the job.

    Attributes:
        role: "worker", "server" or "scheduler".
        rank: the worker's or server's; `None` for the scheduler.
        address: where the server or scheduler listened, such as "10.0.0.2:4711"; "" for a worker.
        reason: what has happened, in a sentence that names it and its host.
    """

    role: str
    rank: int | None
    address: str
    reason: str


class BytePSError(RuntimeError):
    """tf_byteps is wrongly configured or used, or the processes of a job did not come together."""


class ConfigError(BytePSError, ValueError):
    """A setting has a value that cannot be used, or settings contradict each other."""


class ExchangeError(BytePSError):
    """An exchange has failed: a process is lost, or the workers disagree about a tensor.

    Of JAX's arrays and between steps; TensorFlow's operations raise `tf.errors.OpError`.

    Args:
        sentence: what has happened.
        code: the engine's, such as "UNAVAILABLE" or "FAILED_PRECONDITION".

    Attributes:
        code: see above.
    """

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.code = code


class RendezvousError(BytePSError):
    """The processes of a job did not find each other, or one of them was refused."""


class StartInterruptedError(RendezvousError):
    """One of a job's processes was lost while it began; the others may come together again."""


class Dismissed(SystemExit):
    """An elastic job goes on, or has ended, without this process: the interpreter ends with code 0.

    Attributes:
        reason: why, in a sentence.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason


def on_all_workers(error: Exception) -> Exception:
    """Marks an error that all workers raise at the same place: nobody must be told of it.

    Args:
        error: what is to be raised.

    Returns:
        The same object.
    """
    setattr(error, "byteps_is_on_all_workers", True)  # noqa: B010  (no attribute of its class)
    return error


def is_on_all_workers(error: BaseException) -> bool:
    """Whether `on_all_workers` has marked an error."""
    return getattr(error, "byteps_is_on_all_workers", False)
