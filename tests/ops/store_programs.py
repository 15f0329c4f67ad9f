"""What test_store.py runs on each worker."""

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.errors import error_of

STEPS = 20


def _meet(name):
    bps.push_pull(tf.constant(0), op="sum", name=f"meet {name}")


def adds_up():
    """The first push is the value, changes add up, and a fast worker does not wait."""
    bps.init()
    rank = bps.rank()

    @tf.function
    def push(values):
        return bps.push_pull([values, values[0, 0]], name="weights", enable_async=True)

    start = np.arange(30_000, dtype=np.float32).reshape(100, 300)  # of several parts
    first = push(tf.constant(start))[0].numpy()
    _meet("after the first")
    if rank == 0:  # all of its steps before any of the others'
        for _ in range(STEPS):
            push(tf.fill([100, 300], 1.0))
        alone = push(tf.zeros([100, 300]))[0].numpy()
    _meet("after the fast one")
    if rank != 0:
        for _ in range(STEPS):
            push(tf.fill([100, 300], 100.0 * rank))
    _meet("after all")
    whole, single = push(tf.zeros([100, 300]))
    added = STEPS * (1 + sum(100 * each for each in range(bps.size())))
    return {
        "first": bool(np.array_equal(first, start)),
        "alone": rank != 0 or bool(np.array_equal(alone, start + STEPS)),
        "sum": bool(np.array_equal(whole.numpy(), start + added)),
        "second": bool(single.numpy() == added),
    }


def integers():
    """One worker's own value counts; in a job of one worker, too."""
    bps.init()
    first = bps.push_pull(tf.constant([5], tf.int64), name="integers", enable_async=True)
    _meet("integers")
    bps.push_pull(tf.constant([2], tf.int64), name="integers", enable_async=True)
    _meet("integers, again")
    last = bps.push_pull(tf.constant([0], tf.int64), name="integers", enable_async=True)
    return int(first[0]), int(last[0]), bps.size()


def refusals():
    bps.init()
    x = tf.constant([1.0])

    def said(tensor=x, **arguments):
        return error_of(bps.push_pull, tensor, enable_async=True, **arguments)

    bps.push_pull(x, name="known", op="sum")
    bps.push_pull(x, name="store", enable_async=True)
    return {
        "no name": said(),
        "average": said(name="a", op="average"),
        "compression": said(name="b", compression="int8"),
        "factor": said(name="c", prescale_factor=0.5),
        "float16": said(tf.constant([1], tf.float16), name="d"),
        "rows": said(tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0])), name="e"),
        "another kind": said(name="known"),
        "another shape": said(tf.constant([1.0, 2.0]), name="store"),
        "no store": error_of(bps.push_pull, x, name="store", op="sum"),
    }


def survives(steps):
    """Adds integers while servers are killed; what the store holds in the end."""
    bps.init()
    rank = bps.rank()

    @tf.function
    def push(value):
        return bps.push_pull(tf.fill([5000], value), name="counts", enable_async=True)

    push(tf.constant(0, tf.int64))
    for step in range(steps):
        held = push(tf.constant(1000**rank, tf.int64)).numpy()
        own = held // 1000**rank % 1000
        assert (own == step + 1).all(), (step, np.unique(own))
        print(f"step {step}.", flush=True)
    _meet("the end")
    held = push(tf.constant(0, tf.int64)).numpy()
    bps.shutdown()
    return np.unique(held).tolist()
