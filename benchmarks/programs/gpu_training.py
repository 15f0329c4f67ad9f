"""A process that trains a model of examples/keras_synthetic_benchmark.py, on a GPU or several."""

import collections
import hashlib
import os
import statistics
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

from benchmarks.programs import first_gradients
from benchmarks.sessions import ROOT

sys.path.append(str(ROOT / "examples"))
import keras_synthetic_benchmark as synthetic  # noqa: E402

_training = {}
# The ends of stages that `look_inside` tells of, as fields of `tf_byteps.timeline.Part`.
_ENDS = ("computed", "reduced", "copied_out", "pushed", "arrived", "answered", "reply_received")
_ENDS += ("copied_in", "broadcast", "done")


def join(strategy, model, mixed, batch, dense, gpus, cpu=False):
    """Makes strategy and model, and traces the step; returns what is to be known of them."""
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
    # Without running it: TensorFlow chooses algorithms by their time when it runs the first time.
    step.get_concrete_function()
    _training.update(strategy=strategy, step=step, model=built)
    gradients = sum(np.prod(v.shape) * v.dtype.size for v in _variables())
    return {"batch": batch, "gradient_bytes": int(gradients)}


def measure(warmup, steps, rounds):
    """Milliseconds of a step, of each round."""
    return synthetic.measure(_training["step"], warmup, steps, rounds)


def look_inside(steps, folder=None):
    """Where the time of a step goes (medians of steps, of this worker).

    Args:
        steps: their number.
        folder: where to keep the timeline; default: nowhere.

    Returns:
        A dict: `t_first`, seconds from the end of a step's last exchange to the next one's first
        gradient; `first` and `last`, milliseconds from that same end to the first and the last end
        of each stage; `stages`, the mean milliseconds of a part in each stage; `credit_bytes`.
    """
    import tf_byteps
    from tf_byteps import _engine

    with tempfile.TemporaryDirectory() as temporary:
        tf_byteps.start_timeline(os.path.join(folder or temporary, "timeline.json"))
        for _ in range(steps + 1):
            loss = _training["step"]()
        float(loss)
        parts = tf_byteps.timeline.read(tf_byteps.stop_timeline())
    recorded = first_gradients.steps_of(parts)
    first, last = collections.defaultdict(list), collections.defaultdict(list)
    for before, step in zip(recorded, recorded[1:], strict=False):
        begin = max(part.done for part in before)
        for name in _ENDS:
            times = [getattr(part, name) for part in step if getattr(part, name)]
            if times:
                first[name].append((min(times) - begin) / 1e6)
                last[name].append((max(times) - begin) / 1e6)
    stages = collections.defaultdict(list)
    for part in parts:
        for name, begin, end in part.stages():
            stages[name].append((end - begin) / 1e6)
    return {
        "t_first": statistics.median(first_gradients.seconds_to_first(recorded)),
        "first": {name: statistics.median(times) for name, times in first.items()},
        "last": {name: statistics.median(times) for name, times in last.items()},
        "stages": {name: statistics.fmean(times) for name, times in stages.items()},
        "credit_bytes": _engine.worker_counters()["credit_bytes"],
    }


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
