"""Functions that were saved or traced in one job and run in another, or without tf_byteps."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "saved_programs.py")
_SERVE = """
import sys
sys.modules["tf_byteps"] = None  # cannot be imported
import numpy as np
import tensorflow as tf
folder, inputs, outputs = sys.argv[1:]
x = tf.constant(np.load(inputs))
exported, saved = (tf.saved_model.load(f"{folder}/{name}") for name in ("exported", "saved"))
results = [exported.serve(x), *saved.signatures["serving_default"](x).values()]
np.save(outputs, np.stack(results))
"""


def _expected(size, rank):
    total = size * (size + 1) / 2
    sums = [total, 2 * total]
    rows = [value * (worker + 1) for worker in range(size) for value in (1.0, 2.0)]
    slices = [[value] for value in sums] + [[0.0]] * 7
    return {
        "first": [2 * value for value in sums],
        "second": [10 * value for value in sums],
        "gathered": rows,
        "broadcast": [1.0, 2.0],
        "slices": slices,
        "repeated": [[2 * value for value in sums], [20 * value for value in sums]],
        "place": [rank, size, rank, size],
    }


@pytest.mark.time_limit(480)  # two jobs, one after the other
def test_functions_with_exchanges_can_be_saved_and_loaded(tmp_path):
    scenario = json.dumps({"folder": str(tmp_path)})
    for rank, outcomes in enumerate(
        workers.run(PROGRAM, [f"save={scenario}"], 2)[f"save={scenario}"]
    ):
        assert list(outcomes) == [_expected(2, rank)] * 3
    loaded = workers.run(PROGRAM, [f"load={scenario}"], 3)[f"load={scenario}"]
    for rank, (outcomes, served) in enumerate(loaded):
        assert outcomes == _expected(3, rank)
        assert served == _expected(3, rank)["first"]


@pytest.mark.parametrize("size", [1, 2])
def test_numbers_are_those_of_the_job_in_which_they_are_read(size):
    """No function holds the number of workers (protocol rule 16)."""
    results = workers.run(PROGRAM, ["place_in_another_job"], size)["place_in_another_job"]
    for rank, (traced_here, elsewhere, kinds, message) in enumerate(results):
        assert traced_here == [[rank, size, rank, size]] * 2
        assert elsewhere == [0, 1, 0, 1]
        assert not any(kind in ("Const", "PyFunc") for kind in kinds), kinds
        assert "call tf_byteps.init() first" in message


@pytest.mark.time_limit(480)
def test_exported_model_serves_without_tf_byteps(tmp_path):
    scenario = f"export={json.dumps({'folder': str(tmp_path)})}"
    (x, predictions), others = workers.run(PROGRAM, [scenario], 2)[scenario]
    np.testing.assert_array_equal(predictions, others[1])
    inputs, outputs = str(tmp_path / "inputs.npy"), str(tmp_path / "outputs.npy")
    np.save(inputs, x)
    command = [sys.executable, "-c", _SERVE, str(tmp_path), inputs, outputs]
    served = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert served.returncode == 0, served.stderr
    results = np.load(outputs)
    assert results.shape == (2, 16, 1)
    for result in results:
        np.testing.assert_allclose(result, predictions, rtol=1e-5, atol=1e-6)
