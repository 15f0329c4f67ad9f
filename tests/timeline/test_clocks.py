"""The estimate of clocks, from exchanges between processes whose clocks are known."""

import dataclasses
import random

import pytest

from tf_byteps.timeline import Part
from tf_byteps.timeline.clocks import align, aligned

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
LEAST_NS = 30_000  # what a frame takes at least
MOST_ERROR_NS = 200_000
PPM = 1e-6
WORKERS, SERVERS = 2, 2
NEVER = dict.fromkeys(("computed", "reduced", "copied_out", "copied_in", "broadcast"))


@dataclasses.dataclass
class Truth:
    """A clock that was set to differ, and runs at a wrong speed, which may change once."""

    ahead_ns: int
    drift: float
    changes_at: float = 1e12
    drift_later: float = 0.0

    def __call__(self, seconds):
        before, after = min(seconds, self.changes_at), max(0.0, seconds - self.changes_at)
        ran = seconds + before * self.drift + after * self.drift_later
        return START + self.ahead_ns + round(ran * SECOND)


def job(clocks, seconds, per_second, seed=1):
    """The parts of exchanges of all workers with all servers, each at a random moment."""
    chance = random.Random(seed)

    def took():
        return (LEAST_NS + chance.expovariate(1 / 300_000)) / SECOND

    parts = []
    for number in range(round(seconds * per_second)):
        begin = (number + chance.random()) / per_second
        for worker in range(WORKERS):
            for server in range(SERVERS):
                own, its = clocks["worker", worker], clocks["server", server]
                arrived = begin + took()
                answered = arrived + took()
                came = answered + took()
                at_server = {"arrival_began": its(arrived), "arrived": its(arrived)}
                at_server["answered"] = its(answered)
                times = {name: own(begin) for name in ("enqueued", "placed", "pushed")}
                times |= {name: own(came) for name in ("reply_began", "reply_received", "done")}
                name = f"{worker} {server}"
                about = (worker, name, "sum", "float32", number, 0, "OK", 0, 1, 4, server)
                parts.append(Part(*about, **at_server, **times, **NEVER))
    return parts


def off_by(clock, truth, first, seconds):
    """How wrong an estimate is at a time, in ns."""
    return abs(clock.ahead(truth(seconds)) - (truth(seconds) - first(seconds)))


FIVE_SECONDS = {
    ("worker", 0): Truth(5 * SECOND, 20 * PPM),
    ("worker", 1): Truth(-5 * SECOND, -30 * PPM),
    ("server", 0): Truth(0, 50 * PPM),
    ("server", 1): Truth(-5 * SECOND, -50 * PPM),
}
SET_MEANWHILE = {
    **FIVE_SECONDS,
    ("worker", 1): Truth(-5 * SECOND, -30 * PPM, 300.0, 20 * PPM),
    ("server", 1): Truth(5 * SECOND, 50 * PPM, 200.0, -10 * PPM),
}


@pytest.mark.parametrize(
    "clocks, seconds, per_second",
    [
        (FIVE_SECONDS, 600, 10),
        pytest.param(FIVE_SECONDS, 3600, 2, marks=pytest.mark.extended),
        (FIVE_SECONDS, 30, 50),
        (FIVE_SECONDS, 1, 100),
        (SET_MEANWHILE, 600, 20),
    ],
)
def test_clocks_that_are_set_and_run_differently_are_aligned(clocks, seconds, per_second):
    parts = job(clocks, seconds, per_second)
    found = align(parts)
    assert found["worker", 0].error_ns == 0
    for process, clock in found.items():
        for time in (seconds * share / 20 for share in range(21)):
            off = off_by(clock, clocks[process], clocks["worker", 0], time)
            assert off <= MOST_ERROR_NS, (process, time, clock)
            assert off <= clock.error_ns, (process, time, clock)
    for part in (aligned(part, found) for part in parts):
        assert part.pushed <= part.arrival_began <= part.answered <= part.reply_began


def test_the_drift_is_told():
    found = align(job(FIVE_SECONDS, 60, 10))
    assert found["server", 0].drift_ppm == pytest.approx(30, abs=2)
    assert found["server", 1].drift_ppm == pytest.approx(-70, abs=2)


def test_clocks_that_run_alike_get_no_drift():
    """A few exchanges always leave most room to some drift."""
    alike = {process: Truth(truth.ahead_ns, 0.0) for process, truth in FIVE_SECONDS.items()}
    for seed in range(20):
        found = align(job(alike, 0.05, 200, seed))
        assert max(abs(clock.drift_ppm) for clock in found.values()) < 300
        for process, clock in found.items():
            off = off_by(clock, alike[process], alike["worker", 0], 0.02)
            assert off <= clock.error_ns <= 1_000_000


def test_a_clock_that_jumps_is_in_the_error():
    jump = 40_000_000
    early, late = job(FIVE_SECONDS, 10, 20, 1), job(FIVE_SECONDS, 10, 20, 2)
    moved = [
        dataclasses.replace(
            part,
            **{
                name: getattr(part, name) + 10 * SECOND + (jump if part.server == 1 else 0)
                for name in ("arrival_began", "arrived", "answered")
            },
            **{
                name: getattr(part, name) + 10 * SECOND
                for name in ("pushed", "reply_began", "reply_received", "done")
            },
        )
        for part in late
    ]
    found = align(early + moved)
    assert found["server", 1].error_ns > jump / 4


def test_of_a_process_that_was_never_heard_nothing_is_known():
    parts = job(FIVE_SECONDS, 1, 20)
    silent = [dataclasses.replace(part, server=7, arrival_began=None) for part in parts]
    found = align(parts + silent)
    assert found["server", 7].error_ns is None
    assert found["server", 1].error_ns is not None
