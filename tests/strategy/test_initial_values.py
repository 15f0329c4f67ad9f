"""Worker 0's values at the beginning of each `fit`."""

from tests.cluster import run_workers
from tests.strategy import initial_values_programs


def test_a_further_fit_traces_no_broadcasts():
    for counts, first in run_workers(initial_values_programs.fit_three_times, workers=2):
        assert counts[0] >= 4  # kernels and biases at least
        assert counts == [counts[0]] * 3
        assert first == [1.0] * 3
