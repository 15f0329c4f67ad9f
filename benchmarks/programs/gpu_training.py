"""A process that trains a model of examples/keras_synthetic_benchmark.py, on a GPU or several."""

import hashlib
import os
import statistics
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

from benchmarks.sessions import ROOT

sys.path.append(str(ROOT / "examples"))
import keras_synthetic_benchmark as synthetic  # noqa: E402

_training = {}


def join(strategy, model, mixed, batch, dense, gpus, cpu=False):
    """Makes strategy and model; returns what is to be known of them."""
    seen = tf.config.list_physical_devices("GPU")
    if len(seen) != gpus and not cpu:
        # Without its libraries TensorFlow would run on the CPU without a word.
        raise RuntimeError(f"TensorFlow sees {len(seen)} GPUs and should see {gpus}: {seen}")
    if mixed:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    made, _ = synthetic.make_strategy(strategy)
    batch = batch or synthetic.MODELS[model][1]
    step, built = synthetic.make_step(made, model, batch, dense)
    _training.update(strategy=strategy, step=step, model=built)
    gradients = sum(np.prod(v.shape) * v.dtype.size for v in _variables())
    return {"batch": batch, "replicas": made.num_replicas_in_sync, "gradient_bytes": int(gradients)}


def measure(warmup, steps, rounds):
    """Milliseconds of a step, of each round."""
    return synthetic.measure(_training["step"], warmup, steps, rounds)


def first_gradient(steps):
    """Seconds from the end of a step's last exchange to the next one's first gradient (median)."""
    import tf_byteps

    with tempfile.TemporaryDirectory() as folder:
        tf_byteps.start_timeline(os.path.join(folder, "timeline.json"))
        for _ in range(steps + 1):
            loss = _training["step"]()
        float(loss)
        parts = tf_byteps.timeline.read(tf_byteps.stop_timeline())
    first, last = {}, {}
    for part in parts:
        ready = part.computed or part.enqueued
        first[part.round] = min(first.get(part.round, ready), ready)
        last[part.round] = max(last.get(part.round, 0), part.done)
    waits = [first[r] - last[r - 1] for r in first if r - 1 in last]
    return max(0.0, statistics.median(waits) / 1e9)


def weights():
    """A digest of all trained weights."""
    digest = hashlib.sha256()
    for variable in _variables():
        digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return digest.hexdigest()


def leave():
    if _training["strategy"] == "byteps":
        import tf_byteps

        tf_byteps.shutdown()


def _variables():
    return [tf.convert_to_tensor(v.value) for v in _training["model"].trainable_variables]
