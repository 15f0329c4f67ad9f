"""PyTorch and JAX, for comparison: each in a virtual environment of its own, because the project
needs neither.

They are installed before anything is measured, see `prepare`. PyTorch takes some gigabytes, because
the package that pip finds usually has GPU libraries as dependencies, although only the CPU is used
here.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

from benchmarks import report
from benchmarks.jobs import environment
from benchmarks.sessions import ROOT, BenchmarkError, Session

_INSTALL_SECONDS = 900
_SHOWN = ("Downloading ", "Installing ", "Successfully ")  # lines of pip that begin so


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library, and the environment that it is installed into.

    Attributes:
        name: what to call it.
        packages: what pip installs.
        probe: a line of Python that fails if something is missing.
    """

    name: str
    packages: tuple[str, ...]
    probe: str

    @property
    def _venv(self):
        return ROOT / "build" / f"{self.name}-venv"

    @functools.cached_property
    def python(self):
        """The interpreter that has it; installs it if need be.

        Raises:
            BenchmarkError: it cannot be installed; says why.
        """
        python = str(self._venv / "bin" / "python")
        if not self._works(python):
            report.console.print(
                f"installing {self.name} into {self._venv.relative_to(ROOT)} (once)"
            )
            _run(sys.executable, "-m", "venv", str(self._venv))
            _run(python, "-m", "pip", "install", "--progress-bar", "off", *self.packages)
            if not self._works(python):
                raise BenchmarkError(f"{self.name} is installed, but cannot be imported")
        return python

    @functools.cached_property
    def why_missing(self):
        """Why it is not there, or "". Installs it if need be."""
        try:
            self.python  # noqa: B018
        except BenchmarkError as error:
            return f"{self.name} is not installed: {error}"
        return ""

    def _works(self, python):
        if not os.path.exists(python):
            return False
        probe = subprocess.run([python, "-c", self.probe], capture_output=True, env=environment())
        return probe.returncode == 0


TORCH = Peer(
    "torch", ("torch", "numpy"), "import torch.distributed as d; assert d.is_gloo_available()"
)
JAX = Peer(
    "jax",
    ("jax", "keras==3.15.*", "numpy"),
    "import jax, os; os.environ['KERAS_BACKEND'] = 'jax'; import keras",
)


ALL = (TORCH, JAX)


def prepare(peers=ALL):
    """Installs what is missing of the peers: processes that are measured do not wait for it."""
    for peer in peers:
        if peer.why_missing:
            report.console.print(peer.why_missing)


def gloo_session(program, workers, folder, cluster=None, port=29411):
    """Starts processes with PyTorch, as a `Session`; their program joins a Gloo process group."""
    address = cluster.addresses[0] if cluster else "127.0.0.1"
    environments = []
    for rank in range(workers):
        variables = environment(
            MASTER_ADDR=address,
            MASTER_PORT=str(port),
            RANK=str(rank),
            WORLD_SIZE=str(workers),
            GLOO_SOCKET_IFNAME="eth0" if cluster else "lo",
            PYTHONPATH=str(ROOT),
        )
        environments.append(variables)
    namespaces = cluster.namespaces[:workers] if cluster else None
    return Session(
        program, environments, pathlib.Path(folder), namespaces, TORCH.python, "torch worker"
    )


@contextlib.contextmanager
def jax_session(program, workers):
    """Processes with Keras on JAX that have joined each other, as a `Session`."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    one_thread = "--xla_cpu_multi_thread_eigen=false"  # as the other peers have
    variables = environment(KERAS_BACKEND="jax", PYTHONPATH=str(ROOT), XLA_FLAGS=one_thread)
    addresses = [
        {"coordinator": address, "workers": workers, "rank": rank} for rank in range(workers)
    ]
    with tempfile.TemporaryDirectory(prefix="byteps_bench_") as folder:
        session = Session(
            program,
            [variables] * workers,
            pathlib.Path(folder),
            python=JAX.python,
            label="jax worker",
            pauses=True,
        )
        with session:
            session.call_each("join", addresses)
            yield session


def _run(*command):
    """Runs it, and shows what pip downloads and installs."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
    # A line may not come for long, while it downloads or unpacks.
    timer = threading.Timer(_INSTALL_SECONDS, process.kill)
    timer.start()
    last = "no reason given"
    with process:
        for line in filter(str.strip, process.stdout):
            last = line.strip()
            if last.startswith(_SHOWN):
                report.console.print(last, markup=False, highlight=False)
    is_late = not timer.is_alive()
    timer.cancel()
    if is_late:
        raise BenchmarkError(f"{command[-1]}: not done in {_INSTALL_SECONDS} s")
    if process.returncode != 0:
        raise BenchmarkError(last)
