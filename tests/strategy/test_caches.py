"""Datasets that all workers save to one path, and caches in files."""

import pytest
from shared_folder import Group

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

SIZE = 2


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    scenarios = {"saved_dataset": {}, "cached": {}, "nested_cache": {}, "snapshot": {}}
    return Group(tmp_path_factory.mktemp("data"), SIZE, scenarios)


def test_datasets_are_saved_once(group):
    rows = [list(range(50)), list(range(100, 150))]
    assert group["saved_dataset"] == [[rows, 2, []]] * SIZE


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return Group(tmp_path_factory.mktemp("plain"), 0, {"cached": {}, "snapshot": {}})


def _together(epochs_of_workers):
    """The batches of each epoch, of the workers' pieces."""
    return [
        [sum(pieces, []) for pieces in zip(*epoch, strict=True)]
        for epoch in zip(*epochs_of_workers, strict=True)
    ]


@pytest.mark.parametrize("name", ["first", "again", "killed"])
def test_a_cache_in_a_file_is_each_workers_own(group, plain, name):
    results = [result[name] for result in group["cached"]]
    assert _together([epochs for epochs, _ in results]) == plain["cached"][0][name][0]
    file = "d" if name == "killed" else "c"
    for _, files in results:
        own = [f"{file}.worker-{rank}-of-{SIZE}" for rank in range(SIZE)]
        expected = [f"{each}.{end}" for each in own for end in ("data-00000-of-00001", "index")]
        assert [each for each in files if each.startswith(file)] == sorted(expected)


def test_a_snapshot_is_each_workers_own(group, plain):
    seen, folders, runs = zip(*group["snapshot"], strict=True)
    assert _together(seen) == plain["snapshot"][0][0]
    assert folders == ([f"s.worker-{rank}-of-{SIZE}" for rank in range(SIZE)],) * SIZE
    assert runs == (SIZE,) * SIZE  # each has written once


def test_a_complete_cache_is_read_by_all(group):
    results = [result["complete"] for result in group["cached"]]
    for epoch in _together([epochs for epochs, _ in results]):
        assert sorted(sum(epoch, [])) == [number + 1 for number in range(1, 24)]
    assert not any("f.worker" in name for _, files in results for name in files)


def test_data_of_a_workers_own_are_cached_by_itself(group):
    for rank, result in enumerate(group["cached"]):
        for epoch in result["own"][0]:
            assert sorted(sum(epoch, [])) == [number + 2 for number in range(4 + rank)]


def test_a_cache_that_cannot_be_the_workers_own_is_an_error_that_says_what_to_do(group):
    for message in group["nested_cache"]:
        assert "c_0.lockfile. Give each worker a file name" in message
