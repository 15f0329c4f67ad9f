"""Exchanges in TensorFlow's profiler, as Keras's TensorBoard callback starts it."""

import pathlib

import numpy as np

from tests.cluster import run_workers


def profiled(folder, jit_compile):
    """Trains under the profiler; worker 0 returns milliseconds of each exchange, by its name."""
    import keras
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    import tf_byteps

    keras.utils.set_random_seed(1)
    strategy = tf_byteps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
    rows = np.ones((64, 4), np.float32), np.ones((64, 2), np.float32)
    model.fit(*rows, batch_size=8, verbose=0)
    model.fit(
        *rows,
        batch_size=8,
        verbose=0,
        callbacks=[keras.callbacks.TensorBoard(folder, profile_batch=(2, 4))],
    )
    tf_byteps.push_pull(tf.constant(1.0), name="both have ended")
    found = {}
    files = pathlib.Path(folder).rglob("*.xplane.pb") if tf_byteps.rank() == 0 else ()
    for file in files:
        for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
            names = plane.event_metadata
            for event in (event for line in plane.lines for event in line.events):
                name = names[event.metadata_id].name
                if name.startswith("push_pull "):
                    found.setdefault(name, []).append(event.duration_ps / 1e9)
    return found


def check(folder, jit_compile):
    found, nothing = run_workers(profiled, args=[str(folder), jit_compile], timeout=180)
    assert not nothing
    gradients = [name for name in found if name.startswith("push_pull gradient")]
    assert len(gradients) == 4, found  # two kernels, two biases
    for name in gradients:
        assert len(found[name]) >= 2 and min(found[name]) > 0, found


def test_a_profile_shows_each_exchange_with_its_name(tmp_path):
    check(tmp_path, jit_compile=False)


def test_a_profile_of_a_compiled_step_does_so(tmp_path):
    check(tmp_path, jit_compile=True)
