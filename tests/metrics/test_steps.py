"""What workers count of their steps, against what each step has been seen to wait."""

import contextlib
import time

import numpy as np

import tf_byteps
from tests.cluster import run_workers
from tf_byteps import _engine

STEPS = 12
SECONDS = 40


def steps_of_two_gradients(delays):
    """Each worker computes for its delay between its two gradients, and waits for both sums.

    Returns what the engine has counted, and for each step the times before and after the last
    gradient was given to the engine, and when both sums were there. The workers share a clock.
    """
    tf_byteps.init()
    gradient = np.ones(1000, np.float32)
    seen = []
    for _ in range(STEPS):
        early = _engine.exchange(gradient, name="gradient/early")
        time.sleep(delays[tf_byteps.rank()])
        before = time.monotonic()
        late = _engine.exchange(gradient, name="gradient/late")
        after = time.monotonic()
        early.wait(SECONDS)
        late.wait(SECONDS)
        seen.append((before, after, time.monotonic()))
    counters = _engine.worker_counters()
    return [counters, seen]


def test_a_worker_waits_for_a_slow_peer_and_that_is_exposed():
    fast, slow = run_workers(steps_of_two_gradients, args=[[0, 0.05]])
    planted = sum(slow[1][n][0] - fast[1][n][1] for n in range(1, STEPS))
    assert planted > 0.05 * (STEPS - 1) / 2, "the delay was not to be seen at all"
    assert planted <= fast[0]["exposed_seconds"] <= waited(fast[1])
    # The slow one's first gradient is summed while it computes the second.
    assert 0 < slow[0]["exposed_seconds"] <= waited(slow[1])
    for counters, seen in fast, slow:
        assert counters["steps"] == STEPS - 1 and counters["unmeasured_steps"] == 0
        took = seen[-1][2] - seen[0][2]
        assert abs(counters["step_seconds"] - took) <= took / 5
        assert counters["exposed_seconds"] <= counters["step_seconds"]


def waited(seen):
    return sum(end - before for before, _, end in seen[1:])


def test_a_worker_alone_waits_for_nobody():
    ((counters, _),) = run_workers(steps_of_two_gradients, workers=1, servers=0, args=[[0.01]])
    assert counters["steps"] == STEPS - 1 and counters["exposed_seconds"] == 0
    assert counters["step_seconds"] > 0.01 * (STEPS - 1) / 2


def fit(options):
    import keras

    from tf_byteps.strategy import BytePSStrategy

    strategy = BytePSStrategy(cross_step=options.get("cross_step", False))
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
        model.compile(
            keras.optimizers.SGD(0.01),
            "mse",
            metrics=["mae"],
            steps_per_execution=options.get("steps_per_execution", 1),
            jit_compile=options.get("jit_compile", False),
        )
    rows = 2 * STEPS * tf_byteps.size()
    x, y = np.ones((rows, 4), np.float32), np.ones((rows, 2), np.float32)
    data = x, y
    model.fit(*data, batch_size=2 * tf_byteps.size(), epochs=2, verbose=0, validation_data=data)
    return _engine.worker_counters()


def test_steps_of_keras_are_counted_one_by_one():
    for options in {}, {"steps_per_execution": 4}, {"jit_compile": True}:
        for counters in run_workers(fit, args=[options]):
            assert counters["steps"] == 2 * STEPS - 1, options
            assert counters["unmeasured_steps"] == 0, options
            assert 0 < counters["exposed_seconds"] <= counters["step_seconds"], options
            assert 0 < counters["input_seconds"] < counters["step_seconds"], options
            # Two a step, and none of validation. A batch is noted beside the step that it is for,
            # which waits for no note: that of the first or the last one may be counted or not.
            assert abs(2 * counters["steps"] - counters["samples"]) <= 2, options


def fit_slow_batches(as_one):
    """Batches of 3 samples come after 20 ms each; returns the counters, and how many came."""
    import keras
    import tensorflow as tf

    from tf_byteps.keras import DistributedOptimizer

    tf_byteps.init()

    def batches():
        for _ in range(STEPS):
            time.sleep(0.02)
            yield np.ones((3, 4), np.float32), np.ones((3, 2), np.float32)

    spec = tf.TensorSpec([None, 4]), tf.TensorSpec([None, 2])
    data = tf.data.Dataset.from_generator(batches, output_signature=spec)
    scope = tf_byteps.BytePSStrategy().scope() if as_one else contextlib.nullcontext()
    with scope:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.01)
        model.compile(optimizer if as_one else DistributedOptimizer(optimizer), "mse")
    model.fit(data, epochs=2, verbose=0)
    model.evaluate(data, verbose=0)
    return _engine.worker_counters()


def test_waits_for_batches_and_their_samples_are_counted():
    for as_one in False, True:
        counted = run_workers(fit_slow_batches, args=[as_one])
        for counters in counted:
            assert counters["steps"] == 2 * STEPS - 1
            # The generator sleeps while a step computes, too: how much is left, nobody knows.
            assert 0 < counters["input_seconds"] < counters["step_seconds"]
        samples = sorted(counters["samples"] for counters in counted)
        shares = [1, 2] if as_one else [3, 3]  # of a batch
        # That of the first or the last one may be counted or not, see above.
        for found, share in zip(samples, shares, strict=True):
            assert abs(found - share * (2 * STEPS - 1)) <= share, counted


def loop_of_ones_own():
    """Trains in a loop of Python; returns the samples that were counted, and the steps."""
    import tensorflow as tf

    tf_byteps.init()
    for batch in tf.data.Dataset.from_tensor_slices(np.ones((50, 2), np.float32)).batch(5):
        tf_byteps.push_pull(tf.reduce_sum(batch, 0), name="gradient/sum")
    counters = _engine.worker_counters()
    return [counters["samples"], counters["steps"]]


def test_batches_of_ones_own_loop_are_counted():
    assert run_workers(loop_of_ones_own) == [[45, 9]] * 2


def test_of_steps_that_overlap_the_exposed_time_is_not_known():
    for counters in run_workers(fit, args=[{"cross_step": True}]):
        assert counters["steps"] == counters["unmeasured_steps"] >= 2 * STEPS - 2
        assert counters["exposed_seconds"] == 0 < counters["step_seconds"]


def test_a_training_of_one_worker_has_no_exposed_communication():
    (counters,) = run_workers(fit, workers=1, servers=0, args=[{}])
    assert counters["exposed_seconds"] == 0
