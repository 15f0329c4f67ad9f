"""Forks the workers of tests from a process that has imported Keras and its backend already.

The imports take four seconds of processor time, more than many a training of these tests. So each
process of pytest has one process that does nothing but import them: it has one thread, TensorFlow
has not looked for devices, and tf_byteps is not imported. A worker is forked from it, gets its own
variables, folder, output and session, and goes on as `python -m` of its module would.

Workers with Keras on JAX are forked from another such process, which has not imported TensorFlow.

Only the modules in `_MODULES`, which call what a test has written, are started like that. All else
is started as usual: other commands, workers with variables that TensorFlow or Python may read when
they start, and whatever runs outside pytest.
"""

import gc
import importlib.util
import os
import pickle
import re
import runpy
import socket
import subprocess
import sys
import time

from tests import quick_start

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODULES = ("tests.cluster", "tests.workers")
# Programs that import no TensorFlow shall not find it in memory.
_IMPORTS = re.compile(
    r"^ *(import|from) (tensorflow|keras|tf_byteps\.(gradients|keras|ops|strategy))\b"
    r"|^from tests import side_by_side",
    re.M,
)
# Read when Keras and JAX are imported.
_OF_BACKENDS = ("KERAS_BACKEND", "JAX_PLATFORMS", "JAX_ENABLE_X64")
# A worker may have others of these than the server: they are read later, or by tf_byteps alone.
_READ_LATER = re.compile(
    r"(BYTEPS|DMLC|TESTS|PYTEST)_|(TF_CONFIG|CUDA_VISIBLE_DEVICES|PYTHONUNBUFFERED|PWD)$"
)
# Of the helpers that start workers: read when TensorFlow is imported.
_ENVIRONMENT = {"PYTHONPATH": _ROOT, "TF_CPP_MIN_LOG_LEVEL": "2"}
_WAIT_SECONDS = 0.01

_is_allowed = False
_servers = {}


def allow():
    """Called by pytest, which is the subreaper of its processes: a worker becomes its child."""
    global _is_allowed
    _is_allowed = True


def stop():
    """Called by pytest at its end."""
    while _servers:
        _servers.popitem()[1].stop()


def pids():
    """The servers'."""
    return [server.process.pid for server in _servers.values()]


def popen(command, env, cwd=None, stdout=None, stderr=None, start_new_session=False, pass_fds=()):
    """As `subprocess.Popen`, with no input; forks if it may."""
    if _is_allowed and not pass_fds and _can_fork(command, env):
        server = _server_for(env)
        return server.fork(command, env, cwd or os.getcwd(), stdout, stderr, start_new_session)
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


def _of_backend(env):
    """The variables of Keras's backend, if the worker is told which one it has."""
    if env.get("KERAS_BACKEND") not in ("jax", "tensorflow"):
        return {}
    return {name: env[name] for name in _OF_BACKENDS if name in env}


def _server_for(env):
    of_backend = _of_backend(env) if env.get("KERAS_BACKEND") == "jax" else {}
    key = frozenset(of_backend.items())
    if key not in _servers:
        _servers[key] = _Server(of_backend)
    return _servers[key]


def _can_fork(command, env):
    if list(command[:2]) != [sys.executable, "-m"] or command[2] not in _MODULES:
        return False
    expected = {**os.environ, **_ENVIRONMENT, **_of_backend(env)}
    if _fixed(env) != _fixed(expected) or env["PYTHONPATH"] != _ROOT:
        return False
    program = command[3]
    path = program if os.path.isabs(program) else importlib.util.find_spec(program).origin
    with open(path) as file:
        return bool(_IMPORTS.search(file.read()))


def _fixed(env):
    return {name: value for name, value in env.items() if not _READ_LATER.match(name)}


class _Server:
    """The process that workers are forked from, as pytest sees it."""

    def __init__(self, of_backend):
        self._channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
                cwd=_ROOT,
                # NumPy's library starts threads when it is imported.
                env={**os.environ, **_ENVIRONMENT, **of_backend, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def stop(self):
        self._channel.close()
        self.process.wait()

    def fork(self, command, env, cwd, stdout, stderr, new_session):
        request = pickle.dumps((list(command), dict(env), cwd, new_session))
        outputs = [
            stdout.fileno(),
            stdout.fileno() if stderr == subprocess.STDOUT else stderr.fileno(),
        ]
        socket.send_fds(self._channel, [len(request).to_bytes(8, "little")], outputs)
        self._channel.sendall(request)
        answer = self._channel.recv(8, socket.MSG_WAITALL)
        assert len(answer) == 8, "the process that workers are forked from has ended"
        return _Forked(int.from_bytes(answer, "little"), command)


class _Forked:
    """A forked worker: what tests use of `subprocess.Popen`."""

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
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(_WAIT_SECONDS)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(15)

    def kill(self):
        self.send_signal(9)


def _serve(channel):
    """Forks a worker for each request. Returns in the workers only, with what they shall do."""
    while True:
        header, outputs, *_ = socket.recv_fds(channel, 8, 2)
        if not header:
            os._exit(0)  # pytest has ended
        length = int.from_bytes(header, "little")
        request = pickle.loads(channel.recv(length, socket.MSG_WAITALL))
        readable, writable = os.pipe()
        # The worker's parent ends at once, so that pytest becomes its parent.
        between = os.fork()
        if between == 0:
            worker = os.fork()
            if worker:
                os.write(writable, worker.to_bytes(8, "little"))
                os._exit(0)
            channel.close()
            os.close(readable)
            os.close(writable)
            return request, outputs
        os.waitpid(between, 0)
        for descriptor in (*outputs, writable):
            os.close(descriptor)
        channel.sendall(os.read(readable, 8))
        os.close(readable)


def _become(command, env, cwd, new_session, outputs):
    """Goes on as if this process had been started by the command."""
    if new_session:
        os.setsid()
    for descriptor, output in zip((1, 2), outputs, strict=True):
        os.dup2(output, descriptor)
        os.close(output)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.orig_argv = command
    sys.argv = command[2:]
    sys.path[0] = os.fspath(cwd)  # TensorFlow, where it is imported later, takes only strings
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=bool(env.get("PYTHONUNBUFFERED")))
    # Else all workers would draw the same numbers; Python's own generator does so by itself.
    sys.modules["numpy"].random.seed()
    runpy.run_module(command[2], run_name="__main__", alter_sys=True)


def main(descriptor):
    quick_start.leave_out_packages()
    import keras

    if keras.config.backend() == "tensorflow":
        import tensorflow  # noqa: F401

    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"who forks must have one thread: {threads}"
    gc.freeze()
    request, outputs = _serve(socket.socket(fileno=descriptor))
    _become(*request, outputs)


if __name__ == "__main__":
    main(int(sys.argv[1]))
