"""Clocks of real processes that are set 5 seconds apart and run at different speeds."""

import json
import os
import pathlib
import select
import subprocess

import numpy as np
import pytest

import tf_byteps
from tests.cluster import Cluster, describe
from tests.debian import find_program
from tf_byteps import _engine, timeline
from tf_byteps.timeline.clocks import align, aligned, aligned_served
from tf_byteps.timeline.files import events_of
from tf_byteps.timeline.report import main
from tf_byteps.timeline.server_recorder import Served

SECONDS = 40
TRAINING_SECONDS = 8
MOST_ERROR_NS = 200_000
# libfaketime's words for a clock: how much it is ahead, and its speed.
CLOCKS = {
    ("worker", 0): ("+5s x1.00005", 50),
    ("worker", 1): ("-5s x0.99995", -50),
    ("server", 0): ("+0s x1.00000", 0),
}
# Runs in each process. The C library's own function has the host's clock, which libfaketime reads:
# two samples tell what the other one does. A host that sets its clock meanwhile moves both alike.
# Of many tries the one counts in which nothing else has run in between.
WITNESS = """
import atexit, ctypes, json, os, sys, time

clock_gettime = ctypes.CDLL("libc.so.6").clock_gettime

def host_ns():
    now = (ctypes.c_int64 * 2)()
    assert clock_gettime(time.CLOCK_REALTIME, now) == 0
    return now[0] * 10**9 + now[1]

def sample():
    tries = [(host_ns(), time.time_ns(), host_ns()) for _ in range(200)]
    with open(os.environ["TESTS_CLOCK_FILE"], "a") as file:
        print(json.dumps(min(tries, key=lambda each: each[2] - each[0])), file=file)

if "tests.cluster" in sys.orig_argv or "tf_byteps.server" in sys.orig_argv:
    sample()
    atexit.register(sample)
"""


@pytest.fixture(scope="module")
def libfaketime():
    """The library that gives a process a clock of its own."""
    find_program("faketime", "faketime")
    listed = subprocess.run(
        ["dpkg", "-L", "libfaketime"], capture_output=True, text=True, check=False
    )
    found = [line for line in listed.stdout.split() if line.endswith("/libfaketime.so.1")]
    if not found:
        pytest.skip("libfaketime.so.1 is missing: apt-get install faketime")
    return found[0]


def exchange_for_seconds():
    tf_byteps.init()
    rounds = TRAINING_SECONDS * 50
    for _ in range(rounds):  # the same number on each worker
        handles = [_engine.exchange(np.ones(500, np.float32), name=name) for name in "abcd"]
        for handle in handles:
            handle.wait(SECONDS)
        # libfaketime 0.9.10 has time.sleep fail: it does not know sleeps until a monotonic time.
        select.select([], [], [], TRAINING_SECONDS / rounds)
    tf_byteps.shutdown()


class Witnessed:
    """A process's clock, as two samples of it have it beside the host's clock."""

    def __init__(self, path):
        first, last = (json.loads(line) for line in path.read_text().splitlines())
        (self._from, self._shown), (until, shown) = (
            ((before + after) // 2, wall) for before, wall, after in (first, last)
        )
        # Differences: a float has no nanoseconds since 1970.
        self.gained_ppm = (
            ((shown - self._shown) - (until - self._from)) / (until - self._from) * 1e6
        )
        self.unsure_ns = max(after - before for before, _, after in (first, last))

    def shows(self, moment):
        ran = moment - self._from
        return self._shown + ran + round(ran * self.gained_ppm * 1e-6)

    def moment(self, shown):
        ran = shown - self._shown
        return self._from + ran - round(ran * self.gained_ppm / (1e6 + self.gained_ppm))


@pytest.fixture(scope="module")
def recorded(libfaketime, tmp_path_factory):
    """The folder of a job's timeline, and how the clocks of its processes really were."""
    folder, aside = tmp_path_factory.mktemp("timeline"), tmp_path_factory.mktemp("witness")
    (aside / "sitecustomize.py").write_text(WITNESS)

    def environment(label):
        role, _, rank = label.partition(" ")
        if role == "scheduler":
            return {"BYTEPS_TIMELINE": f"{folder}/"}
        preloaded = " ".join(filter(None, [libfaketime, os.environ.get("LD_PRELOAD")]))
        paths = [str(aside), str(pathlib.Path(tf_byteps.__file__).parent.parent)]
        return {
            "BYTEPS_TIMELINE": f"{folder}/",
            "LD_PRELOAD": preloaded,
            "FAKETIME": CLOCKS[role, int(rank)][0],
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TESTS_CLOCK_FILE": str(aside / f"{role}-{rank}"),
            "PYTHONPATH": os.pathsep.join(paths),
        }

    with Cluster(exchange_for_seconds, workers=2, servers=1, env=environment) as job:
        outcomes = job.wait(60)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    return folder, {(role, rank): Witnessed(aside / f"{role}-{rank}") for role, rank in CLOCKS}


def test_the_planted_clocks_are_there(recorded):
    """Else the others would say nothing."""
    _, truth = recorded
    for process, (_, ppm) in CLOCKS.items():
        assert truth[process].gained_ppm == pytest.approx(ppm, abs=5), process
    parts = timeline.read(recorded[0])
    begins = [min(part.enqueued for part in parts if part.worker == rank) for rank in (0, 1)]
    assert 9e9 < begins[0] - begins[1] < 11e9


def test_all_times_are_right_within_200_microseconds(recorded):
    folder, truth = recorded
    parts = timeline.read(folder)
    found = align(parts)
    first = truth["worker", 0]
    begin, end = (
        min(part.enqueued for part in parts if part.worker == 0),
        max(part.done for part in parts if part.worker == 0),
    )
    worst = 0
    for share in range(21):
        moment = first.moment(begin + (end - begin) * share // 20)
        for process, clock in found.items():
            shown = truth[process].shows(moment)
            off = abs(clock.ahead(shown) - (shown - first.shows(moment)))
            unsure = truth[process].unsure_ns + first.unsure_ns
            assert off <= clock.error_ns + unsure, (process, share, clock)
            worst = max(worst, off)
    errors = {f"{role} {rank}": found[role, rank].error_ns for role, rank in CLOCKS}
    print(f"{worst / 1e3:.1f} µs wrong at most; error_ns: {errors}")
    assert worst <= MOST_ERROR_NS, found


def test_no_push_arrives_before_it_was_sent(recorded):
    folder, _ = recorded
    parts = timeline.read(folder)
    found = align(parts)
    for part in (aligned(part, found) for part in parts):
        assert part.pushed <= part.arrival_began <= part.answered <= part.reply_began
    sent = {(p.tensor, p.part, p.round, p.worker): aligned(p, found).pushed for p in parts}
    served = [
        aligned_served(Served(**event["args"]), found)
        for event in events_of(str(folder / "timeline-server-0.json"))
        if event.get("cat") == "served"
    ]
    assert len(served) == len(parts)
    for push in served:
        key = (push.tensor, push.part, push.round, push.worker)
        assert sent[key] <= push.arrival_began


def test_stages_are_told_by_one_clock(recorded, capsys):
    """By clocks that are 5 seconds apart a push ends before it begins, or never comes."""
    folder, _ = recorded
    assert main([str(folder), "--explain"]) == 0
    reported = capsys.readouterr().out
    for worker in (0, 1):
        of_worker = reported.partition(f"worker {worker}, ")[2].partition("most often last")[0]
        for stage in ("queue", "push", "pull"):
            assert f"\n  {stage} " in of_worker, reported


def test_arrows_of_the_merged_file_point_forward(recorded):
    folder, _ = recorded
    assert main([str(folder)]) == 0
    merged = json.loads((folder / "job.json").read_text())
    arrows = {}
    for event in merged["traceEvents"]:
        if event["ph"] in "stf":
            arrows.setdefault(event["id"], []).append(event["ts"])
    assert len(arrows) == len(timeline.read(folder))
    assert all(times == sorted(times) and len(times) == 3 for times in arrows.values())
    for name, clock in merged["otherData"]["clocks"].items():
        assert clock["error_ns"] <= MOST_ERROR_NS, name
