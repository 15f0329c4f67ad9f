"""Event files that `Telemetry` writes in real jobs."""

import pathlib
import warnings

import pytest

from tests.cluster import run_workers

BATCHES, EPOCHS, EVERY = 6, 2, 2
PER_STEP = 4 * 8 * 4  # bytes of the only gradient: a matrix of 4 x 8 floats


def fit(directory, kind, trainings=1):
    import keras
    import numpy as np

    import tf_byteps.keras as bps
    from tf_byteps.strategy import BytePSStrategy

    bps.init()
    is_cross_step = kind == "cross_step"
    strategy = BytePSStrategy(cross_step=is_cross_step) if kind != "optimizer" else None

    def compiled():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, use_bias=False)])
        optimizer = keras.optimizers.SGD(0.01)
        model.compile(optimizer if strategy else bps.DistributedOptimizer(optimizer), "mse")
        return model

    if strategy:
        with strategy.scope():
            model = compiled()
    else:
        model = compiled()
    rows = 2 * BATCHES * (bps.size() if strategy else 1)
    size = 2 * (bps.size() if strategy else 1)
    x, y = np.ones((rows, 4), np.float32), np.ones((rows, 8), np.float32)
    own = f"{directory}/{bps.rank()}"
    telemetry = bps.callbacks.Telemetry(own, every_steps=EVERY)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(trainings):
            model.fit(x, y, batch_size=size, epochs=EPOCHS, verbose=0, callbacks=[telemetry])
    bps.shutdown()
    return [str(each.message) for each in caught if "Telemetry" in str(each.message)]


def read(directory):
    """{scalar's name: {step: value}} of all event files under a directory, in order of steps."""
    import tensorflow as tf

    found = {}
    for file in pathlib.Path(directory).rglob("events.*"):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, {})[event.step] = number
    return {name: dict(sorted(points.items())) for name, points in found.items()}


@pytest.mark.parametrize(
    "kind, backend",
    [
        ("strategy", "tensorflow"),
        ("optimizer", "jax"),
        pytest.param("strategy", "jax", marks=pytest.mark.extended),
        pytest.param("optimizer", "tensorflow", marks=pytest.mark.extended),
    ],
)
def test_worker_0_writes_points_of_steps_and_epochs(tmp_path, kind, backend):
    env = {"BYTEPS_HEARTBEAT_INTERVAL": "0.1", "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    run_workers(fit, 2, env=env, args=[str(tmp_path), kind])
    scalars = read(tmp_path / "0")
    exposed = "exposed_communication_seconds"
    names = {"seconds", "exchanging_seconds", exposed, "pushed_bytes", "pulled_bytes"}
    others = {"arrival_lag_seconds", "last_worker"}
    if backend == "tensorflow":
        names |= {"input_wait_seconds"}
        others |= {"samples_per_second"}
    for part, positions in ("step", range(EVERY, 13, EVERY)), ("epoch", range(EPOCHS)):
        for name in names:
            assert list(scalars[f"tf_byteps/{part}/{name}_per_step"]) == list(positions)
        seconds = scalars[f"tf_byteps/{part}/seconds_per_step"]
        exchanging = scalars[f"tf_byteps/{part}/exchanging_seconds_per_step"]
        assert all(0 < exchanging[at] <= seconds[at] for at in positions)
        waiting = scalars[f"tf_byteps/{part}/{exposed}_per_step"]
        assert all(0 < waiting[at] <= exchanging[at] for at in positions)
        for name in "pushed", "pulled":
            measured = scalars[f"tf_byteps/{part}/{name}_bytes_per_step"]
            assert all(value >= PER_STEP for value in measured.values())
        if backend == "tensorflow":
            inputs = scalars[f"tf_byteps/{part}/input_wait_seconds_per_step"]
            assert all(0 <= inputs[at] <= seconds[at] for at in positions)
            rates = scalars[f"tf_byteps/{part}/samples_per_second"].values()
            assert all(rate > 0 for rate in rates)
    assert len(scalars) == 2 * len(names | others)
    for position, lag in scalars["tf_byteps/epoch/arrival_lag_seconds"].items():
        assert lag >= 0 and scalars["tf_byteps/epoch/last_worker"][position] in (0, 1)
    assert not (tmp_path / "1").exists()


def test_what_is_not_known_of_overlapping_steps_is_not_written(tmp_path):
    run_workers(fit, 2, args=[str(tmp_path), "cross_step"])
    scalars = read(tmp_path / "0")
    assert "tf_byteps/step/exchanging_seconds_per_step" in scalars
    assert not any("exposed" in name or "unmeasured" in name for name in scalars)


def test_one_worker_writes_the_time_of_all_trainings(tmp_path):
    run_workers(fit, 1, servers=0, args=[str(tmp_path), "strategy", 2])
    scalars = read(tmp_path / "0")
    assert list(scalars["tf_byteps/step/seconds_per_step"]) == list(range(EVERY, 25, EVERY))
    assert list(scalars["tf_byteps/epoch/seconds_per_step"]) == list(range(2 * EPOCHS))


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "0").write_text("a file")
    (warning,), nothing = run_workers(fit, 2, args=[str(tmp_path), "strategy"])
    assert f"Telemetry writes nothing to {tmp_path}/0/telemetry: " in warning
    assert "Training goes on without it" in warning and nothing == []


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2"])
def test_a_wrong_number_of_steps_is_named(given):
    from tf_byteps.keras.callbacks import Telemetry

    with pytest.raises(ValueError, match="every_steps is .* from 1 on"):
        Telemetry("logs", every_steps=given)
