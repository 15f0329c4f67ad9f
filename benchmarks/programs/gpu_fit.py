"""A process that calls `Model.fit` with Keras's defaults, on a GPU or several.

TensorFlow's strategies train a model of examples/keras_synthetic_benchmark.py, and so do
`keras.distribution.DataParallel` and BytePSStrategy with KERAS_BACKEND=jax.
"""

import collections
import glob
import itertools
import os
import re
import statistics
import sys
import tempfile
import time
import zlib

import keras
import numpy as np
import tensorflow as tf

from benchmarks.programs import first_gradients
from benchmarks.sessions import ROOT

sys.path.append(str(ROOT / "examples"))
import keras_synthetic_benchmark as synthetic  # noqa: E402

_PROFILED_STEPS = 5
_RECORDED_STEPS = 6
_OURS = ("BytePSPushPull", "byteps_exchange")  # in a program of TensorFlow's, of JAX's
_GRAPHS = ("command_buffer", "command_buffer::execute")
_OF_DEVICE = re.compile(r"^\[\d+\] ")  # before names of JAX's
_PROGRAM = "GpuExecutable::ExecuteThunks"
_MILLISECOND = 1e9  # in picoseconds, as a profile has them
_WAITED_FOR = 4  # calls that find the GPU with little to do

# Of JAX in several processes.
_COORDINATOR = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
_PROCESSES = "KERAS_DISTRIBUTION_NUM_PROCESSES"
_PROCESS_ID = "KERAS_DISTRIBUTION_PROCESS_ID"

_training = {}


class _Calls:
    """The time of a step's call, after which the host is free, for the first steps of epochs.

    No callback: Keras waits for each step if one looks at batches.
    """

    def __init__(self, model, steps):
        self.milliseconds = []
        self._model, self._steps = model, steps
        self._call = model.train_function
        self._count = 0

    def __enter__(self):
        self._model.train_function = self
        return self

    def __exit__(self, *_):
        self._model.train_function = self._call

    def __call__(self, *arguments):
        begin = time.perf_counter()
        result = self._call(*arguments)
        if 0 < self._count % self._steps <= _WAITED_FOR:  # the first one also asks for the data
            self.milliseconds.append((time.perf_counter() - begin) * 1e3)
        self._count += 1
        return result


def join(strategy, model, gpus, cpu=False, **chosen):
    """Makes the model and trains it for some steps, so that it is compiled.

    Args:
        strategy: "none", "byteps", "mirrored", "none-jax", "jax" or "byteps-jax".
        model: of examples/keras_synthetic_benchmark.py.
        gpus: what this process must see.
        cpu: whether it trains on the CPU instead.
        **chosen: what a BytePSStrategy is made with: `compression`, `cross_step`,
            `flash_attention`.

    Returns:
        A dict: `batch` of each replica; `replicas`; `compression`; `compiled`, whether XLA compiles
        the step; `memory`, the peak on the GPU in bytes; `gradients`, their bytes in float32.
    """
    seen = _devices()
    if len(seen) != gpus and not cpu:
        # Without its libraries TensorFlow would run on the CPU without a word.
        raise RuntimeError(f"{strategy} sees {len(seen)} GPUs and should see {gpus}: {seen}")
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    make, batch = synthetic.MODELS[model]
    if strategy == "jax":
        distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
        keras.distribution.set_distribution(distribution)
        made = tf.distribute.get_strategy()
        given, replicas = gpus, gpus * _jax_processes()  # each has its own rows
    else:
        made, _ = synthetic.make_strategy(strategy.removesuffix("-jax"), **chosen)
        given = replicas = made.num_replicas_in_sync
    with made.scope():
        built, data, classes = make(batch)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        built.compile(synthetic._optimizer(), loss)
    pieces = [(data, synthetic._labels(built, classes, batch))] * given
    whole = tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    _training.update(
        strategy=strategy,
        model=built,
        cross_step=chosen.get("cross_step", False),
        batches=tf.data.Dataset.from_tensors(whole).repeat(),
    )
    _fit(6)
    return {
        "batch": batch,
        "replicas": replicas,
        "compression": chosen.get("compression"),
        "cross_step": _training["cross_step"],
        "compiled": bool(built.jit_compile),
        "memory": 0 if cpu else _peak_memory(),
        "gradients": sum(4 * int(np.prod(v.shape)) for v in built.trainable_variables),
    }


def measure(steps, rounds):
    """Milliseconds of a step on average over each epoch, of the calls of some steps, and of a step
    on average over the whole `fit`, with what comes between epochs."""
    _fit(4, 2)
    epochs = synthetic._Epochs()
    calls = []
    begin = time.perf_counter()
    if _training["cross_step"]:  # whose train function is its own
        _fit(steps, rounds, [epochs])
    else:
        with _Calls(_training["model"], steps) as counted:
            _fit(steps, rounds, [epochs])
        calls = counted.milliseconds
    whole = (time.perf_counter() - begin) / (steps * rounds) * 1e3
    return [seconds / steps * 1e3 for seconds in epochs.seconds], calls, whole


def profile(folder=None):
    """What the backend's profiler says of some steps (a dict). The profile stays in the folder."""
    with tempfile.TemporaryDirectory() as temporary:
        kept = f"{folder}/process-{os.getpid()}" if folder else temporary
        with _profiled(kept):
            _fit(_PROFILED_STEPS)
        return _read_profile(glob.glob(f"{kept}/**/*.xplane.pb", recursive=True)[0])


def _profiled(folder):
    if keras.backend.backend() != "jax":
        return tf.profiler.experimental.Profile(folder)
    import jax

    return jax.profiler.trace(folder)


def record(folder=None):
    """Records some steps; `python -m tf_byteps.timeline` explains the folder.

    Returns:
        The milliseconds from the end of a step's last exchange to the next one's first gradient.
    """
    import tf_byteps

    with tempfile.TemporaryDirectory() as temporary:
        tf_byteps.start_timeline(folder or f"{temporary}/")
        _fit(_RECORDED_STEPS)
        parts = tf_byteps.timeline.read(tf_byteps.stop_timeline())
    gradients = [part for part in parts if part.tensor.startswith("gradient")]
    recorded = first_gradients.steps_of(gradients)
    return statistics.median(first_gradients.seconds_to_first(recorded)) * 1e3


def weights():
    """A checksum of all trained weights."""
    checksum = 0
    for variable in _training["model"].trainable_variables:
        checksum = zlib.crc32(keras.ops.convert_to_numpy(variable.value), checksum)
    return checksum


def leave():
    if _training["strategy"].startswith("byteps"):
        import tf_byteps

        tf_byteps.shutdown()


def _jax_processes():
    return int(os.environ.get(_PROCESSES, "1"))


def _devices():
    if keras.backend.backend() != "jax":
        return tf.config.list_physical_devices("GPU")
    import jax

    tf.config.set_visible_devices([], "GPU")  # it only reads the data
    if _PROCESSES in os.environ:
        # Keras's own initialize() also draws a seed by Gloo, which looks for this host by its name.
        jax.distributed.initialize(
            os.environ[_COORDINATOR], _jax_processes(), int(os.environ[_PROCESS_ID])
        )
    return [device for device in jax.local_devices() if device.platform == "gpu"]


def _peak_memory():
    if keras.backend.backend() != "jax":
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    import jax

    return jax.local_devices()[0].memory_stats()["peak_bytes_in_use"]


def _fit(steps, epochs=1, callbacks=()):
    _training["model"].fit(
        _training["batches"],
        steps_per_epoch=steps,
        epochs=epochs,
        verbose=0,
        shuffle=False,
        callbacks=list(callbacks),
    )


def _read_profile(path):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with open(path, "rb") as file:
        space = xplane_pb2.XSpace.FromString(file.read())
    planes = {plane.name: plane for plane in space.planes}
    return {**_on_gpu(planes.get("/device:GPU:0")), **_on_host(planes["/host:CPU"])}


def _events(plane, line):
    """Begin, end and name of a line's events, in order."""
    names = {number: _OF_DEVICE.sub("", each.name) for number, each in plane.event_metadata.items()}
    begin = line.timestamp_ns * 1000
    return sorted(
        (begin + e.offset_ps, begin + e.offset_ps + e.duration_ps, names[e.metadata_id])
        for e in line.events
    )


def _on_gpu(plane):
    if plane is None:
        return {"kernels": 0, "busy": 0, "nccl": 0}  # without CUPTI
    streams = [line for line in plane.lines if line.name.startswith("Stream")]
    events = sorted(itertools.chain(*(_events(plane, line) for line in streams)))
    busy, end = 0, 0
    for begin, until, _ in events:
        busy += max(0, until - max(begin, end))
        end = max(end, until)
    nccl = sum(until - begin for begin, until, name in events if "nccl" in name.lower())
    return {
        "kernels": len(events) / _PROFILED_STEPS,
        "busy": busy / _PROFILED_STEPS / _MILLISECOND,
        "nccl": nccl / _PROFILED_STEPS / _MILLISECOND,
    }


def _on_host(plane):
    """What the threads that run the compiled program do in a step."""
    time_of, calls, timeline = collections.Counter(), collections.Counter(), []
    for line in plane.lines:
        events = _events(plane, line)
        for begin, end, name in events:
            kind = "ours" if name.startswith(_OURS) else name
            time_of[kind] += (end - begin) / _PROFILED_STEPS / _MILLISECOND
            calls[kind] += 1 / _PROFILED_STEPS
        steps = [event for event in events if event[2] == _PROGRAM]
        if not timeline and len(steps) > 1:
            timeline = _between(events, steps[-2][1], steps[-1][1])
    return {
        "graphs": sum(calls[name] for name in _GRAPHS),
        "calls": calls["ours"],
        "calls_ms": time_of["ours"],
        "program_ms": time_of[_PROGRAM],
        "timeline": timeline,
    }


def _between(events, first, last):
    """Those that take 0.1 ms or more: milliseconds after `first`, milliseconds, name."""
    return [
        ((begin - first) / _MILLISECOND, (end - begin) / _MILLISECOND, name)
        for begin, end, name in events
        if begin < last and end > first and end - begin > _MILLISECOND / 10
    ]
