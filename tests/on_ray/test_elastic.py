"""Elastic jobs on Ray: raylets are killed and come again, and an autoscaler brings nodes."""

import concurrent.futures
import contextlib
import json
import re

import pytest

from tests.cluster import wait_until
from tests.on_ray import programs
from tests.on_ray.conftest import actors, add_node
from tf_byteps.errors import BytePSError, ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(1500)]

_EPOCHS = 3
_SECONDS = 500  # machines may be busy


@pytest.fixture
def launcher(cluster):
    from tf_byteps.ray import RayLauncher

    return RayLauncher


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


def _is_right(result, workers):
    """Every sample was used as often as if nothing had happened."""
    return (result["least"], result["most"], result["size"]) == (_EPOCHS, _EPOCHS, workers)


def test_a_killed_raylet_and_a_new_one(cluster, launcher, tmp_path):
    """The other worker goes on; the next node gets a new one; and the server is started again."""
    cluster.remove_node(cluster.list_all_nodes()[-1])
    job = launcher(2, 1, 1.5, cpus_per_server=0.5, strategy="SPREAD", min_workers=1)
    with Training(tmp_path, job) as training:
        training.await_workers(2)
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        training.await_workers(1)
        add_node(cluster)
        training.await_workers(2)
        begins = training.begins()
        (server,) = [p for p in actors() if p.cmdline()[0].startswith("ray::Server")]
        server.kill()
        training.await_begins(begins + 2)
        training.await_workers(2)
        results, result = training.end()
    assert results == [0, 1]
    assert _is_right(result, workers=2)


def test_all_that_take_part_return(launcher):
    results = launcher(2, servers=1, min_workers=2).run(programs.return_late)
    assert results == [(0, 2.0), (1, 2.0)]


def test_what_fails_too_often_is_not_started_again(launcher, caplog):
    with pytest.raises(BytePSError, match="worker 2 .*raised") as caught:
        launcher(1, min_workers=1, max_failures=3).run(programs.raise_at_once)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "not started again after 3 failures" in caplog.text


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"min_workers": 3}, "min_workers=3: must be from 1 to workers=2"),
        ({"min_workers": 0}, "min_workers=0"),
        ({"min_workers": 1, "strategy": "STRICT_SPREAD"}, "must be PACK or SPREAD"),
        ({"min_workers": 1, "max_failures": -1}, "max_failures=-1"),
    ],
)
def test_wrong_arguments(launcher, arguments, message):
    with pytest.raises(ConfigError, match=message):
        launcher(2, **arguments)
