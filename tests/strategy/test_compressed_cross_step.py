"""With `cross_step` gradients are compressed as without it."""

import numpy as np
import pytest

from tests.cluster import run_workers
from tests.strategy import compressed_cross_step_programs as programs

pytestmark = pytest.mark.time_limit(600)


def test_weights_are_those_of_plain_steps():
    every = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}
    first, second = run_workers(programs.train, 2, 2, every, timeout=550)
    assert first == second, "the workers' weights differ"
    kind, message = first.pop("refused")
    assert kind == "ValueError" and "keeps a tensor for decompress" in message
    for name in programs.COMPRESSIONS:
        plain, across = first[f"{name} False False"], first[f"{name} False True"]
        assert across["digest"] == plain["digest"], name
        assert across["losses"] == plain["losses"], name
        none = first["none False True"]
        if name != "none":
            assert across["digest"] != none["digest"], f"{name} compressed nothing"
        trained = [across]
        if name in programs.COMPILED:
            # XLA rounds in its own way; with it, too, both ways do the same.
            compiled, compiled_across = first[f"{name} True False"], first[f"{name} True True"]
            np.testing.assert_allclose(compiled_across["weights"], compiled["weights"], 1e-3, 1e-3)
            trained.append(compiled_across)
        for each in trained:
            assert each["losses"][-1] == pytest.approx(none["losses"][-1], rel=0.1), name
            assert each["losses"][-1] < each["losses"][0], name
