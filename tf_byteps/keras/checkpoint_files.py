"""The files of `TrainingCheckpoint`: one for each checkpoint, whole or not there.

A file is NumPy's (`.npz`). It has an entry `head`, which is JSON, one for what is each worker's
own, and one for each variable: its bytes.
"""

import dataclasses
import glob
import io
import json
import os
import re
import zipfile
from typing import Any

import ml_dtypes
import numpy as np

from tf_byteps.files import whole_file

_HEAD = "head"
_NAME = re.compile(r"step-(\d+)\.npz")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A training at one of its steps.

    Attributes:
        facts: what JSON can write.
        variables: a list of pairs of a path and a value, an array.
        own: for each worker a list of its own states, as bytes.
    """

    facts: dict[str, Any]
    variables: list[tuple[str, np.ndarray]]
    own: list[list[bytes]]


def steps(directory: str) -> list[int]:
    """The steps of a directory's checkpoints, the newest first."""
    if not os.path.isdir(directory):
        return []
    names = [_NAME.fullmatch(name) for name in os.listdir(directory)]
    return sorted((int(name[1]) for name in names if name), reverse=True)


def path_of(directory: str, step: int) -> str:
    """The file of a step's checkpoint."""
    return os.path.join(directory, f"step-{step:08d}.npz")


def write(directory: str, step: int, checkpoint: Checkpoint, keep: int) -> None:
    """Writes a checkpoint, then removes all but the newest.

    Args:
        directory: it is made if it is not there.
        step: a number of steps.
        checkpoint: its content.
        keep: how many stay.

    Raises:
        OSError: it cannot be written. Those before are still there.
    """
    specs = [[path, str(value.dtype), list(value.shape)] for path, value in checkpoint.variables]
    lengths = [[len(state) for state in states] for states in checkpoint.own]
    head = json.dumps({"facts": checkpoint.facts, "variables": specs, "own": lengths})
    arrays = {_HEAD: np.array(head), "own": _bytes(b"".join(map(b"".join, checkpoint.own)))}
    for number, (_, value) in enumerate(checkpoint.variables):
        arrays[str(number)] = value.reshape(-1).view(np.uint8)
    path = path_of(directory, step)
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
        file.flush()
        os.fsync(file.fileno())  # else a host that stops may leave the new name without content
    for old in steps(directory)[keep:]:
        os.remove(path_of(directory, old))


def remove_unfinished(directory: str) -> None:
    """Removes what a process that was killed had begun to write."""
    for path in glob.glob(os.path.join(glob.escape(directory), "step-*.npz.*.part")):
        os.remove(path)


def read(directory: str, step: int) -> Checkpoint:
    """Reads a checkpoint.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    try:
        with np.load(path_of(directory, step), allow_pickle=False) as file:
            head = json.loads(str(file[_HEAD]))
            variables = [
                (path, np.frombuffer(file[str(number)].tobytes(), _dtype(name)).reshape(shape))
                for number, (path, name, shape) in enumerate(head["variables"])
            ]
            own = _cut(file["own"].tobytes(), head["own"])
    except (KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"not a checkpoint: {error}") from error
    return Checkpoint(head["facts"], variables, own)


def _bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def _dtype(name: str) -> Any:
    """Also those that NumPy does not know by name, as bfloat16."""
    return getattr(ml_dtypes, name, None) or np.dtype(name)


def _cut(joined: bytes, lengths: list[list[int]]) -> list[list[bytes]]:
    stream = io.BytesIO(joined)
    return [[stream.read(length) for length in worker] for worker in lengths]
