"""What the workers of test_join.py do."""

import os
import time

import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.errors import error_of


def start():
    bps.init()
    return bps.rank(), bps.size()


def _batches(rank, grows):
    """How many a worker has: others have more of them, or fewer."""
    return 3 + 2 * (rank if grows else bps.size() - 1 - rank)


def _expected(batch, grows):
    """The sum of what those send who have this batch."""
    return sum(
        1.0 + rank + 10 * batch for rank in range(bps.size()) if _batches(rank, grows) > batch
    )


def uneven(grows=True):
    """Sums and averages of workers with other numbers of batches; what is wrong, who is last."""

    def step(x):
        total = bps.push_pull([x, 2 * x], op="sum", name="totals")
        return (
            total,
            bps.push_pull(x, name="mean"),
            bps.push_pull(x, op="sum", name="in 16 bits", compression="bf16"),
        )

    steps = (step, tf.function(step), tf.function(step, jit_compile=True))
    wrong = []
    for batch in range(_batches(bps.rank(), grows)):
        x = tf.fill([3000], 1.0 + bps.rank() + 10 * batch)
        for number, each in enumerate(steps):
            (once, twice), mean, narrow = each(x)
            total = _expected(batch, grows)
            found = [np.unique(part) for part in (once, twice / 2, mean * bps.size(), narrow)]
            if not all(len(part) == 1 for part in found) or not np.allclose(found, total):
                wrong.append((batch, number, found, total))
    last = bps.join()
    after = bps.push_pull(tf.fill([3000], 1.0), op="sum", name="mean").numpy()
    return wrong, last, np.unique(after).tolist()


def uneven_the_other_way():
    return uneven(grows=False)


def tape():
    """A training whose workers have other numbers of batches."""
    weight = tf.Variable([0.0])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * x)
        tape = bps.DistributedGradientTape(tape)
        weight.assign_sub(tape.gradient(loss, [weight])[0])

    for batch in range(_batches(bps.rank(), True)):
        step(tf.constant([1.0 + bps.rank() + 10 * batch]))
    last = bps.join()
    bps.broadcast_variables([weight], root_rank=last)
    most = max(_batches(rank, True) for rank in range(bps.size()))
    expected = -sum(_expected(batch, True) for batch in range(most)) / bps.size()
    return float(weight[0]) == np.float32(expected) or abs(weight[0] - expected) < 1e-3, last


def others():
    """Exchanges that do not go on without a worker, and those that do."""
    if bps.rank() == 1:
        return {"last": bps.join()}
    found = {}
    for name, exchange in {
        "gather": lambda: bps.allgather(tf.ones([1]), name="a gather"),
        "broadcast": lambda: bps.broadcast(tf.ones([1]), 0, name="a broadcast"),
        "minimum": lambda: bps.push_pull(tf.ones([1]), op="min", name="a minimum"),
        "alltoall": lambda: bps.alltoall(tf.ones([bps.size()]), name="an alltoall"),
        "rows": lambda: bps.push_pull(
            tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3])), op="sum", name="some rows"
        ),
        "sum": lambda: bps.push_pull(tf.ones([1]), op="sum", name="a sum"),
    }.items():
        try:
            result = exchange()
            values = result.values if isinstance(result, tf.IndexedSlices) else result
            found[name] = values.numpy().tolist()
        except tf.errors.OpError as error:
            found[name] = type(error).__name__, error.message
    found["last"] = bps.join()
    return found


def sets():
    """A worker that has joined counts in its process sets, and in no others."""
    pair = bps.add_process_set([0, bps.size() - 1])
    found = None
    if bps.rank() == 0:
        found = bps.push_pull(tf.ones([2]), op="sum", name="of a set", process_set=pair)
        found = found.numpy().tolist()
    last = bps.join()
    bps.remove_process_set(pair)
    return found, last


def refusals():
    @tf.function
    def in_function():
        return bps.join()

    try:
        in_function()
    except RuntimeError as error:
        return str(error)


def disturbed(begun):
    """As `uneven`, in many steps, while servers are killed."""
    bps.init()
    count = 150 + 100 * bps.rank()
    counts = [150 + 100 * rank for rank in range(bps.size())]

    @tf.function
    def step(x):
        return bps.push_pull([x, 2 * x, 3 * x], op="sum", name="sums")

    for batch in range(count):
        expected = sum(1.0 + r + batch for r in range(bps.size()) if counts[r] > batch)
        results = step(tf.fill([6000], 1.0 + bps.rank() + batch))
        for number, result in enumerate(results, 1):
            assert np.unique(result).tolist() == [number * expected], (batch, expected, result)
        if batch in (20, 160):
            print(f"{begun} {batch}", flush=True)
        time.sleep(0.003)
    last = bps.join()
    total = step(tf.ones([6000]))
    assert np.unique(total[0]).tolist() == [bps.size()]
    bps.shutdown()
    return last


def join_without(how):
    """Worker 0 joins; worker 1 "leaves" the job, or is "lost". What worker 0 is told."""
    bps.init()
    bps.push_pull(1.0, name="both are here")
    if bps.rank() == 1:
        time.sleep(0.5)  # the other waits for it
        if how == "lost":
            os._exit(3)
        bps.shutdown()
        return None
    return error_of(bps.join)
