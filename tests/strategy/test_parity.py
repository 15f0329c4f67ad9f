"""Training on 1 and 2 (slow) and 3 workers gives what a single process without tf_byteps gives."""

import json
import os

import numpy as np
import pytest
import wrong_reductions
from selection import asked_values, some_slow

from tests import workers

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "strategy_programs.py")

CASES = {
    "sgd, float32": {"optimizer": "sgd"},
    "sgd, float64": {"optimizer": "sgd", "dtype": "float64"},
    "adam, float32": {"optimizer": "adam"},
    "adam, float64": {"optimizer": "adam", "dtype": "float64"},
    # 193 = 4 * 48 + 1: in every epoch one step in which only worker 0 has a row.
    "one row left": {"rows": 193, "dtype": "float64"},
    "two rows left, dataset": {"rows": 194, "source": "dataset", "dtype": "float64"},
    "uneven, clipped, synchronized": {
        "rows": 197,
        "optimizer": "clipped",
        "synchronized": True,
        "dtype": "float64",
    },
    "uneven, accumulating": {"rows": 197, "optimizer": "accumulating", "dtype": "float64"},
    "averaging, steps per execution": {
        "rows": 193,
        "optimizer": "averaging",
        "steps_per_execution": 2,
        "dtype": "float64",
    },
    "eager": {"rows": 193, "run_eagerly": True, "dtype": "float64"},
}
_FAULTY = "sgd, float32"  # the case that is trained with faults, too
# What others show, too; in make test-all.
_SLOW = ("adam, float32", "two rows left, dataset")


def _scenario(**arguments):
    return f"train={json.dumps(arguments)}"


def _assert_parity(results, reference, dtype):
    tolerance = (1e-9, 1e-12) if dtype == "float64" else (1e-5, 1e-6)
    for result in results:
        assert result.keys() == reference.keys()
        for key, expected in reference.items():
            np.testing.assert_allclose(result[key], expected, *tolerance, err_msg=key)
    for key in reference:
        if key.startswith("weights"):
            for result in results[1:]:
                np.testing.assert_array_equal(result[key], results[0][key], err_msg=key)


@pytest.fixture(scope="module")
def names(request):
    asked = asked_values(request, "case", test_parity)
    return asked if _FAULTY in asked else [*asked, _FAULTY]


@pytest.fixture(scope="module")
def reference(names):
    scenarios = [_scenario(plain=True, **CASES[name]) for name in names]
    group = workers.run(PROGRAM, scenarios, 0)
    return {name: group[scenario][0] for name, scenario in zip(names, scenarios, strict=True)}


_slow = pytest.mark.slow
# 0: one process, and no variable that tells of a job.
_SIZES = [*(pytest.param(size, marks=_slow) for size in (0, 1, 2)), 3]


@pytest.fixture(scope="module", params=_SIZES, ids=lambda size: f"{size}workers")
def group(request, names):
    scenarios = [_scenario(**CASES[name]) for name in names]
    return workers.run(PROGRAM, scenarios, request.param, timeout=600)


@pytest.mark.parametrize("case", some_slow(CASES, _SLOW))
def test_parity(case, group, reference):
    results = group[_scenario(**CASES[case])]
    _assert_parity(results, reference[case], CASES[case].get("dtype", "float32"))


@pytest.fixture(scope="module")
def faulty():
    return workers.run(PROGRAM, [_scenario(fault=fault) for fault in wrong_reductions.NAMES], 2)


@pytest.mark.parametrize("fault", wrong_reductions.NAMES)
def test_parity_check_notices(fault, faulty, reference):
    with pytest.raises(AssertionError):
        _assert_parity(faulty[_scenario(fault=fault)], reference[_FAULTY], "float32")
