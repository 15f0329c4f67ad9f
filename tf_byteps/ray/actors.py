"""The processes of a job as Ray's actors.

None imports TensorFlow before the user's function does.
"""

import dataclasses
import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ray import cloudpickle

from tf_byteps import logs
from tf_byteps.config import Config
from tf_byteps.errors import BytePSError
from tf_byteps.launch.guard import die_with
from tf_byteps.launch.plan import TOPOLOGY
from tf_byteps.scheduler import schedule
from tf_byteps.server import serve


@dataclasses.dataclass(frozen=True)
class Returned:
    """A worker's function has returned.

    Attributes:
        value: what it returned, pickled.
    """

    value: bytes


@dataclasses.dataclass(frozen=True)
class Raised:
    """A worker's function has raised.

    Attributes:
        text: the traceback.
        error: the exception, pickled; None if that cannot be done.
        may_follow: whether it may only follow from the end of another process.
    """

    text: str
    error: bytes | None
    may_follow: bool


class Scheduler:
    """The scheduler, in a thread beside the one that answers the launcher."""

    def __init__(self, variables: Any) -> None:
        _enter(variables)
        self._reports = []
        self._changed = threading.Condition()

    def run(self) -> Any:
        """Runs it until the job is over; returns "" or who was lost."""
        try:
            return _run(schedule, self._report)
        finally:
            self._report("over")

    def port(self) -> Any:
        """Its port, as soon as it listens; None: it does not."""
        with self._changed:
            self._changed.wait_for(lambda: self._reports)
            kind, _, number = self._reports[0].partition(" ")
            return int(number) if kind == "port" else None

    def reports(self) -> list[Any]:
        """What it has reported so far: see `tf_byteps.scheduler.schedule`."""
        with self._changed:
            return list(self._reports)

    def _report(self, line: str) -> None:
        with self._changed:
            self._reports.append(line)
            self._changed.notify_all()


class Server:
    """A server."""

    def __init__(self, variables: Any) -> None:
        _enter(variables)

    def run(self) -> Any:
        """Runs it until the job is over; returns "" or who was lost."""
        return _run(serve)


class Worker:
    """A worker."""

    def __init__(self, variables: Any) -> None:
        _enter(variables)

    def run(self, call: Callable[..., Any]) -> Any:
        """Calls a function, and leaves the job.

        Args:
            call: the function, its positional and its keyword arguments, pickled. They are read
                here, as reading them may import what looks at the variables.

        Returns:
            A `Returned` or a `Raised`.
        """
        try:
            function, args, kwargs = cloudpickle.loads(call)
            value = cloudpickle.dumps(function(*args, **kwargs))
            from tf_byteps import runtime

            runtime.shutdown()
            return Returned(value)
        except BaseException as error:  # SystemExit, too: it would end the actor without a word
            return _raised(error)


def _enter(variables: Any) -> None:
    """Makes this process what the variables say."""
    # The raylet, which has started this process. If the node is lost, so is the process; Ray ends
    # those that have threads of their own late or never.
    die_with(os.getppid())
    for name in TOPOLOGY:
        os.environ.pop(name, None)
    os.environ.update(variables)
    logs.print_to_standard_error()


def _run(work: Any, *args: Any) -> Any:
    config = Config.from_environment()
    logs.configure(config)
    try:
        return work(config, *args)
    except BytePSError as error:
        return str(error)


def _raised(error: Any) -> Any:
    try:
        pickled = cloudpickle.dumps(error)
        cloudpickle.loads(pickled)  # not all that can be written can be read
    except Exception:
        pickled = None
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    return Raised(text, pickled, _may_follow(error))


def _may_follow(error: Any) -> bool:
    """Errors of the engine, of tf_byteps and of TensorFlow's operations tell of lost processes."""
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(modules & {"tf_byteps", "tensorflow"})
