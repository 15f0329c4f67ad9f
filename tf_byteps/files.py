"""Files that processes of a job write: one for each, whole or not at all."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import IO


def path_for(configured: str, role: str, rank: int) -> str:
    """The file of one process: in a directory "worker-0.json", else the rank before the suffix.

    Args:
        configured: what the user named, a file or a directory.
        role: "worker" or "server", or what begins the names of other files.
        rank: its rank.
    """
    if os.path.isdir(configured) or configured.endswith("/"):
        return os.path.join(configured, f"{role}-{rank}.json")
    root, suffix = os.path.splitext(configured)
    return f"{root}.{rank}{suffix}"


def write_whole(path: str, lines: Iterable[str]) -> None:
    """Writes an iterable of lines; whoever waits for the file never sees half of it."""
    with whole_file(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """A file to write; it is at `path` when the block has ended well, and not before."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(f"{path}.{os.getpid()}.part", "wb") as file:
        yield file
    os.replace(file.name, path)


class GrowingFile:
    """A file that a thread adds to while its process runs, so that one that is killed leaves it.

    Args:
        path: where it is written, anew; from the first lines on, where it is.
        head: its first lines.
        take: returns the lines that have come since its last call.
        stays: whether a file that is there already stays. Then this one gets the next number:
            trace.2.json. Default: it is replaced.
        seconds: between two calls.
    """

    def __init__(
        self,
        path: str,
        head: str,
        take: Callable[[], Iterable[str]],
        stays: Callable[[str], bool] = lambda path: False,
        seconds: float = 2.0,
    ) -> None:
        self.path, self._head, self._take, self._seconds = path, head, take, seconds
        self._stays = stays
        self._file: IO[str] | None = None
        self._error: OSError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="byteps-timeline", daemon=True)
        self._thread.start()

    def end(self, last: str) -> None:
        """Adds what is left, and a last line.

        Raises:
            OSError: some of the file could not be written.
        """
        self._ended.set()
        self._thread.join()
        self._add(last)
        if self._file is not None:
            self._file.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._add()

    def _add(self, *last: str) -> None:
        lines = [*self._take(), *last]
        if self._error is not None:
            return
        try:
            if self._file is None:
                self._file = self._new()
            self._file.writelines(line + "\n" for line in lines)
            self._file.flush()
        except OSError as error:
            self._error = error

    def _new(self) -> IO[str]:
        """Whoever finds the file finds its head, whenever this process is killed."""
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        file = open(f"{self.path}.{os.getpid()}.part", "w", encoding="utf-8")
        file.write(self._head + "\n")
        file.flush()
        root, suffix = os.path.splitext(self.path)
        number = 1
        while os.path.exists(self.path) and self._stays(self.path):
            number += 1
            self.path = f"{root}.{number}{suffix}"
        os.replace(file.name, self.path)
        return file
