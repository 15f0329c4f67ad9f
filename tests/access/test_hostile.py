"""A short attack on a live job; `python -m tests.access.hostile` is the long one."""

import pytest

from tests.access import hostile
from tests.cluster import describe


@pytest.mark.time_limit(180)
def test_hostile_connections_cost_little_and_change_nothing():
    figures, outcomes = hostile.measure(seconds=6, rate=50)
    # Every sum was checked by the workers, which all ended well.
    assert figures["connections"] == 300 and figures["ports"] >= 3
    assert figures["cpu_ms_per_connection"] <= 1, figures
    assert figures["kb_per_connection"] <= 64, figures
    assert 1 <= figures["lines_logged_by_server"] <= 60, describe(outcomes)[-4000:]
