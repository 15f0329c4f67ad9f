"""Workers on one host that write their files to one path, as programs of one process do."""

import pytest
from shared_folder import Group

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

SIZE = 3
SAVES = 6


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    scenarios = {
        "managed_checkpoints": {"saves": SAVES},
        "killed_and_started_again": {"saves": 2, "where": "managed_checkpoints"},
        "each_way": {"repeats": 2},
        "one_copy_of_keras_files": {},
        "different_values": {"repeats": 20},
        "taken_together": {},
        "one_worker_saves": {},
    }
    return Group(tmp_path_factory.mktemp("shared"), SIZE, scenarios)


def _check_managed(results, saves):
    assert all(result["same"] == results[0]["same"] for result in results)
    for result in results:
        assert result["latest"] == f"ckpt-{saves}" and result["step"] == saves
        kept = [f"ckpt-{number}" for number in (saves - 1, saves)]
        files = [f"{name}.{end}" for name in kept for end in ("data-00000-of-00001", "index")]
        left = [name for name in result["files"] if not name.endswith("_temp")]  # TensorFlow's
        assert sorted(left) == sorted(["checkpoint", *files])


def test_managed_checkpoints_are_written_once_and_whole(group):
    results = group["managed_checkpoints"]
    _check_managed(results, SAVES)
    assert sum(result["written"] for result in results) == SAVES
    assert not any(result["begin"] or result["hidden"] for result in results)


def test_a_run_that_was_killed_is_started_again(group):
    results = group["killed_and_started_again"]
    _check_managed(results, SAVES + 2)
    for result in results:
        assert result["begin"] == f"ckpt-{SAVES}"
        assert result["hidden"] == ["ckpt-7_temp"]


@pytest.mark.slow
def test_two_hundred_saves(tmp_path):
    group = Group(tmp_path, SIZE, {"managed_checkpoints": {"saves": 200}})
    results = group["managed_checkpoints"]
    _check_managed(results, 200)
    assert sum(result["written"] for result in results) == 200


def test_each_way_to_write_a_model(group):
    written, hidden = zip(*group["each_way"], strict=True)
    assert hidden == ([],) * SIZE
    # Of two rounds; the second one finds what `write` has written.
    assert sum(written) == 7


def test_a_host_writes_one_copy_of_equal_models(group):
    for seen, hidden in group["one_copy_of_keras_files"]:
        for name, numbers in seen.items():
            assert len(set(numbers)) == 1, name
        assert hidden == []


def test_workers_with_other_values_read_whole_files(group):
    assert group["different_values"] == [[]] * SIZE


def test_variables_that_all_read_together(group):
    assert group["taken_together"] == [6.0] * SIZE


def test_one_worker_may_save_alone(group):
    files = ["checkpoint", "ckpt-3.data-00000-of-00001", "ckpt-3.index"]
    assert group["one_worker_saves"] == [[3.0, files]] * SIZE
