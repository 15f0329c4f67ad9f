"""What is shown of local and asynchronous steps: counters, TensorBoard, timeline, bpstop, log."""

import json
import os

import pytest
from rich.console import Console

from tests import workers
from tf_byteps import step_counters
from tf_byteps.launch.summary import ExitSummaries
from tf_byteps.metrics import exit_summary
from tf_byteps.metrics.rows import View, Worker
from tf_byteps.metrics.view import draw

PROGRAM = os.path.join(os.path.dirname(__file__), "shown_programs.py")
STEPS, EPOCHS, WEIGHTS = 8, 2, 4 * 8 * 4  # bytes
LOCAL = {"local_steps": 3, "outer": "diloco"}
OTHERS = {"synchronous": {}, "asynchronous": {"staleness": 2}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shown")


def _scenario(folder, settings):
    own = os.fspath(folder / "-".join(settings or ["plain"]))
    os.makedirs(own, exist_ok=True)
    return f"trains={json.dumps({'folder': own, 'settings': settings})}"


@pytest.fixture(scope="module")
def group(folder):
    scenarios = [_scenario(folder, each) for each in (LOCAL, *OTHERS.values())]
    return workers.run(PROGRAM, [*scenarios, "drifts"], 2)


def test_rounds_and_saved_bytes_are_counted(group, folder):
    rounds = EPOCHS * 3  # after 3 and 6 steps, and where the epoch ends
    for result in group[_scenario(folder, LOCAL)]:
        counted = result["counted"]
        assert counted["outer_rounds"] == rounds and counted["steps_since_round"] == 0
        assert counted["saved_bytes"] == (EPOCHS * STEPS - rounds) * WEIGHTS
        assert 0 < counted["divergence"] < 1 and result["sample"] == counted
        assert len(result["rounds"]) == result["track"] == rounds
        assert all(begin < end and not part for _, begin, end, part, _ in result["rounds"])


def test_tensorboard_has_rounds_and_divergence(group, folder):
    scalars = group[_scenario(folder, LOCAL)][0]["scalars"]
    assert scalars["tf_byteps/step/outer_rounds"] == 5  # 8 steps of the second epoch not ended
    assert scalars["tf_byteps/step/steps_since_outer_round"] == 2
    assert scalars["tf_byteps/epoch/saved_bytes_per_step"] == 5 * WEIGHTS / STEPS
    assert 0 < scalars["tf_byteps/epoch/weight_divergence"] < 1
    assert "tf_byteps/epoch/staleness" not in scalars


def test_staleness_is_that_of_each_worker(group, folder):
    first, second = group[_scenario(folder, OTHERS["asynchronous"])]
    stale = [each["counted"]["stale_changes"] for each in (first, second)]
    for result, its in zip((first, second), stale, strict=True):
        counted = result["counted"]
        assert counted["asynchronous_steps"] == EPOCHS * STEPS and not counted["outer_rounds"]
        assert 0 <= its <= EPOCHS * STEPS  # each change of the other comes in one step at most
    assert 0 <= first["scalars"]["tf_byteps/epoch/staleness"] <= 1
    # In each epoch one of them has seen changes of the other, if only in its last step.
    assert sum(stale) > 0


def test_synchronous_steps_show_nothing(group, folder):
    for result in group[_scenario(folder, OTHERS["synchronous"])]:
        assert not any(result["counted"].values()) and not result["rounds"]
        assert not any("divergence" in name or "stale" in name for name in result["scalars"])


def test_one_warning_if_workers_drift_apart(group):
    for said, divergence in group["drifts"]:
        assert len(said) == 1 and "use fewer local steps" in said[0]
        assert divergence > 1


def test_nothing_of_a_session_is_left_for_the_next():
    step_counters.end_round(fragment=2, begin=10, end=20, divergence=0.5)
    assert step_counters.read()["outer_rounds"] == 1
    step_counters.reset()
    assert step_counters.take_rounds() == []
    assert set(step_counters.read().values()) == {0}


def test_steady_or_falling_divergence_is_no_warning(caplog):
    growth = step_counters.Growth()
    for divergence in [0.1] * 20 + [0.1, 0.3, 0.2, 0.4, 0.3, 0.5, 0.4, 0.6]:
        growth.note(0, divergence)
    for divergence in (0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16):
        growth.note(1, divergence)
    assert not caplog.records
    growth.note(1, 0.4)
    assert len(caplog.records) == 1


def _worker(**values):
    names = {name: None for name in Worker.__dataclass_fields__}
    common = {"role": "worker", "rank": 0, "address": "", "state": "runs"}
    return Worker(**{**names, **common, **values})


def _drawn(**values):
    console = Console(width=120)
    with console.capture() as captured:
        console.print(draw(View([_worker(**values)], [], [], [], [])))
    return captured.get()


def test_bpstop_has_the_columns_where_there_is_something_to_show():
    plain = _drawn(outer_rounds=0.0, steps_since_round=0.0, saved_bytes=0.0, divergence=0.0)
    assert "rounds" not in plain and "stale" not in plain
    local = _drawn(outer_rounds=7.0, steps_since_round=2.0, saved_bytes=5e6, divergence=0.012)
    assert "saved MB" in local and "1.2" in local and "5.0" in local
    assert "stale" in _drawn(staleness=1.5) and "1.5" in _drawn(staleness=1.5)


def test_the_summary_has_rounds_and_staleness():
    summaries = ExitSummaries()
    reported = {**dict.fromkeys(exit_summary.COUNTED, 0), "paths": []}
    reported |= {
        "outer_rounds": 12,
        "saved_bytes": 3e6,
        "asynchronous_steps": 10,
        "stale_changes": 15,
    }
    path = summaries.variables["BYTEPS_SUMMARY_FILE"]
    for rank in range(2):
        exit_summary.report(path, rank, exit_summary.counts(reported), None)
    said = summaries.text(2)
    summaries.close()
    assert "; 12 outer rounds, 3.0 MB saved; mean staleness 1.5" in said
