"""Runs the programs of docs/migration.md with two workers."""

import re

import numpy as np
import pytest

from tests import workers
from tests.api import migration_programs

LOOP = "A training loop of your own"
FIT = "`Model.fit`"


_scenario = workers.scenario


def _before(title):
    return _scenario("run", title=title, position=0)


@pytest.fixture(scope="module")
def ours():
    """Horovod's and BytePS's programs both before and after, with tf_byteps."""
    scenarios = [_scenario("run_both", title=title) for title in ("From Horovod", "From BytePS")]
    scenarios += [_scenario("run", title=title, position=1) for title in (FIT, LOOP)]
    return workers.run(migration_programs.__file__, scenarios, 2)


@pytest.fixture(scope="module")
def mirrored():
    """MultiWorkerMirroredStrategy's programs, with that strategy.

    Each in processes of its own: where one makes that strategy anew, it may break what the other
    is still doing with the one before.
    """
    return {
        title: workers.run(migration_programs.__file__, [_before(title)], 2)
        for title in (LOOP, FIT)
    }


@pytest.mark.time_limit(480)
@pytest.mark.parametrize("title", ["From Horovod", "From BytePS"])
def test_programs_of_other_libraries(ours, title):
    results = ours[_scenario("run_both", title=title)]
    assert results[0] == results[1]
    before, after = results[0]
    assert before == after


@pytest.mark.time_limit(480)
def test_fit(ours, mirrored):
    weights = ours[_scenario("run", title=FIT, position=1)]
    assert weights[0] == weights[1]
    program = migration_programs.programs()[FIT][0].splitlines()
    assert program[-1].startswith("model.fit(")
    failures = mirrored[FIT].failures(_before(FIT))
    # The first to fail leaves; another worker may notice that before it gets as far.
    values = [failure for failure in failures if failure.kind == "ValueError"]
    assert values and all(f.kind == "UnavailableError" for f in failures if f not in values), (
        failures
    )
    for failure in values:
        assert failure.message.startswith("Attempt to convert a value (PerReplica:")
        assert "with an unsupported type" in failure.message
        assert f'of migration.md", line {len(program)}, in <module>' in failure.trace


def test_loop(ours, mirrored):
    weights = ours[_scenario("run", title=LOOP, position=1)]
    before = mirrored[LOOP][_before(LOOP)]
    assert weights[0] == weights[1]
    for worker in before:
        for ours_, theirs in zip(weights[0], worker, strict=True):
            np.testing.assert_allclose(ours_, theirs, rtol=1e-5, atol=1e-6)


def test_programs_differ_in_module_and_strategy_only():
    for title, (before, after) in migration_programs.programs().items():
        for module in migration_programs.STAND_INS:
            before = re.sub(rf"import {re.escape(module)} as \w+\n", "", before)
        before = before.replace("hvd.", "bps.")
        before = before.replace("tf.distribute.MultiWorkerMirroredS", "tf_byteps.BytePSS")
        after = re.sub(r"import tf_byteps(\.keras)?( as \w+)?\n", "", after).replace("hvd.", "bps.")
        assert before == after, title
