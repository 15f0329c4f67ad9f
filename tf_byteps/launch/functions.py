"""Runs a Python function as the workers of a job on this machine, also from a notebook.

The function and its results travel in files of a folder that only this user can read.
"""

import collections
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tf_byteps.errors import BytePSError
from tf_byteps.launch.hosts import guarded

_CALL = "call.bin"
_NAME_HOSTS = ("-H", "--hosts", "--hostfile", "--host-discovery-script", "--max-np")
_KEPT_LINES = 15
# bpslaunch gives its own processes 10 s.
_GRACE_SECONDS = 20.0


def run(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 1,
    servers: int = 0,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> list[Any]:
    """Calls a function in `np` worker processes of a job, which `bpslaunch` starts here.

    What the workers print appears as they print it. When one fails, all end.

    Args:
        function: what each worker calls. It may be defined in a notebook or in the program itself;
            then what it uses of there goes along by value, so that it should import what it needs,
            and `cloudpickle` must be installed.
        args: its positional arguments.
        kwargs: its keyword arguments.
        np: number of workers.
        servers: number of server processes; 0: every worker hosts a server.
        env: further environment variables of all processes.
        options: further options of `bpslaunch`, such as `["--tls"]`.

    Returns:
        What the function returned on each worker, a list in the order of ranks.

    Raises:
        BytePSError: a worker has failed; the message ends with its exception.

    Example:

    >>> def train(epochs):
    ...     import tf_byteps
    ...     tf_byteps.init()
    ...     return tf_byteps.rank(), epochs
    >>> tf_byteps.launch.run(train, args=[3], np=2)
    [(0, 3), (1, 3)]
    """
    with tempfile.TemporaryDirectory(prefix="tf_byteps_run_") as folder:
        _write(os.path.join(folder, _CALL), (function, tuple(args), dict(kwargs or {})))
        worker = [sys.executable, "-m", "tf_byteps.launch.functions", folder]
        numbers = ["-np", str(np), "--servers", str(servers)]
        if not any(option.startswith(_NAME_HOSTS) for option in options):
            numbers += ["-H", f"localhost:{np}"]  # not the nodes of an allocation of Slurm
        launcher = [sys.executable, "-m", "tf_byteps.launch", *numbers, *options, "--", *worker]
        code, last_lines = _run_launcher(launcher, {**os.environ, **(env or {})})
        results = [_read(os.path.join(folder, f"{rank}.bin")) for rank in range(np)]
    failures = [text for worked, text in filter(None, results) if not worked]
    if code != 0 or None in results:
        reason = "\n".join(failures[:1] or last_lines)
        raise BytePSError(f"the job has failed with exit code {code}:\n{reason}")
    return [value for _, value in results]


def _run_launcher(command: list[str], environment: Mapping[str, str]) -> tuple[int, Iterable[str]]:
    """Runs bpslaunch and prints what it prints; returns its exit code and last lines."""
    last_lines = collections.deque(maxlen=_KEPT_LINES)
    process = subprocess.Popen(
        guarded(command, _GRACE_SECONDS),  # its end follows when this process ends
        env=_with_path(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C comes here first, and to it once
    )
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            last_lines.append(line.rstrip("\n"))
        return process.wait(), last_lines
    except BaseException:
        process.communicate("SIGINT\n")
        raise
    finally:
        process.stdin.close()
        process.stdout.close()


def _with_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The workers find the modules that this process finds."""
    paths = [path or os.getcwd() for path in sys.path]
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _write(path: str, value: Any) -> None:
    """Writes a value, by value where it is of this program."""
    try:
        import cloudpickle as writer
    except ModuleNotFoundError:
        import pickle as writer
    try:
        data = writer.dumps(value)
    except Exception as error:
        raise BytePSError(
            f"{value!r} cannot be sent to another process ({error}); pip install cloudpickle, or "
            f"put the function into a module"
        ) from error
    with open(path, "wb") as file:
        file.write(data)


def _read(path: str) -> Any:
    """The value in a file; None if there is no file."""
    import pickle

    try:
        with open(path, "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        return None


def _work(folder: str) -> None:
    """In a worker: calls the function and writes what it returned, or why it did not."""
    rank = int(os.environ.get("BYTEPS_GLOBAL_RANK", "0"))
    path = os.path.join(folder, f"{rank}.bin")
    try:
        function, args, kwargs = _read(os.path.join(folder, _CALL))
        result = True, function(*args, **kwargs)
    except BaseException:
        _write(path, (False, f"worker {rank}: {traceback.format_exc()}"))
        raise
    _write(path, result)


if __name__ == "__main__":
    _work(sys.argv[1])
