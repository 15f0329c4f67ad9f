"""`bpslaunch env`: what a bug report should say of the machine and its settings."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence

from tf_byteps.doctor import facts
from tf_byteps.environments import find_place
from tf_byteps.errors import BytePSError

_PACKAGES = ("keras", "numpy", "ray", "pyzmq", "nvidia-nccl-cu12")
_PREFIXES = ("BYTEPS_", "DMLC_", "PS_", "TF_", "XLA_", "CUDA_", "NCCL_", "KERAS_", "HOROVOD_")
_OTHERS = ("TF_VAR_", "TF_TOKEN_", "TF_CLI_")  # of another program
_MARKS = ("SECRET", "TOKEN", "PASSWORD", "KEY")  # in names of variables whose values are hidden


def main(words: Sequence[str]) -> int:
    """Runs the command; returns its exit code.

    Args:
        words: those after "env".
    """
    argparse.ArgumentParser(
        prog="bpslaunch env",
        description="Prints what a bug report should say of this machine. Secrets are hidden.",
    ).parse_args(words)
    for name, value in described(os.environ):
        print(f"{name + ':':14} {value}")
    return 0


def described(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names and values in words.

    Args:
        environment: a mapping of variables.
    """
    found = facts.gather()
    yield "tf_byteps", str(found["tf_byteps"])
    yield "Python", f"{found['python']}, {sys.executable}"
    yield "TensorFlow", str(found["tensorflow"] or "not installed")
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if error := found.get("engine_error"):
        yield "engine", f"cannot be loaded: {error}"
    yield "system", f"{platform.platform()}, glibc {platform.libc_ver()[1] or 'unknown'}"
    yield "processors", f"{found['processors']:g} of {os.cpu_count()}"
    yield "memory", f"{found['memory_bytes'] / 1e9:.1f} GB"
    gpus = [", ".join(gpu.values()) for gpu in found["gpus"]]
    yield "GPUs", "; ".join(gpus) or "none"
    yield "NCCL", "found" if found["nccl"] else "not found"
    yield "RDMA", "; ".join(found["rdma"]) or "none"
    yield "files", f"{found['nofile_soft']}, up to {found['nofile_hard'] or 'any number'}"
    yield "memory reads", "allowed" if found["memory_transport"] else "not allowed"
    try:
        place = find_place(environment, False)
        yield "launcher", f"{place.source} ({place.said})" if place else "none"
    except BytePSError as error:
        yield "launcher", f"unclear: {error}"
    for name in sorted(environment):
        if name.startswith(_PREFIXES) and not name.startswith(_OTHERS):
            is_hidden = any(mark in name.upper() for mark in _MARKS) and not name.endswith("_FILE")
            yield name, "(hidden)" if is_hidden else environment[name]
