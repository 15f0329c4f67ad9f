"""What a host says of itself: versions, limits, processors, memory, GPUs, RDMA devices."""

from __future__ import annotations

import csv
import ctypes
import importlib.metadata
import io
import os
import pathlib
import platform
import resource
import shutil
import socket
import subprocess
import sys
import time
from typing import Any

from tf_byteps import __version__

Facts = dict[str, Any]

_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tf-nightly")
_MEASURE_SECONDS = 0.25
_ARRAY_BYTES = 32 << 20  # more than most caches hold
_PATIENCE_SECONDS = 5.0
_CGROUP = pathlib.Path("/sys/fs/cgroup")
# A "limit" of version 1 without a limit: all pages of a 64-bit address space.
_NO_LIMIT_BYTES = 1 << 60
_GPU_FIELDS = ("name", "memory.total", "driver_version")
_READ_PARENT = "import sys; from tf_byteps.doctor.facts import read_parent; read_parent(sys.argv)"


def gather() -> Facts:
    """All that this host says of itself. Takes about a second.

    Returns:
        A dict that JSON can hold: bytes and bytes per second as numbers; None: not known, or
        without a limit.

    Example:
        gather()["processors"]  # 16.0
    """
    return {
        "hostname": socket.gethostname(),
        **versions(),
        **_limits(),
        "memory_transport": reads_memory(),
        "shm_bytes": _size_of("/dev/shm"),
        "processors": usable_processors(),
        "memory_bytes": usable_memory(),
        "gpus": _gpus(),
        "nccl": _has_nccl(),
        **_rdma(),
        **_rates(),
    }


def versions() -> dict[str, str | None]:
    """The versions that all processes of a job must share. Imports nothing of TensorFlow."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "tf_byteps": __version__,
        "tensorflow": None,
    }
    for name in _TENSORFLOWS:
        try:
            found["tensorflow"] = importlib.metadata.version(name)
            break
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _limits() -> Facts:
    soft, hard = (_or_none(value) for value in resource.getrlimit(resource.RLIMIT_NOFILE))
    return {
        "nofile_soft": soft,
        "nofile_hard": hard,
        "memlock_bytes": _or_none(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        "ptrace_scope": _whole(pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")),
    }


def _or_none(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def reads_memory() -> bool:
    """Whether two processes of this host may read each other's memory, as the engine does.

    A parent may more often read its child than the other way round, and workers are neither. So a
    child really reads this process.
    """
    number = ctypes.create_string_buffer(os.urandom(16), 16)
    place = [str(os.getpid()), str(ctypes.addressof(number))]
    command = [sys.executable, "-c", _READ_PARENT, *place]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout == number.raw


class _Piece(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def read_parent(arguments: list[str]) -> None:
    """In the child: prints 16 bytes of a process at an address."""
    process, address = map(int, arguments[1:3])
    found = ctypes.create_string_buffer(16)
    local, remote = _Piece(ctypes.addressof(found), 16), _Piece(address, 16)
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    if read(process, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != 16:
        raise SystemExit(os.strerror(ctypes.get_errno()))
    sys.stdout.buffer.write(found.raw)


def usable_processors(cgroup: pathlib.Path = _CGROUP) -> float:
    """How many processors this process may use: by affinity, and by its control group's quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota, period = _words(cgroup / "cpu.max") or ["max", "100000"]
    if quota == "max":
        quota = str(_whole(cgroup / "cpu" / "cpu.cfs_quota_us") or -1)
        period = str(_whole(cgroup / "cpu" / "cpu.cfs_period_us") or 100_000)
    return min(allowed, int(quota) / int(period)) if int(quota) > 0 else allowed


def usable_memory(cgroup: pathlib.Path = _CGROUP) -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's limit."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    files = (cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes")
    limits = [limit for file in files if (limit := _whole(file)) and limit < _NO_LIMIT_BYTES]
    return min([installed, *limits])


def _whole(file: pathlib.Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0].lstrip("-").isdecimal() else None


def _words(file: pathlib.Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _size_of(folder: str) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_frsize * found.f_blocks


def _gpus() -> list[dict[str, str]]:
    """The GPUs by nvidia-smi; empty without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    rows = csv.reader(io.StringIO(done.stdout), skipinitialspace=True)
    return [dict(zip(_GPU_FIELDS, row)) for row in rows if len(row) == len(_GPU_FIELDS)]


def _has_nccl() -> bool:
    try:
        from tf_byteps.engine_options import nccl_libraries
    except ImportError:  # without the engine: `_rates` says so
        return False
    for name in nccl_libraries():
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            continue
    return False


def _rdma() -> Facts:
    from tf_byteps.rdma import report

    found = report.devices()
    ports = [
        f"{name} port {port['port']}: {port['state']}, {port['rate']}"
        for name, of_device in found.items()
        for port in of_device
    ]
    return {"rdma": ports, "rdma_missing": report.missing() if found else []}


def _rates() -> Facts:
    """How fast memory is copied, and how fast the engine sums; of one thread."""
    import numpy as np

    source = np.ones(_ARRAY_BYTES // 4, np.float32)
    to = np.zeros_like(source)
    facts: Facts = {"copy_rate": _rate(lambda: np.copyto(to, source))}
    try:
        from tf_byteps._engine import add_to
    except ImportError as error:
        return {**facts, "sum_rate": None, "engine_error": str(error)}
    return {**facts, "sum_rate": _rate(lambda: add_to(to, source)), "engine_error": ""}


def _rate(action: Any) -> float:
    """Bytes of the array per second, of the best of several times: others use this machine, too."""
    best, end = float("inf"), time.monotonic() + _MEASURE_SECONDS
    while time.monotonic() < end or best == float("inf"):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return _ARRAY_BYTES / best
