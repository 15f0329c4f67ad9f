"""Credit and parts that follow what the links carry."""

import pytest

from tests.cluster import run_workers
from tests.engine import programs


def on_hosts_of_their_own(**variables):
    return lambda label: {"BYTEPS_HOST_ID": label, **variables}


@pytest.mark.parametrize("servers", [1, 3])
def test_parts_become_shorter_for_slow_links_while_the_job_goes_on(servers):
    env = on_hosts_of_their_own(BYTEPS_LINK_BYTES_PER_SECOND="20000000")
    before, after, credit = zip(*run_workers(programs.tuned, 3, servers, env))
    # What 20 MB/s carry in 20 ms, and in the time that a message takes there and back.
    assert 400_000 <= credit[0] < 800_000
    # 4 MB in parts of 128 KB, and then of 1/16 of the credit, but not below 64 KB or 1/8 of it.
    assert before == (31,) * 3
    assert after[0] == pytest.approx(4_000_000 / min(64 * 1024, credit[0] // 8), abs=1)
    assert len(set(zip(after, credit))) == 1


def test_steps_that_overlap_keep_less_on_the_way():
    env = on_hosts_of_their_own(BYTEPS_LINK_BYTES_PER_SECOND="40000000")
    first, second = run_workers(programs.tuned_overlapping, 2, 2, env)
    assert first == second
    credit, of_long_steps, of_short_steps = first
    assert 800_000 <= credit < 1_600_000
    assert of_long_steps == 4_000_000 // 8
    assert of_short_steps == credit // 4


def test_what_is_fixed_stays():
    env = on_hosts_of_their_own(
        BYTEPS_LINK_BYTES_PER_SECOND="20000000",
        BYTEPS_PARTITION_BYTES="1000000",
        BYTEPS_CREDIT_BYTES="3000000",
    )
    assert run_workers(programs.tuned, 2, 2, env) == [[4, 4, 3000000]] * 2


@pytest.mark.parametrize("variables", [{}, {"BYTEPS_PARTITION_BYTES": "100000"}])
def test_slow_links_make_auto_compress(variables):
    env = on_hosts_of_their_own(BYTEPS_LINK_BYTES_PER_SECOND="20000000", **variables)
    (first, later), *others = run_workers(programs.automatic, 2, 2, env)
    assert others == [[first, later]]
    assert first[0] and not first[-1], "compressed when links were known"
    assert first == sorted(first, reverse=True), "once"
    assert not any(later)


def test_auto_is_none_over_fast_links_and_on_one_host():
    fast = on_hosts_of_their_own(BYTEPS_LINK_BYTES_PER_SECOND="40000000000")
    for env in (fast, {"BYTEPS_LINK_BYTES_PER_SECOND": "20000000"}):
        assert run_workers(programs.automatic, 2, 1, env) == [[[True] * 12] * 2] * 2


def test_one_host_has_no_links():
    env = {"BYTEPS_LINK_BYTES_PER_SECOND": "10000000"}
    assert run_workers(programs.tuned, 2, 1, env) == [[31, 31, 2 * 1024 * 1024]] * 2


def test_links_are_measured():
    """No number: but all workers get the same, and it is not the one to begin with."""
    first, second = run_workers(programs.measured, 2, 1, on_hosts_of_their_own())
    assert first == second
    assert first != 2 * 1024 * 1024
