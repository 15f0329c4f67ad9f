"""Servers are killed in every way to train; see also `python -m tests.faults.mode_kills`."""

import pytest

from tests.faults import mode_kills


@pytest.mark.long
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("mode", mode_kills.MODES)
def test_nothing_is_lost_with_servers(mode):
    assert not mode_kills.compare(mode, 2, seed=1, servers=3)
