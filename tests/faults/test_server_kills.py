"""Training goes on when servers are killed; see also `python -m tests.faults.server_kills`."""

import json

import pytest

from tests.faults import server_kills

_STEPS = 40


@pytest.mark.extended
def test_two_of_three_servers():
    """The second training, from the same beginning, is undisturbed."""
    outcome = server_kills.run(2, seed=1, steps=_STEPS, workers=2, servers=3, times=2)
    assert not outcome.faults, outcome.output
    assert outcome.kills == 2 and len(outcome.digests) == 4


@pytest.mark.long
def test_steps_that_are_compiled():
    outcome = server_kills.run(2, seed=2, steps=_STEPS, servers=3, times=2, jit_compile=True)
    assert not outcome.faults, outcome.output
    assert outcome.kills == 2 and len(outcome.digests) == 6


@pytest.mark.long
def test_sums_that_are_compressed():
    """What the lost server would have had is encoded again, to the same bits."""
    every = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}
    outcome = server_kills.run(
        2, seed=3, steps=_STEPS, servers=3, times=2, environment=every, compression="int8"
    )
    assert not outcome.faults, outcome.output
    assert outcome.kills == 2 and len(outcome.digests) == 6


@pytest.mark.long
def test_sums_with_error_feedback():
    """What is pushed again changes no residual."""
    environment = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}
    undisturbed, disturbed = (
        server_kills.run(
            kills, seed=5, steps=_STEPS, servers=3, environment=environment, compression="onebit"
        )
        for kills in (0, 2)
    )
    assert not undisturbed.faults, undisturbed.output
    assert not disturbed.faults, disturbed.output
    assert disturbed.kills == 2 and disturbed.digests == undisturbed.digests


_OF_ROWS = {"jit_compile": False, "embeds": True}


def test_sums_of_rows():
    """The workers push their rows again, and one that has a sum sends it to the others.

    So it is with the dense gradients of the model. The second training is undisturbed.
    """
    outcome = server_kills.run(2, seed=7, steps=_STEPS, servers=3, times=2, **_OF_ROWS)
    assert not outcome.faults, outcome.output
    assert outcome.kills == 2 and len(outcome.digests) == 6


@pytest.mark.extended
@pytest.mark.parametrize("environment", [{"BYTEPS_ROW_SUM_WORKERS": "1"}, {}], ids=["1", "chosen"])
def test_sums_of_rows_are_those_of_all_servers(environment):
    undisturbed, disturbed = (
        server_kills.run(
            kills, seed=7, steps=_STEPS, servers=3, environment=environment, **_OF_ROWS
        )
        for kills in (0, 2)
    )
    assert not undisturbed.faults, undisturbed.output
    assert not disturbed.faults, disturbed.output
    assert disturbed.kills == 2 and disturbed.digests == undisturbed.digests


@pytest.mark.slow
def test_servers_that_are_started_again(tmp_path):
    """They get parts of the tensors back, so that the others may be killed."""
    stats = {"BYTEPS_SERVER_STATS_FILE": f"{tmp_path}/"}
    outcome = server_kills.run(
        2, seed=6, steps=200, workers=2, servers=2, times=2, returns=True, environment=stats
    )
    assert not outcome.faults, outcome.output
    assert outcome.kills == 2 and len(outcome.digests) == 4
    counters = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert len(counters) == 2 and all(each["pushed_bytes"] > 0 for each in counters)
