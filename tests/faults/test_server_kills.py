"""Training goes on when servers are killed; see also `python -m tests.faults.server_kills`."""

from tests.faults import server_kills

_STEPS = 40


def test_two_of_three_servers():
    """The second training, from the same beginning, is undisturbed."""
    outcome = server_kills.run(2, seed=1, steps=_STEPS, workers=2, servers=3, times=2)
    assert not outcome.faults, outcome.output
    assert outcome.kills == 2 and len(outcome.digests) == 4
