"""Networks that are cut; see cuts.py."""

import pytest

from benchmarks.cluster import why_unavailable
from tests.faults import cuts

_QUICK = {"server brief cut 2 workers", "worker long cut 2 workers"}


def _marked(cut):
    return pytest.param(
        cut, marks=() if str(cut) in _QUICK else pytest.mark.slow, id=str(cut).replace(" ", "-")
    )


@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "available")
@pytest.mark.parametrize("cut", [_marked(cut) for cut in cuts.cases()])
def test_a_cut(cut):
    if cuts.why_not(cut):
        pytest.skip(cuts.why_not(cut))
    result = cuts.run(cut)
    assert not result.faults, f"seed {cut.seed}\n{result.text}"
