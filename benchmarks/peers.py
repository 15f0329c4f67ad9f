"""PyTorch, for comparison: in a virtual environment of its own, because the project needs none.

It is installed on first use, with `pip install torch`: some gigabytes, because the package that pip
finds usually has GPU libraries as dependencies, although only the CPU is used here.
"""

import functools
import os
import pathlib
import subprocess
import sys

from benchmarks import report
from benchmarks.jobs import environment
from benchmarks.sessions import ROOT, BenchmarkError, Session

_VENV = ROOT / "build" / "peers-venv"
_PYTHON = _VENV / "bin" / "python"
_INSTALL_SECONDS = 900
_PROBE = "import torch.distributed as d; assert d.is_gloo_available()"


@functools.cache
def torch_python():
    """The interpreter that has PyTorch; installs it if need be.

    Raises:
        BenchmarkError: it cannot be installed; says why.
    """
    if not _works():
        report.console.print(f"installing torch into {_VENV.relative_to(ROOT)} (once)")
        _run(sys.executable, "-m", "venv", str(_VENV))
        _run(str(_PYTHON), "-m", "pip", "-q", "install", "torch", "numpy")
        if not _works():
            raise BenchmarkError("torch is installed, but cannot be imported")
    return str(_PYTHON)


@functools.cache
def why_no_torch():
    """Why PyTorch is not there, or "". Installs it if need be."""
    try:
        torch_python()
    except BenchmarkError as error:
        return f"torch is not installed: {error}"
    return ""


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
        program, environments, pathlib.Path(folder), namespaces, torch_python(), "torch worker"
    )


def _works():
    if not os.path.exists(_PYTHON):
        return False
    return subprocess.run([_PYTHON, "-c", _PROBE], capture_output=True).returncode == 0


def _run(*command):
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{command[-1]}: not done in {_INSTALL_SECONDS} s") from None
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["no reason given"]
        raise BenchmarkError(lines[-1])
