"""What the workers of test_gpu.py do, each with a GPU of its own."""

import hashlib
import os
import threading
import time
import warnings

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")


def start():
    """Joins the job; nothing may fall back to the CPU without an error."""
    gpus = tf.config.list_physical_devices("GPU")
    assert len(gpus) == 1, gpus
    tf.config.set_soft_device_placement(False)
    bps.init()


def numbers(rank, shape, dtype):
    """Small integers that differ on each worker: exact in every dtype, also summed."""
    return tf.cast(np.arange(np.prod(shape)).reshape(shape) % 7 + 10 * rank, dtype).numpy()


def _calls(floating):
    calls = {
        "sum": lambda x: bps.push_pull(x, op=bps.Sum),
        "min": lambda x: bps.push_pull(x, op="min"),
        "max": lambda x: bps.push_pull(x, op=bps.Max),
        "product": lambda x: bps.push_pull(x, op=bps.Product),
        "broadcast": lambda x: bps.broadcast(x, root_rank=1),
        "gather": lambda x: bps.gather(x[: bps.rank() + 1]),
    }
    if floating:
        calls["average"] = lambda x: bps.push_pull(x)
    return calls


def _given(op, rank, shape, dtype):
    """What a worker exchanges. Products stay exact in every dtype, too."""
    value = numbers(rank, shape, dtype)
    return value % 3 + 1 if op == "product" else value


def expected(op, dtype, shape):
    values = [_given(op, rank, shape, dtype) for rank in range(bps.size())]
    if op == "gather":
        return np.concatenate([value[: rank + 1] for rank, value in enumerate(values)])
    if op == "broadcast":
        return values[1]
    if op in ("min", "max"):
        return getattr(np, op)(values, axis=0)
    if op == "product":
        return np.prod(values, axis=0, dtype=values[0].dtype)
    total = np.sum(values, axis=0, dtype=values[0].dtype)
    return total / np.asarray(bps.size(), total.dtype) if op == "average" else total


def exchanges():
    """All types and operations, eager and in a function; returns how many were compared."""
    start()
    compared = 0
    shape = (513, 3)
    for dtype in DTYPES:
        for op, call in _calls(tf.as_dtype(dtype).is_floating).items():
            with tf.device("/GPU:0"):
                value = tf.identity(_given(op, bps.rank(), shape, dtype))
                results = call(value), tf.function(call)(value)
            for result in results:
                assert result.device.endswith("GPU:0"), (dtype, op, result.device)
                np.testing.assert_array_equal(
                    result.numpy(), expected(op, dtype, shape), f"{op} of {dtype}"
                )
                compared += 1
    with tf.device("/GPU:0"):
        for empty in (tf.zeros([0]), tf.zeros([3, 0])):
            assert bps.push_pull(empty).shape == empty.shape
        assert bps.push_pull(tf.constant(2.0), op="sum").numpy() == 2 * bps.size()
    bps.shutdown()
    return compared


def many_tensors():
    """Tensors that the GPU is still computing when they are handed over, all in flight at once."""
    start()
    count, steps = 60, 20

    @tf.function
    def step(seed, factor):
        results = []
        work = factor
        for i in range(count):
            work = tf.matmul(work, factor)  # takes time, and changes nothing
            rows = tf.reshape(work, [-1])[: 1000 + 997 * i] * 1024.0
            value = tf.round(rows) * (i + seed + float(bps.rank()))
            results.append(bps.push_pull(value, op=bps.Sum, name=f"many/{i}"))
        return results

    size = bps.size()
    with tf.device("/GPU:0"):
        factor = tf.fill([1024, 1024], 1.0 / 1024)
        for seed in range(steps):
            for i, result in enumerate(step(tf.constant(float(seed)), factor)):
                expected = size * (i + seed) + sum(range(size))
                wrong = np.count_nonzero(result.numpy() != np.float32(expected))
                assert wrong == 0, (seed, i, wrong, result.shape, expected, result.numpy()[:5])
    bps.shutdown()
    return count * steps


def sums_one_tensor():
    """Returns the number of its elements."""
    start()
    elements = 3_000_000
    with tf.device("/GPU:0"):
        value = tf.range(elements, dtype=tf.float32) % 100 + float(bps.rank())
        result = bps.push_pull(value, op=bps.Sum, name="large").numpy()
    size = bps.size()
    expected = np.arange(elements) % 100 * size + sum(range(size))
    np.testing.assert_array_equal(result, expected.astype(np.float32))
    bps.shutdown()
    return elements


def compressed_sums(codec, device):
    """The digest of the sum of a gradient that is in a device's memory, and its largest error."""
    start()
    values = [tf.random.stateless_normal([300_001], [rank, 7]) for rank in range(bps.size())]
    with tf.device(device):
        mine = tf.identity(values[bps.rank()])
        total = bps.push_pull(mine, op=bps.Sum, name="gradient", compression=codec).numpy()
    exact = tf.add_n(values).numpy()
    error = np.abs(total - exact).max() / np.abs(exact).max()
    bps.shutdown()
    return {"digest": hashlib.sha256(total.tobytes()).hexdigest(), "error": float(error)}


def rows():
    """Sums of the same few rows of all workers; how many are wrong, and what they are in bits."""
    start()
    indices = tf.range(7, 0, -1)
    random = np.random.default_rng(5)
    digest = hashlib.sha256()
    wrong = 0

    @tf.function
    def step(own):
        slices = tf.IndexedSlices(own, indices, tf.constant([9, 512]))
        return bps.push_pull(slices, op=bps.Sum, name="rows")

    with tf.device("/GPU:0"):
        for _ in range(100):
            values = random.normal(size=(bps.size(), 7, 512)).astype(np.float32)
            result = step(tf.constant(values[bps.rank()]))
            expected = values.sum(axis=0, dtype=np.float64)[::-1]
            ascending = result.indices.numpy().tolist() == list(range(1, 8))
            wrong += not ascending or not np.allclose(result.values, expected, atol=1e-5)
            digest.update(result.values.numpy().tobytes())
    bps.shutdown()
    return {"digest": digest.hexdigest(), "wrong": wrong}


def reads():
    """What this worker reads of a dataset of global batches, and a training with it."""
    bps.init()
    strategy = bps.BytePSStrategy()
    rows = tf.data.Dataset.range(23).shuffle(23, seed=4, reshuffle_each_iteration=False)
    dataset = rows.map(lambda i: ([tf.cast(i, tf.float32) / 23], tf.cast(i % 2, tf.int32))).batch(6)
    text = dataset.map(lambda x, y: (x, tf.strings.as_string(y)))
    on_host = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    inputs = {
        "fetched": strategy.experimental_distribute_dataset(dataset),
        "on the host": strategy.experimental_distribute_dataset(dataset, on_host),
        "text": strategy.experimental_distribute_dataset(text),
    }
    batches = {name: list(each) for name, each in inputs.items()}
    devices = {
        name: sorted({part.device[-5:] for batch in each for part in batch})
        for name, each in batches.items()
    }
    with strategy.scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, jit_compile=False, steps_per_execution=3)
    model.fit(dataset, epochs=2, verbose=0)
    return {
        "rows": [x.numpy().tolist() for x, _ in batches["fetched"]],
        "rows on the host": [x.numpy().tolist() for x, _ in batches["on the host"]],
        "devices": devices,
        "steps": int(model.optimizer.iterations.numpy()),
    }


def begins_with_little():
    """Whether an update waits for its gradient, and the devices of what its function captures."""
    start()
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    needs_no_gradient = []

    def update(variable, gradient):
        needs_no_gradient.append(0.5 * variable)
        return variable.assign(needs_no_gradient[0] - gradient)

    @tf.function
    def step():
        gradient = bps.push_pull(tf.constant([4.0, 8.0]), op=bps.Sum)
        strategy.extended.update(variable, update, args=(gradient,))

    graph = step.get_concrete_function().graph
    step()
    np.testing.assert_equal(variable.numpy(), [0.5 - 4 * bps.size(), 1 - 8 * bps.size()])
    before, unseen = set(), {needs_no_gradient[0].op}
    while unseen:
        operation = unseen.pop()
        before.add(operation)
        inputs = {tensor.op for tensor in operation.inputs} | set(operation.control_inputs)
        unseen |= inputs - before
    waits = any(operation.type == "BytePSPushPull" for operation in before)
    return [waits, sorted({tensor.device[-5:] for tensor, _ in graph.captures})]


def computes_while_waiting(seconds):
    """Worker 1 comes late; returns how long worker 0's GPU and exchange took meanwhile."""
    start()
    with tf.device("/GPU:0"):
        bps.push_pull(tf.ones(10), name="warm")
        matrix = tf.random.normal([2048, 2048])
        float(tf.reduce_sum(tf.matmul(matrix, matrix)))
        if bps.rank() == 1:
            time.sleep(seconds)
        begin = time.monotonic()
        ended = []

        def exchange():
            with tf.device("/GPU:0"):
                bps.push_pull(tf.ones(1 << 20), name="late").numpy()
            ended.append(time.monotonic() - begin)

        thread = threading.Thread(target=exchange)
        thread.start()
        time.sleep(0.2)
        for _ in range(20):
            float(tf.reduce_sum(tf.matmul(matrix, matrix)))
        computed = time.monotonic() - begin
        thread.join(60)
    bps.shutdown()
    return computed, ended[0]


def is_left_alone():
    """Worker 1 ends in the middle; returns what worker 0 sees."""
    start()
    with tf.device("/GPU:0"):
        bps.push_pull(tf.ones(10), name="both")
        if bps.rank() == 1:
            os._exit(3)
        try:
            bps.push_pull(tf.ones(1 << 20), name="alone")
        except tf.errors.UnavailableError as error:
            return error.message
    return "no error"


def trains(mixed, cross_step=False, backup_workers=0, jit_compile=False):
    """A small convolutional model under the strategy; returns its losses and weights."""
    if mixed:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    # Rounding to TF32's 11 bits sends this training one of two ways: 2 % of the last loss.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(1)
    images = random.normal(size=(512, 16, 16, 3)).astype(np.float32)
    labels = random.integers(0, 10, size=512)
    strategy = bps.BytePSStrategy(cross_step=cross_step, backup_workers=backup_workers)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Conv2D(16, 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(96, activation="relu"),
                keras.layers.Dense(10, dtype="float32"),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, jit_compile=jit_compile)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = model.fit(images, labels, batch_size=64, epochs=3, verbose=0, shuffle=False)
    weights = [np.asarray(weight) for weight in model.get_weights()]
    digest = hashlib.sha256(b"".join(weight.tobytes() for weight in weights)).hexdigest()
    devices = sorted({variable.value.device for variable in model.variables})
    return {
        "losses": history.history["loss"],
        "digest": digest,
        "norm": float(np.sqrt(sum(float(np.sum(np.square(w, dtype=np.float64))) for w in weights))),
        "devices": devices,
        "warnings": [str(warning.message) for warning in caught],
    }
