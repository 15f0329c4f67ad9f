"""BYTEPS_ASYNC_COMPLETION where there is no GPU: nothing is different."""

import os

import numpy as np
import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "ops_programs.py")
SCENARIOS = ["start", "all_dtypes", "gradients", "many_in_flight", "slices", "eager_lists"]


def test_results_are_the_same():
    plain = workers.run(PROGRAM, SCENARIOS, 2)
    ahead = workers.run(PROGRAM, SCENARIOS, 2, BYTEPS_ASYNC_COMPLETION="1")
    for scenario in SCENARIOS:
        np.testing.assert_equal(ahead[scenario], plain[scenario], scenario)
