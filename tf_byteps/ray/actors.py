"""The processes of a job as Ray's actors.

An actor gets the job's variables with `run`, so that Ray can start its process before the scheduler
has a port. None imports TensorFlow before the user's function does, and each only what it needs: on
one host many start at a time.
"""

import dataclasses
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import ray
import ray.cloudpickle

from tf_byteps import logs
from tf_byteps.errors import BytePSError, Dismissed
from tf_byteps.launch.guard import die_with
from tf_byteps.launch.plan import TOPOLOGY


@dataclasses.dataclass(frozen=True)
class Returned:
    """A worker's function has returned.

    Attributes:
        value: what it returned, pickled.
        rank: the worker's rank at the end; None if it was in no job then.
    """

    value: bytes
    rank: int | None


@dataclasses.dataclass(frozen=True)
class Raised:
    """A worker's function has raised.

    Attributes:
        text: the traceback.
        error: the exception, pickled; None if that cannot be done.
        may_follow: whether it may only follow from the end of another process.
        is_farewell: whether an elastic job goes on, or has ended, without this worker.
    """

    text: str
    error: bytes | None
    may_follow: bool
    is_farewell: bool


class Process:
    """What all have in common."""

    def __init__(self) -> None:
        # The raylet, which has started this process. If the node is lost, so is the process; Ray
        # ends those that have threads of their own late or never.
        die_with(os.getppid())
        logs.print_to_standard_error()

    def where(self) -> str:
        """The IP address of its node, as soon as it runs."""
        return own_address()


class Scheduler(Process):
    """The scheduler, in a thread beside the one that answers the launcher."""

    def __init__(self) -> None:
        super().__init__()
        self._reports: list[str] = []
        self._changed = threading.Condition()
        self._orders, self._orders_out = os.pipe2(os.O_CLOEXEC)

    def run(self, variables: Mapping[str, str]) -> str:
        """Runs it until the job is over; returns "" or who was lost."""
        _enter(variables)
        from tf_byteps.scheduler import schedule

        try:
            return _run(schedule, self._report, self._orders)
        finally:
            self._report("over")

    def order(self, line: str) -> None:
        """Tells the scheduler of an elastic job something: see `ElasticScheduler`."""
        os.write(self._orders_out, f"{line}\n".encode())

    def port(self) -> int | None:
        """Its port, as soon as it listens; None: it does not."""
        with self._changed:
            self._changed.wait_for(lambda: self._reports)
            kind, _, number = self._reports[0].partition(" ")
            return int(number) if kind == "port" else None

    def reports(self) -> list[str]:
        """What it has reported so far: see `tf_byteps.scheduler.schedule`."""
        with self._changed:
            return list(self._reports)

    def _report(self, line: str) -> None:
        with self._changed:
            self._reports.append(line)
            self._changed.notify_all()


class Server(Process):
    """A server."""

    def run(self, variables: Mapping[str, str]) -> str:
        """Runs it until the job is over; returns "" or who was lost."""
        _enter(variables)
        from tf_byteps.server import serve

        return _run(serve)


class Worker(Process):
    """A worker."""

    def run(self, variables: Mapping[str, str], call: bytes) -> Returned | Raised:
        """Calls a function, and leaves the job.

        Args:
            variables: the job's.
            call: the function, its positional and its keyword arguments, pickled. They are read
                here, as reading them may import what looks at the variables.

        Returns:
            A `Returned` or a `Raised`.
        """
        _enter(variables)
        try:
            value = pickled(_called(*unpickled(call)))
            from tf_byteps import runtime

            rank = runtime.rank() if runtime.is_initialized() else None
            runtime.shutdown()
            return Returned(value, rank)
        except BaseException as error:  # SystemExit, too: it would end the actor without a word
            return _raised(error)


def _called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What the function returns; None where it ends well by `sys.exit`, as a program would."""
    try:
        return function(*args, **kwargs)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        return None


def pickled(value: Any) -> bytes:
    """A value as bytes, a function of a notebook or of the program itself with its code."""
    return ray.cloudpickle.dumps(value)  # pyright: ignore[reportPrivateImportUsage]


def unpickled(data: bytes) -> Any:
    """What `pickled` was given."""
    return ray.cloudpickle.loads(data)


def own_address() -> str:
    """The IP address of this process's node, as Ray's other nodes know it."""
    own = ray.get_runtime_context().get_node_id()
    return next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == own)


def _enter(variables: Mapping[str, str]) -> None:
    """Makes this process what the variables say."""
    for name in TOPOLOGY:
        os.environ.pop(name, None)
    os.environ.update(variables, DMLC_NODE_HOST=own_address())


def _run(work: Callable[..., str], *args: Any) -> str:
    from tf_byteps.config import Config

    config = Config.from_environment()
    logs.configure(config)
    try:
        return work(config, *args)
    except BytePSError as error:
        return str(error)


def _raised(error: BaseException) -> Raised:
    try:
        data = pickled(error)
        unpickled(data)  # not all that can be written can be read
    except Exception:
        data = None
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    return Raised(text, data, _may_follow(error), isinstance(error, Dismissed))


def _may_follow(error: BaseException) -> bool:
    """Errors of the engine, of tf_byteps and of TensorFlow's operations tell of lost processes."""
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(modules & {"tf_byteps", "tensorflow"})
