"""Workers that make local steps are killed and come: nobody goes back, and nothing is lost."""

import json

import keras
import numpy as np
import pytest

import tf_byteps as bps
from tests.elastic import quorum_jobs


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return _train(tmp_path_factory.mktemp("outer"), local_steps=4)


def _train(folder, local_steps):
    """What the workers have written, by name, and the output of the job."""
    output = quorum_jobs.run("tests.elastic.outer_programs", folder, local_steps, timeout=150)
    return {each.stem: json.loads(each.read_text()) for each in folder.glob("*.json")}, output


@pytest.mark.time_limit(200)
def test_all_end_with_the_same_weights(job):
    written, output = job
    weights = [written[name] for name in sorted(written) if name.startswith("weights")]
    assert len(weights) == 3 and all(each == weights[0] for each in weights)
    assert "going on without the worker that is lost" in output
    assert "going back" not in output


def test_survivors_keep_their_steps_and_a_newcomer_has_its_own(job):
    written, _ = job
    sizes = [size for size, _ in written["record-0"]["rejoined"]]
    assert sizes == [3, 2, 3]
    # Rounds go on where they were; who comes takes the number of those it has not seen.
    assert written["record-3"]["rejoined"][0][1] == written["record-0"]["rejoined"][-1][1]
    assert written["record-0"]["steps"] >= 40 and written["record-2"]["steps"] == 14


def test_a_kill_changes_nobody_elses_next_weights(job):
    """All that a round changes is what workers have brought that are in it."""
    written, _ = job
    rounds = {}
    for name, record in written.items():
        for number, seen in record["rounds"].items() if name.startswith("record") else ():
            assert rounds.setdefault(int(number), seen) == seen, "the same for all who have it"
    assert sorted(rounds) == list(range(1, len(rounds) + 1))
    ends = [rounds[number] for number in sorted(rounds)]
    assert ends[0][1] == 0 and all(a[2] == b[1] for a, b in zip(ends, ends[1:], strict=False))
    changed = sum(rows * (before - after) for rows, before, after in ends)
    records = {name: each for name, each in written.items() if name.startswith("record")}
    brought = sum(sum(each["brought"]) for each in records.values())
    # What the killed worker was late with is lost with it, as what it has not brought at all.
    assert all(each["late"] == 0 for name, each in records.items() if name != "record-2")
    np.testing.assert_allclose(changed, brought - records["record-2"]["late"], rtol=1e-9)
    assert written["weights-0"][1] == sum(rows for rows, *_ in ends)


@pytest.mark.extended
@pytest.mark.time_limit(200)
def test_a_newcomer_before_the_first_round_has_the_global_weights(tmp_path):
    written, output = _train(tmp_path, local_steps=100_000)
    weights = [written[name] for name in sorted(written) if name.startswith("weights")]
    assert len(weights) == 3 and all(each == weights[0] for each in weights)
    rejoined = [record["rejoined"] for name, record in written.items() if "record" in name]
    assert all(rounds == [0, 0] for each in rejoined for _, rounds in each)
    assert "going back" not in output


def test_without_a_quorum_it_is_refused():
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd")
    state = bps.elastic.OuterSyncState(
        model, lambda: bps.OuterSync(model.trainable_variables, local_steps=4)
    )
    assert state.rows_done == 0
    with pytest.raises(ValueError, match="an OuterSync without a quorum"):
        bps.elastic.run(lambda state: None)(state)
    bps.shutdown()
