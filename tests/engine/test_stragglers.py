"""A slow worker, with and without backup workers."""

import statistics

import pytest

from tests.cluster import run_workers
from tests.engine import straggler_programs as programs
from tf_byteps import Config
from tf_byteps.errors import ConfigError

STEPS = 50
PAUSE = 0.01
_SOON = {"BYTEPS_HEARTBEAT_INTERVAL": "0.2"}


def _run(max_lag, backup_workers=1):
    env = {**_SOON, "BYTEPS_MAX_LAG": str(max_lag)}
    args = [STEPS, PAUSE, backup_workers]
    return run_workers(programs.train, workers=3, servers=2, env=env, args=args)


def _median_step(result):
    ends = result["ends"]
    return statistics.median(end - begin for begin, end in zip(ends, ends[1:]))


def _behind(fast, slow):
    """How many steps the slow worker was behind the fast one at most."""
    return max(
        step - sum(other <= end for other in slow["ends"][1:])
        for step, end in enumerate(fast["ends"][1:], 1)
    )


@pytest.mark.parametrize("max_lag", [2, STEPS])
def test_all_have_the_same_weights_after_every_step(max_lag):
    fast, other, slow = results = _run(max_lag)
    assert fast["digests"] == other["digests"] == slow["digests"]
    assert len(set(fast["digests"])) == STEPS
    # The one more: it has a step's results, and has not noted the time yet.
    assert 1 < _behind(fast, slow) <= max_lag + 1
    lags = slow["lags"]
    assert [lag["rank"] for lag in lags] == [0, 1, 2]
    assert lags[programs.SLOW]["dropped"] > STEPS * programs.TENSORS / 4
    assert lags[0]["dropped"] + lags[1]["dropped"] < lags[programs.SLOW]["dropped"] / 4
    if max_lag == STEPS:  # nobody ever waits for it
        medians = [_median_step(result) for result in results]
        assert max(medians[:2]) < 0.6 * medians[programs.SLOW], medians


def test_without_backup_workers_the_lags_show_who_is_slow():
    fast, other, slow = _run(2, backup_workers=0)
    assert fast["digests"] == other["digests"] == slow["digests"]
    assert _behind(fast, slow) <= 1
    recent = [lag["recent_ms"] for lag in fast["lags"]]
    assert max(recent) == recent[programs.SLOW]
    assert PAUSE * 1000 < recent[programs.SLOW] < 10_000
    assert recent[0] < recent[programs.SLOW] / 2 and recent[1] < recent[programs.SLOW] / 2
    assert sum(lag["dropped"] for lag in fast["lags"]) == 0
    assert all(lag["max_ms"] >= lag["recent_ms"] / 2 for lag in fast["lags"])


def test_everything_else_waits_for_all():
    env = {"BYTEPS_BACKUP_WORKERS": "1"}
    expected = [[6, 6], [3, 3], [3, 3], [1, 1, 2, 2, 3, 3]]
    for rank, results in enumerate(run_workers(programs.others_wait, workers=3, env=env)):
        for (result, seconds), right in zip(results, expected):
            assert result == right
            assert rank == programs.SLOW or seconds > 0.1


def test_refused_where_arrival_must_not_matter():
    for messages in run_workers(programs.refused, env={"BYTEPS_DETERMINISTIC": "1"}):
        assert len(messages) == 4
        for message in messages[:2]:
            assert "deterministic mode forbids; set one of them only" in message
        for message in messages[2:]:
            assert "only a sum or an average can do without some of the workers" in message
    with pytest.raises(ConfigError, match="set one of them only"):
        Config.from_environment({"BYTEPS_BACKUP_WORKERS": "1", "BYTEPS_DETERMINISTIC": "1"})
