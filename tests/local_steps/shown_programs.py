"""What the workers of test_shown.py do."""

import logging
import os

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tf_byteps import step_counters, timeline
from tf_byteps.keras.callbacks import Telemetry
from tf_byteps.metrics import sources
from tf_byteps.timeline.job_trace import job_trace
from tf_byteps.timeline.parts import read_outer_rounds
from tf_byteps.timeline.recording import recording_of

_STEPS, _EPOCHS = 8, 2
_SHAPE = (4, 8)


def _fit(settings, callbacks=()):
    strategy = tf_byteps.BytePSStrategy(**settings)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        dense = keras.layers.Dense(_SHAPE[1], use_bias=False)
        model = keras.Sequential([keras.Input(_SHAPE[:1]), dense])
        model.compile(keras.optimizers.SGD(0.01), "mse")
    random = np.random.default_rng(1)
    rows = 2 * tf_byteps.size() * _STEPS
    x, y = random.normal(size=(rows, _SHAPE[0])), random.normal(size=(rows, _SHAPE[1]))
    model.fit(x, y, batch_size=rows // _STEPS, epochs=_EPOCHS, verbose=0, callbacks=list(callbacks))


def _scalars(folder):
    found = {}
    for name in os.listdir(folder):
        for event in tf.compat.v1.train.summary_iterator(os.path.join(folder, name)):
            for value in event.summary.value:
                found[value.tag] = float(tf.make_ndarray(value.tensor))
    return found


def trains(folder, settings):
    """A training: what is counted, TensorBoard's last scalars, and rounds in the timeline."""
    tf_byteps.init()
    step_counters.reset()
    rank = tf_byteps.rank()
    own = os.path.join(folder, str(rank))
    tf_byteps.start_timeline(os.path.join(folder, f"{rank}.json"))
    _fit(settings, [Telemetry(own, every_steps=4)])
    path = tf_byteps.stop_timeline()
    rounds = read_outer_rounds(path)
    track = [line for line in job_trace(recording_of(path)) if '"cat": "outer rounds"' in line]
    assert timeline.read(path)
    return {
        "counted": dict(step_counters.read()),
        "scalars": _scalars(os.path.join(own, "telemetry")) if rank == 0 else {},
        "rounds": [tuple(each) for each in rounds],
        "track": len(track),
        "sample": _sample(),
    }


def _sample():
    """As an endpoint serves it."""

    class Book:
        worker_hosts = ("a", "a")

        def elsewhere(self, host):
            return {"workers": 0, "servers": 0}

    samples = sources.worker_source(lambda: (Book(), tf_byteps.rank()))()
    (found,) = [values for name, _, values in samples if name == "local_steps"]
    return dict(found)


def drifts():
    """Weights that move apart ever faster, and then as much again: the warnings."""
    tf_byteps.init()
    rank = tf_byteps.rank()
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("tf_byteps").addHandler(handler)
    weight = tf.Variable(np.ones(4), name="drifting", dtype=tf.float64)
    outer = tf_byteps.OuterSync([weight], local_steps=1)
    for step in range(20):
        weight.assign_add(np.full(4, (1 if rank else -1) * 0.01 * 1.5**step))
        outer.step()
    logging.getLogger("tf_byteps").removeHandler(handler)
    return [each for each in said if "drift apart" in each], step_counters.read()["divergence"]
