"""A training in an elastic job on Ray that is held at some batch while nodes come and go."""

import concurrent.futures
import contextlib
import json
import re

from tests.cluster import wait_until
from tests.on_ray import programs

_EPOCHS = 3
_SECONDS = 500  # machines may be busy


class Training:
    """tests/elastic/training.py in an elastic job, which is held at some batch.

    Args:
        folder: for its files.
        launcher: a `RayLauncher`.
    """

    def __init__(self, folder, launcher):
        self._folder, self._launcher = folder, launcher
        self._progress = folder / "progress.txt"
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        (folder / "limit.txt").write_text("20")

    def __enter__(self):
        arguments = ["fit", str(self._folder), _EPOCHS]
        self._results = self._pool.submit(self._launcher.run, programs.train_elastic, arguments)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "limit.txt").unlink()
        self._pool.shutdown()

    def await_workers(self, number):
        """Waits until so many have committed together, and nothing since."""
        self._wait_until(lambda: re.search(rf"commit \d+ \S+ {number}\n$", self._text()))

    def await_begins(self, number):
        """Waits until so many workers have begun, or begun again, so far."""
        self._wait_until(lambda: self.begins() >= number)

    def begins(self):
        return self._text().count("begin ")

    def end(self):
        """Lets it go on; returns what `run` has returned, and what the training says."""
        (self._folder / "limit.txt").unlink()
        results = self._results.result(_SECONDS)
        return results, json.loads((self._folder / "result.json").read_text())

    def _text(self):
        return self._progress.read_text() if self._progress.exists() else ""

    def _wait_until(self, condition):
        wait_until(lambda: condition() or self._results.done(), _SECONDS)
        if self._results.done():
            raise AssertionError(f"it has ended: {self._results.result()}")


def is_right(result, workers):
    """Every sample was used as often as if nothing had happened."""
    return (result["least"], result["most"], result["size"]) == (_EPOCHS, _EPOCHS, workers)
