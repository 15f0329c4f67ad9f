"""Files that appear at their place only when they are whole."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

_PREFIX = ".saving-"
_LOCK = "lock"


@contextlib.contextmanager
def folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new folder next to what is to be written, for `move`. It is removed at the end.

    What a process that was killed has left there is removed, too.

    Args:
        target: where the result is to be, a file or a folder.

    Returns:
        A context manager that gives the path of an empty folder on the same disk.

    Raises:
        OSError: the folder cannot be made.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target.parent)
    own, lock = _make(target.parent)
    try:
        content = own / "content"
        content.mkdir()
        yield content
    finally:
        shutil.rmtree(own, ignore_errors=True)
        release(lock)


def move(
    source: pathlib.Path,
    target: pathlib.Path,
    order: Callable[[pathlib.Path], int] = lambda path: 0,
) -> list[pathlib.Path]:
    """Moves what was written in a `folder` to its place, replacing what is there.

    Each file appears whole. Of several hosts with one disk only one moves at a time, so that in
    the end all files are one worker's.

    Args:
        source: the folder.
        target: what `folder` was given.
        order: a function of a file's path. Files for which it is larger are moved later: those that
            name others.

    Returns:
        A list of the files' new paths.
    """
    moved = []
    with _lock_of(target):
        for path in sorted(source.rglob("*"), key=order):
            new = target.parent / path.relative_to(source)
            if path.is_dir():
                new.mkdir(parents=True, exist_ok=True)
            else:
                new.parent.mkdir(parents=True, exist_ok=True)
                path.replace(new)
                moved.append(new)
    return moved


def is_beside(path: str) -> bool:
    """Whether a path is in a `folder`."""
    return f"{os.sep}{_PREFIX}" in path


def locked(path: pathlib.Path, kind: int) -> int:
    """Opens a file, which is made if it is not there, and waits for its lock.

    Args:
        path: of the file. Whoever has the lock may remove it.
        kind: `fcntl.LOCK_EX` or `fcntl.LOCK_SH`.

    Returns:
        The descriptor, for `release`.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a disk without locks
            fcntl.flock(descriptor, kind)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # removed while this process waited


def release(descriptor: int) -> None:
    """A process that was forked meanwhile has the descriptor, too: closing it is not enough."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextlib.contextmanager
def _lock_of(target: pathlib.Path) -> Iterator[None]:
    path = target.parent / f"{_PREFIX}{target.name}.lock"
    descriptor = locked(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        release(descriptor)


def _make(parent: pathlib.Path) -> tuple[pathlib.Path, int]:
    """A folder, and the descriptor whose lock says that its process lives."""
    while True:
        own = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):  # taken for a leftover meanwhile
            return own, locked(own / _LOCK, fcntl.LOCK_EX)


def _remove_leftovers(parent: pathlib.Path) -> None:
    for path in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
