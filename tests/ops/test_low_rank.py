"""PowerSGD in jobs of real processes."""

import pytest

from tests.cluster import run_workers
from tests.ops import low_rank_programs as programs

pytestmark = pytest.mark.time_limit(300)
_ALL = {"BYTEPS_MIN_COMPRESS_BYTES": "4096"}


def test_averages():
    first, second = run_workers(programs.averages, 2, 1, _ALL, timeout=240)
    assert first == second
    for how in ("eager", "traced", "compiled"):
        errors = first[how]
        assert errors["simple"] < 1e-4, "two columns are enough for one"
        assert errors["sum"] < 1e-4
        for error, bound in zip(errors["scaled"], (1e-4, 1e-4, 0.05), strict=False):
            # Parts of products near the smallest normal number vanish.
            assert error < bound, errors["scaled"]
        assert errors["first"] > 0.5, "and not for any number"
        assert errors["mean"] < 0.5 * errors["first"], "what is lost comes later"
    assert first["shape"] == list(programs.SHAPE)
    assert not first["finite"], "loss scaling must see it"
    # Two names begin with other random numbers.
    assert first["broken"] == pytest.approx(first["unbroken"], rel=0.1)


def test_what_is_sent_as_it_is_and_what_is_refused():
    first, second = run_workers(programs.others, 2, 1, _ALL, timeout=240)
    assert first == second
    assert first["as it is"] == [[pytest.approx(2 / 3)], [pytest.approx(2 / 3)]]
    assert first["rows"] == [pytest.approx(2 / 3)]
    assert first["equal"]
    kinds, messages = zip(*first["refused"], strict=True)
    assert set(kinds) == {"ValueError"}
    expected = ("rank is 0", "rank is 'x'", "'columns'", "'max'", "cross_step", "cross_step")
    for given, message in zip((*expected, "backup_workers is 1"), messages, strict=True):
        assert given in message, message
