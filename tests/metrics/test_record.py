"""`bpstop --record`: a timeline of a job that runs, which its program knows nothing of."""

import subprocess

import pytest

from tests.cluster import ROOT, Cluster, clean_environment, wait_until
from tests.metrics.test_metrics import SECONDS, exchange_until
from tests.metrics.test_top import command
from tests.metrics.test_top_local import watch_of
from tf_byteps import timeline
from tf_byteps.errors import ConfigError
from tf_byteps.metrics import record


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Two workers that exchange until the end, and a server; one of them is recorded by itself."""
    folder = tmp_path_factory.mktemp("job")
    stop = folder / "stop"
    with Cluster(exchange_until, workers=2, servers=1, args=[str(stop), 0.02]) as cluster:
        watch_of(cluster)  # all have joined
        yield cluster
        stop.touch()
        assert [outcome.code for outcome in cluster.wait(SECONDS)] == [0] * 4


def recorded(job, *words):
    return subprocess.run(
        command("--pid", str(job.workers[0].popen.pid), "--record", *map(str, words)),
        env=clean_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )


def test_a_running_job_is_recorded_and_explained(job, tmp_path):
    for folder in (tmp_path / "new" / "one", tmp_path / "two"):
        done = recorded(job, "500ms", folder)
        assert done.returncode == 0 and not done.stderr, done.stderr
        for rank in (0, 1):
            assert f"worker {rank}, " in done.stdout and "steps: a step takes" in done.stdout
        names = {path.name for path in folder.iterdir()}
        assert names == {"worker-0.json", "worker-1.json", "job.json"}
        parts = timeline.read(folder)
        assert {part.worker for part in parts} == {0, 1} and all(p.status == "OK" for p in parts)
        begin, end = min(p.enqueued for p in parts), max(p.done for p in parts)
        assert end - begin >= 0.4e9


def test_a_folder_with_files_is_refused_and_stays(job, tmp_path):
    (tmp_path / "mine").write_text("mine")
    done = recorded(job, "1s", tmp_path)
    assert done.returncode == 2 and "has files: give a new folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_two_recordings_at_once_are_one_too_many(job, tmp_path):
    """The first goes on."""
    first = subprocess.Popen(
        command("--pid", str(job.workers[0].popen.pid), "--record", "20s", str(tmp_path / "a")),
        env=clean_environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with first:
        wait_until(lambda: len(list(tmp_path.glob("a/worker-*.json"))) == 2)
        done = recorded(job, "100ms", tmp_path / "b")
        assert done.returncode == 1, done.stderr
        assert "nothing was recorded: " in done.stderr
        assert done.stderr.count("a timeline is being recorded already") == 2
        assert first.wait(2 * SECONDS) == 0 and "worker 1, " in first.stdout.read()


@pytest.mark.parametrize("words", [["20x", "f"], ["0s", "f"], ["1h", "f"], ["11min", "f"]])
def test_a_time_that_is_none_is_refused(job, tmp_path, words):
    done = recorded(job, words[0], tmp_path / words[1])
    assert done.returncode == 2 and "is no time to record for: give 100ms" in done.stderr
    assert not any(tmp_path.iterdir())


def test_times():
    read = {text: record.read_time(text) for text in ("100ms", "20", "20s", "1.5s", "2min")}
    assert list(read.values()) == [0.1, 20, 20, 1.5, 120]
    for query in ("", "folder=relative&seconds=1", "folder=%2Ftmp&seconds=", "seconds=1"):
        with pytest.raises(ConfigError):
            record.read_query(query)
    query = record.query_of(ROOT, 2.5)
    assert record.read_query(query) == (ROOT, 2.5)
