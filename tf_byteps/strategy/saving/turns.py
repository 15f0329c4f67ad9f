"""Workers of one host take turns at a path, and tell each other what they have written there.

They share a small file for each path in a folder of the user's in the system's folder for temporary
files. Its lock is the turn: the system gives it back when a process is killed. Workers that do not
see each other's folder (on other hosts, in other containers) write as if they were alone.

The cost does not grow with the number of workers but for the time that they wait for each other.
"""

import atexit
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tf_byteps import runtime
from tf_byteps.strategy.saving import beside
from tf_byteps.types import Path


def are_needed() -> bool:
    """Whether this process shares its host with other workers of its job."""
    return runtime.is_initialized() and runtime.size() > 1 and runtime.local_size() > 1


def is_shared(path: Path) -> bool:
    """Whether other workers may write a path, on a disk on which files can be moved."""
    if not runtime.is_initialized() or runtime.size() == 1:
        return False
    text = os.fsdecode(path)
    return "://" not in text and not beside.is_beside(text)


def add_to_digest(digest: hashlib.blake2b, tensor: Any, *names: str) -> None:
    """Adds a tensor's names, type and values to a digest of `hashlib`.

    Args:
        digest: what the identity of a `Turn` is made of.
        tensor: of TensorFlow or JAX, or a NumPy array.
        *names: of the tensor.
    """
    values = np.ascontiguousarray(tensor)
    if values.dtype.kind == "O":
        values = [len(value).to_bytes(8, "little") + value for value in values.reshape(-1)]
        digest.update(b"".join(values))
    else:
        digest.update(values.reshape(-1).view(np.uint8).data)
    digest.update(repr((*names, tensor.dtype, tuple(tensor.shape))).encode())


@dataclasses.dataclass
class Turn:
    """What the workers of this host know of a path while one of them has its turn.

    Attributes:
        identity: of what is there, "" if that is not known.
        files: path -> what the system said of the file when it was there.
        keepers: the processes that need what is there.
    """

    identity: str = ""
    files: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    keepers: list[str] = dataclasses.field(default_factory=list)

    def is_there(self, identity: str) -> bool:
        """Whether a worker of this host has written this, and nobody has touched it since."""
        written = bool(identity) and identity == self.identity
        return written and all(_state(path) == was for path, was in self.files.items())

    def wrote(self, identity: str, files: Iterable[pathlib.Path]) -> None:
        """This worker has written the path's files."""
        self.identity = identity
        self.files = {str(path): _state(path) for path in files}

    def keep(self) -> None:
        """This worker needs what is there until it calls `give_up`."""
        if _me() not in self.keepers:
            self.keepers.append(_me())

    def give_up(self) -> bool:
        """Whether nobody needs any more what is there."""
        self.keepers = [each for each in self.keepers if each != _me() and _lives(each)]
        return not self.keepers


def save_once(path: Path, identity: str, write: Callable[[], Iterable[pathlib.Path]]) -> None:
    """Writes a path, unless another worker of this host has written the same.

    This worker needs the result until it gives it up, or ends.

    Args:
        path: where the result is to be.
        identity: other contents have another one; "" if that cannot be told: it is written.
        write: writes, and returns the files that appeared. It must not exchange: other workers may
            wait for this one.
    """
    if not are_needed():
        write()
        return
    with turn(path) as mine:
        if not mine.is_there(identity):
            mine.wrote(identity, write())
        mine.keep()


@contextlib.contextmanager
def turn(path: Path, reads: bool = False) -> Iterator[Turn]:
    """Waits for this worker's turn at a path.

    Args:
        path: of a file, a folder or a checkpoint.
        reads: whether it only reads: others may do so at the same time.

    Returns:
        A context manager that gives a `Turn`.
    """
    record = _record(path)
    if record is None:
        yield Turn()
        return
    descriptor = beside.locked(record, fcntl.LOCK_SH if reads else fcntl.LOCK_EX)
    try:
        known = _known(descriptor)
        yield known
        if not reads:
            _store(record, descriptor, known)
        elif _try_lock(descriptor):  # nobody else is here
            _store(record, descriptor, _known(descriptor))
    finally:
        beside.release(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _known(descriptor: int) -> Turn:
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    try:
        return Turn(**json.loads(content))
    except ValueError:  # new, or its writer was killed
        return Turn()


def _store(record: pathlib.Path, descriptor: int, known: Turn) -> None:
    if not known.keepers:
        record.unlink(missing_ok=True)
        return
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(dataclasses.asdict(known)).encode(), 0)


def _record(path: Path) -> pathlib.Path | None:
    """The file that workers share for a path, or `None` if they cannot share any."""
    folder = _folder()
    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()
    return folder and folder / f"{name}.json"


@functools.cache
def _folder() -> pathlib.Path | None:
    folder = pathlib.Path(tempfile.gettempdir()) / f"tf_byteps-saving-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.lstat()
    except OSError:
        return None
    if owner.st_uid != os.getuid() or folder.is_symlink():
        return None  # another user's
    _forget(folder)  # what processes that were killed have left
    atexit.register(_forget, folder)
    return folder


def _forget(folder: pathlib.Path) -> None:
    """Removes what only this process needs, and processes that have ended."""
    for record in folder.glob("*.json"):
        with contextlib.suppress(OSError):
            descriptor = os.open(record, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _try_lock(descriptor):
                    known = _known(descriptor)
                    known.give_up()
                    _store(record, descriptor, known)
            finally:
                beside.release(descriptor)


def _state(path: Path) -> list[int]:
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]


def _me() -> str:
    return _named(os.getpid())


def _lives(process: str) -> bool:
    return process == _named(int(process.split()[0]))


def _named(pid: int) -> str:
    """A process's number and the time of its start, as numbers are used again."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return f"{pid} {stat.rpartition(')')[2].split()[19]}"
