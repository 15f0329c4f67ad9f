"""The trace of a whole job, and the clocks of its processes."""

import collections
import json

import numpy as np
import pytest

import tf_byteps
from tests.cluster import run_workers
from tf_byteps import _engine, timeline
from tf_byteps.timeline.clocks import align, aligned
from tf_byteps.timeline.report import main
from tf_byteps.timeline.scheduler_recorder import PID
from tf_byteps.timeline.server_recorder import FIRST_PID

SECONDS = 40
ROUNDS = 200
AHEAD = (5_000_000_000, -5_000_000_000)


def rounds_by_clocks_that_differ():
    _engine.shift_wall_clock(AHEAD[tf_byteps.config.Config.from_environment().global_rank or 0])
    tf_byteps.init()
    for _ in range(ROUNDS):
        handles = [_engine.exchange(np.ones(500, np.float32), name=name) for name in "abcd"]
        for handle in handles:
            handle.wait(SECONDS)
    tf_byteps.shutdown()
    return tf_byteps.config.Config.from_environment().global_rank


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("timeline")
    env = {"BYTEPS_TIMELINE": f"{path}/"}
    run_workers(rounds_by_clocks_that_differ, workers=2, servers=2, env=env)
    assert main([str(path)]) == 0
    return path


def test_clocks_that_differ_are_aligned(folder):
    clocks = align(timeline.read(folder))
    planted = {("worker", 1): AHEAD[1] - AHEAD[0]}
    planted |= {("server", rank): -AHEAD[0] for rank in (0, 1)}
    for process, offset in planted.items():
        clock = clocks[process]
        assert abs(clock.offset_ns - offset) <= clock.error_ns <= 200_000, (process, clock)
    for part in (aligned(part, clocks) for part in timeline.read(folder)):
        assert part.pushed <= part.arrival_began <= part.answered <= part.reply_began


def test_every_worker_and_server_has_its_tracks(folder):
    trace = json.loads((folder / "job.json").read_text())
    names = collections.defaultdict(set)
    for event in trace["traceEvents"]:
        if event["name"] == "thread_name":
            names[event["pid"]].add(event["args"]["name"])
    assert set(names) == {0, 1, FIRST_PID, FIRST_PID + 1, PID}
    assert {"step", "push", "pull"} <= names[0] == names[1]
    assert names[FIRST_PID] == {"arrive", "sum"}
    of_worker = [e for e in trace["traceEvents"] if e["pid"] == 0 and e["ph"] == "M"]
    places = [e["args"]["sort_index"] for e in of_worker if e["name"] == "thread_sort_index"]
    tracks = [e["args"]["name"] for e in of_worker if e["name"] == "thread_name"]
    order = [name for _, name in sorted(zip(places, tracks, strict=True))]
    assert order.index("step") < order.index("queue") < order.index("push") < order.index("pull")
    clocks = trace["otherData"]["clocks"]
    assert set(clocks) == {"worker 0", "worker 1", "server 0", "server 1", "scheduler"}


def test_slices_of_a_track_do_not_cross_and_flows_match(folder):
    events = json.loads((folder / "job.json").read_text())["traceEvents"]
    tracks, flows = collections.defaultdict(list), collections.defaultdict(list)
    for event in events:
        assert event["ph"] == "M" or event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= (0 if event["cat"] in ("push", "sum", "pull") else 1)
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in "stf":
            flows[event["id"]].append(event)
    for slices in tracks.values():
        for (_, end), (begin, _) in zip(sorted(slices), sorted(slices)[1:], strict=False):
            assert begin >= end - 0.001
    assert len(flows) == ROUNDS * 4 * 2
    for flow in flows.values():
        assert [event["ph"] for event in flow] == ["s", "t", "f"]
        assert flow[0]["ts"] <= flow[1]["ts"] <= flow[2]["ts"]
        assert flow[0]["pid"] == flow[2]["pid"] < FIRST_PID <= flow[1]["pid"]
        for event in flow:
            slices = tracks[event["pid"], event["tid"]]
            assert any(b - 0.001 <= event["ts"] <= e + 0.001 for b, e in slices)


def test_bytes_in_flight_return_to_none(folder):
    events = json.loads((folder / "job.json").read_text())["traceEvents"]
    last = {e["pid"]: e["args"]["bytes"] for e in events if e["name"] == "bytes in flight"}
    assert last == {0: 0, 1: 0}


def test_rates_add_up_to_the_bytes(folder):
    events = json.loads((folder / "job.json").read_text())["traceEvents"]
    rates = collections.defaultdict(list)
    for event in events:
        if event["name"] == "MB/s in":
            rates[event["pid"]].append((event["ts"], event["args"]["MB/s"]))
    received = collections.Counter()
    for part in timeline.read(folder):
        received[part.worker] += part.bytes
        received[FIRST_PID + part.server] += part.bytes
    assert set(rates) == set(received)
    for pid, points in rates.items():
        assert points == sorted(points) and points[-1][1] == 0 <= min(rate for _, rate in points)
        # A microsecond of 1 MB/s is a byte.
        total = sum(r * (after - at) for (at, r), (after, _) in zip(points, points[1:]))
        assert total == pytest.approx(received[pid], rel=0.01)
