"""The timeline: what the engine records, and the file that a worker writes."""

import json
import os
import time

import numpy as np
import pytest

import tf_byteps
from tests.cluster import describe, run_processes, run_workers
from tf_byteps import BytePSError, _engine, timeline
from tf_byteps.timeline import worker_recorder

PART_BYTES = 1 << 20
SECONDS = 40
LATE = 0.3
ON_GPUS = ("computed", "reduced", "copied_out", "copied_in", "broadcast")
CPU_STAGES = ["declare", "queue", "push", "sum", "pull", "other parts"]


def exchange(name, elements=1, **arguments):
    return _engine.exchange(np.ones(elements, np.float32), name=name, **arguments)


def sums_of_three_parts():
    """Two rounds of a tensor of three parts; worker 1 comes late to the second."""
    tf_byteps.init()
    elements = 5 * PART_BYTES // 8
    for round in range(2):
        time.sleep(LATE * round * tf_byteps.rank())
        exchange("large", elements, priority=3).wait(SECONDS)
    exchange("gathered", kind="gather").wait(SECONDS)
    tf_byteps.shutdown()


def recorded_in_between(path):
    tf_byteps.init()
    exchange("before").wait(SECONDS)
    written = []
    for name in ("first", "second"):
        tf_byteps.start_timeline(path)
        with pytest.raises(BytePSError, match="being recorded already"):
            tf_byteps.start_timeline(path)
        exchange(name).wait(SECONDS)
        written.append(tf_byteps.stop_timeline())
    exchange("after").wait(SECONDS)
    with pytest.raises(BytePSError, match="no timeline is being recorded"):
        tf_byteps.stop_timeline()
    return [[file, [part.tensor for part in timeline.read(file)]] for file in written]


def failing():
    tf_byteps.init()
    exchange("good").wait(SECONDS)
    elements = 1 + tf_byteps.rank()
    exchange("disagreement", elements).wait(SECONDS)  # raises


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Those of `sums_of_three_parts`, by (worker, tensor, round, part)."""
    folder = tmp_path_factory.mktemp("timeline")
    env = {"BYTEPS_TIMELINE": str(folder), "BYTEPS_PARTITION_BYTES": str(PART_BYTES)}
    run_workers(sums_of_three_parts, env=env)
    read = timeline.read(folder)
    assert sorted(os.listdir(folder)) == [
        "timeline-scheduler.json",
        "timeline-server-0.json",
        "worker-0.json",
        "worker-1.json",
    ]
    by_identity = {(p.worker, p.tensor, p.round, p.part): p for p in read}
    assert len(by_identity) == len(read)
    return by_identity


def test_every_part_of_every_round_is_there(parts):
    expected = {(w, "large", r, p) for w in (0, 1) for r in (0, 1) for p in (0, 1, 2)}
    assert set(parts) == expected | {(w, "gathered", 0, 0) for w in (0, 1)}
    part = parts[0, "large", 0, 2]
    assert (part.bytes, part.parts, part.server, part.priority) == (PART_BYTES // 2, 3, 0, 3)
    assert (part.kind, part.dtype, part.status) == ("sum", "float32", "OK")
    assert parts[1, "gathered", 0, 0].kind == "gather"


def test_times_are_in_order(parts):
    """All processes are on one machine, and so have one clock."""
    for part in parts.values():
        assert part.enqueued <= part.placed <= part.pushed <= part.arrival_began, part
        assert part.arrival_began <= part.arrived <= part.answered, part
        assert part.answered <= part.reply_began <= part.reply_received <= part.done, part
        stages = part.stages()
        assert [name for name, _, _ in stages] == CPU_STAGES
        assert not any(getattr(part, name) for name in ON_GPUS)
        assert stages[0][1] == part.enqueued and stages[-1][2] == part.done
        assert all(a[2] == b[1] for a, b in zip(stages, stages[1:], strict=False))
    assert abs(part.done - time.time_ns()) < 600e9


def test_a_late_worker_shows_as_a_wait_for_the_sum_at_the_others(parts):
    for number in range(3):
        waited, late = parts[0, "large", 1, number], parts[1, "large", 1, number]
        assert waited.answered - waited.arrived > LATE / 2 * 1e9
        assert late.answered - late.arrived < LATE / 2 * 1e9
        assert waited.arrived < late.enqueued


def test_the_file_is_a_chrome_trace(tmp_path):
    env = {"BYTEPS_TIMELINE": str(tmp_path / "trace.json"), "BYTEPS_PARTITION_BYTES": "100000000"}
    run_workers(sums_of_three_parts, env=env)
    trace = json.loads((tmp_path / "trace.1.json").read_text())
    rows = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert sorted(rows.values()) == ["gathered", "large"]  # of one part each
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {e["pid"] for e in spans} == {1}
    for tid in rows:
        row = sorted((e for e in spans if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"]))
        outer = [e for e in row if e["cat"] == "part"]
        assert [e["name"] for e in outer] == [
            f"{outer[0]['args']['kind']} round {r}" for r in range(len(outer))
        ]
        for stage in (e for e in row if e["cat"] == "stage"):
            assert any(
                e["ts"] <= stage["ts"] and stage["ts"] + stage["dur"] <= e["ts"] + e["dur"]
                for e in outer
            )


def test_recording_a_piece_of_a_program(tmp_path):
    results = run_workers(recorded_in_between, args=(f"{tmp_path}/new/",))
    for rank, recordings in enumerate(results):
        assert recordings == [
            [f"{tmp_path}/new/worker-{rank}.json", ["first"]],
            [f"{tmp_path}/new/worker-{rank}.2.json", ["second"]],
        ]


def test_one_worker_without_server_has_times_too(tmp_path):
    run_workers(recorded_in_between, workers=1, servers=0, args=(f"{tmp_path}/",))
    [part] = timeline.read(tmp_path / "worker-0.json")
    assert part.tensor == "first" and part.enqueued <= part.done
    assert part.server == -1 and part.pushed is None and part.stages() == []


def test_a_worker_that_fails_leaves_its_timeline(tmp_path):
    outcomes = run_processes(failing, env={"BYTEPS_TIMELINE": str(tmp_path)})
    assert [o.code for o in outcomes if o.label.startswith("worker")] == [1, 1], describe(outcomes)
    status = {(p.worker, p.tensor): p.status for p in timeline.read(tmp_path)}
    assert status[0, "good"] == status[1, "good"] == "OK"
    assert status[0, "disagreement"] == status[1, "disagreement"] == "FAILED_PRECONDITION"


def test_what_is_beyond_the_limit_is_counted(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(worker_recorder, "MAX_PARTS", 2)
    tf_byteps.init()
    try:
        tf_byteps.start_timeline(tmp_path / "trace.json")
        for _ in range(5):
            exchange("x").wait(SECONDS)
        path = tf_byteps.stop_timeline()
    finally:
        tf_byteps.shutdown()
    assert len(timeline.read(path)) == 2
    assert (
        json.loads((tmp_path / "trace.0.json").read_text())["otherData"]["dropped_exchanges"] == 3
    )
    assert "3 exchanges came after them" in caplog.text


def test_a_file_that_cannot_be_written_does_not_hold_the_end_up(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    tf_byteps.init(timeline=str(tmp_path / "file" / "trace.json"))
    tf_byteps.shutdown()
    assert "the timeline cannot be written" in caplog.text


def test_clocks_that_differ_make_no_stage_end_before_it_begins():
    times = dict.fromkeys(("arrival_began", "arrived", "answered"), 50)  # 100 behind
    times |= {"enqueued": 100, "placed": 110, "pushed": 120}
    times |= {"reply_began": 170, "reply_received": 180, "done": 190}
    times |= dict.fromkeys(ON_GPUS)
    part = timeline.Part(0, "x", "sum", "float32", 0, 0, "OK", 0, 1, 4, 0, **times)
    durations = {name: end - begin for name, begin, end in part.stages()}
    assert durations["push"] == durations["sum"] == 0 and durations["pull"] == 60
    assert sum(durations.values()) == part.done - part.enqueued


def test_a_part_that_another_worker_sends_has_the_stages_of_its_gpu():
    times = dict.fromkeys((*ON_GPUS, "arrival_began", "arrived", "answered", "reply_began"))
    times |= {"enqueued": 100, "placed": 110, "computed": 120, "reduced": 130, "pushed": None}
    times |= {"reply_received": None, "broadcast": 180, "done": 190}
    part = timeline.Part(0, "x", "sum", "float32", 0, 0, "OK", 0, 1, 4, 0, **times)
    assert [(name, end) for name, _, end in part.stages()] == [
        ("declare", 110),
        ("compute", 120),
        ("reduce", 130),
        ("broadcast", 180),
        ("other parts", 190),
    ]


def test_what_is_no_timeline(tmp_path):
    with pytest.raises(BytePSError, match="no file is named like worker-0.json"):
        timeline.read(tmp_path)
    for content in ("", "[]", '{"traceEvents": []}'):
        (tmp_path / "worker-0.json").write_text(content)
        with pytest.raises(BytePSError, match="is not a timeline of tf_byteps"):
            timeline.read(tmp_path)
