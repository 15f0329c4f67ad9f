"""What the workers of test_compiled.py do, each on a GPU of its own: functions for XLA."""

import concurrent.futures
import ctypes
import functools
import hashlib
import os
import threading
import time

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.gpu.programs import DTYPES, expected, numbers, start
from tf_byteps.ops import split
from tf_byteps.ops.reduction import Reduction

compiled = functools.partial(tf.function, jit_compile=True)


def exchanges():
    """All types and operations; returns how many were compared."""
    start()
    compared, shape = 0, (513, 3)
    for dtype in DTYPES:
        calls = {
            "sum": lambda x: bps.push_pull(x, op=bps.Sum),
            "min": lambda x: bps.push_pull(x, op="min"),
            "max": lambda x: bps.push_pull(x, op=bps.Max),
            "broadcast": lambda x: bps.broadcast(x, root_rank=1),
        }
        if tf.as_dtype(dtype).is_floating:
            calls["average"] = lambda x: bps.push_pull(x)
        with tf.device("/GPU:0"):
            value = tf.identity(numbers(bps.rank(), shape, dtype))
            for op, call in calls.items():
                for _ in range(2):
                    result = compiled(call)(value)
                np.testing.assert_array_equal(
                    result.numpy(), expected(op, dtype, shape), f"{op} of {dtype}"
                )
                compared += 1
            rows = compiled(lambda x: bps.gather(x))(value).numpy()
        own = [numbers(rank, shape, dtype) for rank in range(bps.size())]
        np.testing.assert_array_equal(rows, np.concatenate(own), f"gather of {dtype}")
        compared += 1
    with tf.device("/GPU:0"):
        place = compiled(lambda x: (bps.rank_op(), bps.size_op(), x))(tf.ones(1))
    assert [int(each) for each in place[:2]] == [bps.rank(), bps.size()]
    bps.shutdown()
    return compared


def _being_computed(count, seed, factor):
    """Tensors of different sizes that the GPU is still computing: each has one number."""
    values, work = [], factor
    for i in range(count):
        work = tf.matmul(work, factor)  # takes time, and changes nothing
        rows = tf.reshape(work, [-1])[: 1000 + 997 * i] * 1024.0
        values.append(tf.round(rows) * (tf.cast(i, tf.float32) + seed + float(bps.rank())))
    return values


def _check_sums(results, seed):
    size = bps.size()
    for i, result in enumerate(results):
        total = size * (i + seed) + sum(range(size))
        wrong = np.count_nonzero(result.numpy() != np.float32(total))
        assert wrong == 0, (seed, i, wrong, result.shape, total, result.numpy()[:5])


def beside_loops():
    """Exchanges in and around a loop that do not need each other, in programs that differ from
    worker to worker; returns how many were compared."""
    start()
    total = float(sum(range(1, bps.size() + 1)))

    @compiled
    def step(x, rows, factor):
        own = tf.reduce_sum(rows @ factor) * 0.0
        first = bps.push_pull(x + own, op="sum", name="first")
        looped = tf.zeros_like(x)
        for i in tf.range(3):
            looped += bps.push_pull(2 * x + tf.cast(i, x.dtype), op="sum", name="in the loop")
        last = bps.push_pull(3 * x, op="sum", name="last")
        branched = tf.cond(
            tf.shape(rows)[0] > 0,
            lambda: bps.push_pull(4 * x, op="sum", name="in a branch"),
            lambda: x,
        )
        return first, looped, last, branched

    compared = 0
    with tf.device("/GPU:0"):
        x = tf.fill([1 << 20], 1.0 + bps.rank())
        for call in range(4):
            rows = tf.ones([64 + 32 * ((call + bps.rank()) % 3), 512])
            results = step(x, rows, tf.eye(512))
            wanted = [total, 6 * total + 3 * bps.size(), 3 * total, 4 * total]
            for result, value in zip(results, wanted, strict=True):
                np.testing.assert_array_equal(result.numpy(), np.float32(value))
                compared += 1
    bps.shutdown()
    return compared


def many_tensors():
    """Groups whose members the GPU is still computing, and single exchanges between them."""
    start()
    count, steps = 60, 20

    @compiled
    def step(seed, factor):
        values = _being_computed(count, seed, factor)
        first = bps.push_pull(values[0], op=bps.Sum, name="single")
        return [first, *bps.push_pull(values[1:], op=bps.Sum, name="many")]

    with tf.device("/GPU:0"):
        factor = tf.fill([1024, 1024], 1.0 / 1024)
        for seed in range(steps):
            _check_sums(step(tf.constant(float(seed)), factor), seed)
    bps.shutdown()
    return count * steps


def _across_programs(count):
    """A function that starts exchanges, one that first waits for those of the call before, and
    what is in flight after each."""
    split.prepare_gpus()
    under_way = []

    def hand_over(values):
        names = [f"across/{i}" for i in range(count)]
        shapes = [value.shape for value in values]
        under_way[:] = split.start_reductions(values, names, shapes, Reduction(bps.Sum))

    @compiled
    def first(seed, factor):
        hand_over(_being_computed(count, seed, factor))
        return seed

    @compiled
    def step(seed, factor):
        sums = [each.wait() for each in list(under_way)]
        values = _being_computed(count, seed, factor)
        hand_over([value + 0.0 * a_sum for value, a_sum in zip(values, sums, strict=True)])
        return sums

    return first, step, under_way


def across_programs():
    """Sums that a program leaves to the next one, and the last ones to operations outside."""
    start()
    count, steps = 40, 20
    first, step, under_way = _across_programs(count)
    with tf.device("/GPU:0"):
        factor = tf.fill([1024, 1024], 1.0 / 1024)
        for _ in range(2):
            first(tf.constant(0.0), factor)
            results = [step(tf.constant(float(seed)), factor) for seed in range(1, steps)]
            results.append([each.wait() for each in under_way])
            for seed, sums in enumerate(results):
                _check_sums(sums, seed)
        first(tf.constant(0.0), factor)
    split.forget([each.name for each in under_way])
    bps.shutdown()
    return count * steps


def gradients_with_norms():
    """Gradients in units of shared norms, of layers that the GPU is still computing: the largest
    error of an average, in parts of its norm, and a digest of all averages."""
    start()
    width, layers, steps = 1024, 12, 10
    weights = [
        tf.Variable(tf.random.stateless_normal([width, width], [1, layer]) / 32)
        for layer in range(layers)
    ]

    def step(x, compression):
        tape = bps.DistributedGradientTape(tf.GradientTape(), compression=compression)
        with tape:
            y = x
            for weight in weights:
                y = tf.tanh(y @ weight)
            loss = tf.reduce_mean(y**2)
        return tape.gradient(loss, weights)

    step = compiled(step)
    largest, digest = 0.0, hashlib.sha256()
    with tf.device("/GPU:0"):
        for number in range(steps):
            x = tf.random.stateless_normal([64, width], [number, bps.rank()])
            averages = step(x, "thc"), step(x, "none")
            for average, exact in zip(*averages, strict=True):
                error = tf.norm(average - exact) / tf.norm(exact)
                largest = max(largest, float(error))
                digest.update(average.numpy().tobytes())
    bps.shutdown()
    return largest, digest.hexdigest()


def host_is_free_across_programs():
    """Milliseconds until the call of a step returns, and of the step; medians."""
    start()
    first, step, under_way = _across_programs(40)
    with tf.device("/GPU:0"):
        factor = tf.fill([4096, 4096], 1.0 / 4096)
        first(tf.constant(0.0), factor)
        times = _times_of(lambda: step(tf.constant(0.0), factor)[0][0])
    split.forget([each.name for each in under_way])
    bps.shutdown()
    return times


def _times_of(call, calls=20):
    """Milliseconds until a call returns, and until its result is there; medians."""
    float(call())
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        result = call()
        called = time.perf_counter()
        float(result)
        times.append(((called - begin) * 1e3, (time.perf_counter() - begin) * 1e3))
    return [float(np.median(each)) for each in zip(*times, strict=True)]


def _free_memory_until(ended):
    """As others who use the GPU; CUDA ends such a call once all streams have done their work."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    calls = 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    while not ended.wait(0.001):
        assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
        assert driver.cuMemFree_v2(memory) == 0
        calls += 1
    return calls


def memory_is_freed_meanwhile():
    """Steps whose streams wait for servers, while another thread waits for these streams."""
    start()
    count, steps = 40, 400

    @compiled
    def step(values):
        sums = bps.push_pull(values, op=bps.Average, name="beside")
        return [each + 1.0 for each in sums]

    ended = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as pool, tf.device("/GPU:0"):
        values = [tf.fill([20000 + 3000 * i], float(bps.rank())) for i in range(count)]
        values = step(values)
        frees = pool.submit(_free_memory_until, ended)
        for _ in range(steps - 1):
            values = step(values)  # the host does not wait for it
        results = {float(tf.reduce_max(each)) for each in values}
        ended.set()
        assert frees.result() > 10
    bps.shutdown()
    return [*results, float(steps)]


def host_is_free():
    """Milliseconds until the call of a step returns, and of the step; medians."""
    start()

    @compiled
    def step(x):
        gradients, work = [], x
        for _ in range(20):
            work = tf.matmul(work, x)
            gradients.append(work * (1.0 / 4096))
        sums = bps.push_pull(gradients, op=bps.Sum, name="free")
        return tf.add_n([tf.reduce_mean(each) for each in sums])

    with tf.device("/GPU:0"):
        x = tf.fill([4096, 4096], 1.0 / 4096)
        times = _times_of(lambda: step(x))
    bps.shutdown()
    return times


def is_left_alone():
    """Worker 1 ends in the middle; returns what worker 0 sees in its next steps."""
    start()

    @compiled
    def step(x):
        return bps.push_pull([x, 2 * x], op=bps.Sum, name="alone")

    with tf.device("/GPU:0"):
        x = tf.ones(1 << 20)
        return _error_when_left(lambda: step(x))


def _error_when_left(step):
    """Worker 1 ends after its first step; what worker 0 sees in that step or the next ones."""
    try:
        for _ in range(5):
            float(step()[0][0])
            if bps.rank() == 1:
                os._exit(3)
    except tf.errors.OpError as error:
        return [type(error).__name__, error.message]
    return "no error"


def is_left_alone_across_programs():
    """The same where each step waits for the sums of the one before."""
    start()
    first, step, _ = _across_programs(20)
    with tf.device("/GPU:0"):
        factor = tf.fill([1024, 1024], 1.0 / 1024)
        first(tf.constant(0.0), factor)
        return _error_when_left(lambda: step(tf.constant(0.0), factor))
