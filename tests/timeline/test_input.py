"""Waits for input: what the worker's file has of them, and the steps that they belong to."""

import json
import time

import numpy as np
import pytest

import tf_byteps
from tests.cluster import run_workers
from tf_byteps.timeline import python_steps
from tf_byteps.timeline.parts import InputWait, Part, read_inputs
from tf_byteps.timeline.report import main
from tf_byteps.timeline.steps import cost_of, steps_of

BATCHES = 8
WAYS = {
    "a step each": {},
    "four steps": {"steps_per_execution": 4},
    "eagerly": {"run_eagerly": True},
    "compiled": {"jit_compile": True},
}
MS = 1_000_000
NEVER = ("computed", "reduced", "copied_out", "copied_in", "broadcast")


def fit_in_all_ways(folder):
    """Records a training of each way, and then a loop in Python."""
    import keras
    import tensorflow as tf

    strategy = tf_byteps.BytePSStrategy()
    spec = tf.TensorSpec([4, 4]), tf.TensorSpec([4, 2])

    def batches():
        for _ in range(BATCHES):
            time.sleep(0.01)
            yield np.ones((4, 4), np.float32), np.ones((4, 2), np.float32)

    for way, options in WAYS.items():
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            model.compile(keras.optimizers.SGD(0.01), "mse", **options)
        tf_byteps.start_timeline(f"{folder}/{way}/")
        data = tf.data.Dataset.from_generator(batches, output_signature=spec)
        model.fit(data, verbose=0)
        tf_byteps.stop_timeline()
    tf_byteps.start_timeline(f"{folder}/loop/")
    for number in tf.data.Dataset.range(BATCHES):
        tf_byteps.push_pull(tf.cast(number, tf.float32), name="gradient/number")
    tf_byteps.stop_timeline()
    tf_byteps.shutdown()


def test_waits_of_all_ways_to_train_are_recorded(tmp_path):
    run_workers(fit_in_all_ways, args=[str(tmp_path)])
    for way in (*WAYS, "loop"):
        waits = read_inputs(tmp_path / way)
        for worker in (0, 1):
            own = sorted(wait for wait in waits if wait.worker == worker)
            assert len(own) >= BATCHES, (way, own)
            assert all(wait.begin <= wait.end for wait in own)
    assert main([str(tmp_path / "a step each"), "--explain"]) == 0
    events = json.loads((tmp_path / "a step each" / "job.json").read_text())["traceEvents"]
    rows = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert {(0, "input"), (1, "input"), (0, "python"), (1, "python")} <= rows
    batches = [event for event in events if event.get("cat") == "python" and event["pid"] == 1]
    assert [event["name"] for event in batches] == [f"batch {n}" for n in range(BATCHES)]
    called = [(event["ts"], event["ts"] + event["dur"]) for event in batches]
    ends = [e["ts"] + e["dur"] for e in events if e.get("cat") == "step" and e["pid"] == 1]
    # The first step is not known.
    assert all(b <= end <= e for end, (b, e) in zip(ends, called[1:], strict=True))
    for event in events:
        if event.get("cat") == "step":
            made_of = [event["args"][f"{name}_ms"] for name in ("compute", "exposed", "input")]
            whole = event["dur"] / 1e3 + event["args"]["began_earlier_ms"]
            assert min(made_of) >= 0 and sum(made_of) == pytest.approx(whole)


def part(number, enqueued, done):
    times = dict.fromkeys(NEVER) | {"enqueued": enqueued * MS, "done": done * MS}
    times |= {name: enqueued * MS for name in ("placed", "pushed")}
    times |= {name: done * MS for name in ("arrival_began", "arrived", "answered")}
    times |= {name: done * MS for name in ("reply_began", "reply_received")}
    about = (0, "gradient/x", "sum", "float32", number, 0, "OK", 0, 1, 4, 0)
    return Part(*about, **times)


def wait(begin, end):
    return InputWait(0, begin * MS, end * MS)


def test_a_wait_belongs_to_the_step_whose_first_gradient_comes_after_it():
    parts = [part(0, 50, 60), part(1, 150, 160), part(2, 250, 260), part(3, 350, 360)]
    waits = [wait(10, 20)]  # before anything is known
    waits += [wait(70, 100), wait(90, 110)]  # of two datasets, at the same time
    waits += [wait(155, 170)]  # begins while the step before still waits for sums
    waits += [wait(255, 258), wait(352, 380)]  # only while gradients are exchanged
    steps = steps_of(parts, waits)
    assert [step.input // MS for step in steps] == [40, 10, 0]
    assert [step.exposed // MS for step in steps] == [10, 10, 10]
    assert [step.compute // MS for step in steps] == [50, 80, 90]
    middle = cost_of(steps)
    assert (middle.length, middle.input, middle.compute) == (100 * MS, 10 * MS, 80 * MS)


def test_a_step_that_has_come_back_is_noted_once():
    python_steps.begin()
    try:
        python_steps._on_begin(lambda *_: None, None, 3)
        python_steps.end_step(3)  # its batch ends later
        python_steps._on_end(lambda *_: None, None, 3)
    finally:
        python_steps.end()
    ((begin, end, batch),) = python_steps.take()
    assert begin <= end and batch == 3
