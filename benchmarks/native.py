"""The bare programs of benchmarks/native, which the engine is compared with."""

import functools
import os
import subprocess
import sys

from benchmarks.sessions import ROOT, BenchmarkError

_BUILD_SECONDS = 600
_RUN_SECONDS = 120


@functools.cache
def _built():
    """Builds them; returns the folder that has them."""
    command = [
        "bazel",
        f"--output_user_root={ROOT}/build/bazel",
        "--max_idle_secs=120",
        "build",
        "//benchmarks/native:all",
    ]
    environment = {**os.environ, "PYTHON_BIN_PATH": sys.executable}
    try:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
        )
    except FileNotFoundError:
        raise BenchmarkError("bazel is not installed: apt-get install bazel-bootstrap") from None
    if result.returncode != 0:
        raise BenchmarkError(f"building //benchmarks/native failed:\n{result.stderr[-2000:]}")
    return ROOT / "build" / "bazel-bin" / "benchmarks" / "native"


def run(program, *arguments):
    """Runs a program of benchmarks/native; returns what it prints."""
    return run_with_log(program, *arguments)[0]


def run_with_log(program, *arguments, seconds=_RUN_SECONDS):
    """Runs it for so many seconds at most; returns what it prints, and what it logs."""
    command = [str(_built() / program), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if result.returncode != 0:
        raise BenchmarkError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout, result.stderr
