"""Forks the processes of tests' jobs from some that have imported what they will import.

With Keras and TensorFlow the imports take five seconds of processor time, more than many a
training of these tests. So each process of pytest has one process that does nothing but import
them: it has one thread, TensorFlow has not looked for devices, and nothing of tf_byteps has been
called. A worker is forked from it, gets its own variables, folder, output and session, and goes on
as `python -m` of its module would.

Each kind of process has a server of its own, which has imported no more than such a process does:
workers with Keras on TensorFlow, with Keras on JAX, with JAX alone, and those with none of them,
such as schedulers and summation servers.

`tests/process_kinds.py` says which processes these are. All others are started as usual: what
bpslaunch starts, other commands, processes with variables that TensorFlow or Python may read when
they start, and whatever runs outside pytest.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import fcntl
import gc
import importlib
import os
import pickle
import runpy
import select
import socket
import subprocess
import sys

from tests import process_kinds, quick_start

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FIRST_DESCRIPTOR = 100  # above all that a process of a test is given

_is_allowed = False
_servers = {}


def allow():
    """Called by pytest, which is the subreaper of its processes: a worker becomes its child."""
    global _is_allowed
    _is_allowed = True


@contextlib.contextmanager
def starting_anew():
    """Meanwhile nothing is forked: /proc shows the environment of a process as it was started."""
    global _is_allowed
    before, _is_allowed = _is_allowed, False
    try:
        yield
    finally:
        _is_allowed = before


def stop():
    """Called by pytest at its end."""
    while _servers:
        _servers.popitem()[1].stop()


def pids():
    """The servers'."""
    return [server.process.pid for server in _servers.values()]


def popen(command, env, cwd=None, stdout=None, stderr=None, start_new_session=False, pass_fds=()):
    """As `subprocess.Popen`, with no input; forks if it may."""
    kind = process_kinds.kind_of(command, env) if _is_allowed else None
    if kind is not None:
        if kind not in _servers:
            _servers[kind] = _Server(kind)
        request = _Request(
            list(command), dict(env), cwd or os.getcwd(), start_new_session, pass_fds
        )
        return _servers[kind].fork(request, stdout, stderr)
    return subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=start_new_session,
        pass_fds=pass_fds,
    )


@dataclasses.dataclass(frozen=True)
class _Request:
    """What a process is started with, besides its outputs. See `subprocess.Popen`."""

    command: list[str]
    env: dict[str, str]
    cwd: str
    start_new_session: bool
    pass_fds: tuple[int, ...]


class _Server:
    """The process that others are forked from, as pytest sees it."""

    def __init__(self, kind):
        self._channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), *kind.modules],
                cwd=_ROOT,
                # NumPy's library starts threads when it is imported.
                env={
                    **os.environ,
                    **process_kinds.ENVIRONMENT,
                    **dict(kind.variables),
                    "OPENBLAS_NUM_THREADS": "1",
                },
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def stop(self):
        self._channel.close()
        self.process.wait()

    def fork(self, request, stdout, stderr):
        """Starts a process; returns a `_Forked`."""
        message = pickle.dumps(request)
        outputs = [
            stdout.fileno(),
            stdout.fileno() if stderr == subprocess.STDOUT else stderr.fileno(),
        ]
        header = len(message).to_bytes(8, "little")
        socket.send_fds(self._channel, [header], [*outputs, *request.pass_fds])
        self._channel.sendall(message)
        answer = self._channel.recv(8, socket.MSG_WAITALL)
        assert len(answer) == 8, "the process that others are forked from has ended"
        return _Forked(int.from_bytes(answer, "little"), request.command)


class _Forked:
    """A forked process: what tests use of `subprocess.Popen`."""

    def __init__(self, pid, args):
        self.pid = pid
        self.args = args
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                ended, _, _ = select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
            if not ended:
                raise subprocess.TimeoutExpired(self.args, timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(15)

    def kill(self):
        self.send_signal(9)


def _serve(channel):
    """Forks a process for each request. Returns in those only, with what they shall do."""
    while True:
        header, descriptors, *_ = socket.recv_fds(channel, 8, _FIRST_DESCRIPTOR)
        if not header:
            os._exit(0)  # pytest has ended
        length = int.from_bytes(header, "little")
        request = pickle.loads(channel.recv(length, socket.MSG_WAITALL))
        readable, writable = os.pipe()
        # The process's parent ends at once, so that pytest becomes its parent.
        between = os.fork()
        if between == 0:
            forked = os.fork()
            if forked:
                os.write(writable, forked.to_bytes(8, "little"))
                os._exit(0)
            channel.close()
            os.close(readable)
            os.close(writable)
            return request, descriptors
        os.waitpid(between, 0)
        for descriptor in (*descriptors, writable):
            os.close(descriptor)
        channel.sendall(os.read(readable, 8))
        os.close(readable)


def _become(request, descriptors):
    """Goes on as if this process had been started by the command."""
    if request.start_new_session:
        os.setsid()
    # First out of the way: one may have the number that another one shall get.
    above = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR) for each in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(above, (1, 2, *request.pass_fds), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    sys.orig_argv = request.command
    sys.argv = request.command[2:]
    sys.path[0] = os.fspath(request.cwd)  # TensorFlow, imported later, takes only strings
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=bool(request.env.get("PYTHONUNBUFFERED")))
    # Else all workers would draw the same numbers; Python's own generator does so by itself.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    runpy.run_module(request.command[2], run_name="__main__", alter_sys=True)


def _keep(names):
    """Lets an ending process keep modules of others that it was forked with.

    To take them apart it would copy nearly all memory that it shares: a fifth of a second. Modules
    of the program, of tf_byteps and of Python end as usual, and so does TensorFlow's context.
    """
    kept = [sys.modules.pop(name) for name in names if name in sys.modules]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def _foreign_modules():
    ours = {*sys.stdlib_module_names, "__main__", "benchmarks", "tests", "tf_byteps"}
    return [
        name
        for name in sys.modules
        if name.partition(".")[0] not in ours and name != "tensorflow.python.eager.context"
    ]


def main(descriptor, modules):
    kept = []
    atexit.register(_keep, kept)  # before all others: it is the last that is called
    quick_start.leave_out_packages()
    for name in modules:
        importlib.import_module(name)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"who forks must have one thread: {threads}"
    kept.extend(_foreign_modules())
    gc.freeze()
    _become(*_serve(socket.socket(fileno=descriptor)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
