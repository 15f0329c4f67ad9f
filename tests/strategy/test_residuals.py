"""Error feedback is saved with a training that goes on in other processes."""

import re
import shutil

import pytest

from tests.cluster import describe, run_processes, run_workers
from tests.strategy import residual_programs
from tests.strategy.residual_programs import CASES

pytestmark = pytest.mark.time_limit(500)

_EVERY = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}


def _train(folder, is_cut, names=tuple(CASES)):
    args = (str(folder), list(names), is_cut)
    return run_workers(residual_programs.train, 2, 1, _EVERY, timeout=200, args=args)


@pytest.fixture(scope="module", name="cut")
def _cut(tmp_path_factory):
    """What a training has left that was cut short after half of its epochs."""
    folder = tmp_path_factory.mktemp("cut")
    assert _train(folder, is_cut=True) == [dict.fromkeys(CASES)] * 2
    return folder


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory):
    first, second = _train(tmp_path_factory.mktemp("whole"), is_cut=False)
    assert first == second
    return first


def _files(folder):
    return sorted(path.name for path in folder.glob("*/residuals/*"))


def test_a_training_that_goes_on_gets_the_same_weights(cut, whole, tmp_path):
    shutil.copytree(cut, tmp_path, dirs_exist_ok=True)
    per_case = [f"worker-{r}-of-2.epoch-{e}.npz" for r in (0, 1) for e in (1, 2)]
    assert sorted(set(_files(tmp_path))) == per_case
    first, second = _train(tmp_path, is_cut=False)
    assert first == second
    assert {name for name in CASES if first[name] != whole[name]} == {"forgotten"}
    assert _files(tmp_path) == []


def test_other_workers_begin_at_zero_and_say_so(cut, tmp_path):
    shutil.copytree(cut, tmp_path, dirs_exist_ok=True)
    args = (str(tmp_path), ["onebit"], False)
    outcomes = run_processes(residual_programs.train, 3, 1, _EVERY, timeout=200, args=args)
    workers = [outcome for outcome in outcomes if outcome.label.startswith("worker")]
    assert [outcome.code for outcome in workers] == [0] * 3, describe(outcomes)
    said = r"begins at zero on worker (\d): there is no \S+/worker-(\d)-of-3.epoch-2.npz"
    found = [re.findall(said, outcome.output) for outcome in workers]
    assert found == [[("0", "0")], [("1", "1")], [("2", "2")]]
