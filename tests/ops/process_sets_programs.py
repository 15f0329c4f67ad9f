"""What the workers of test_process_sets.py do."""

import functools

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests import set_values
from tests.errors import error_of
from tf_byteps import keras as bps_keras

ENDS = bps.ProcessSet([2, 0])
LAST = bps.ProcessSet([1, 2])
ALONE = bps.ProcessSet([1])


def start():
    bps.init(process_sets=[ENDS, LAST])
    bps.init(process_sets=[ENDS])  # once more changes nothing
    bps.add_process_set(ALONE)
    return [
        (each.process_set_id, each.size(), each.rank(), each.included(), each.ranks)
        for each in (bps.global_process_set, ENDS, LAST, ALONE)
    ]


def own_sets():
    return [each for each in (ENDS, LAST, ALONE) if each.included()]


def values():
    """Of Keras's interface, and what it says to a worker that is not in the set."""
    others = next(each for each in (ENDS, LAST, ALONE) if not each.included())
    message = error_of(bps_keras.push_pull, 1.0, process_set=others)
    return set_values.of(own_sets()), message


def reductions():
    """By set: of values that say who has sent them. The sets of a worker take turns."""
    mine = tf.constant([1.0 + bps.rank(), 10.0])
    found = {}
    for each in own_sets():
        found[each.ranks] = {
            str(op): bps.push_pull(mine, op=op, process_set=each).numpy().tolist()
            for op in (bps.Sum, bps.Average, bps.Min, bps.Max, bps.Product)
        }
        found[each.ranks]["bf16"] = (
            bps.push_pull(mine, compression="bf16", name="same name", process_set=each)
            .numpy()
            .tolist()
        )
        found[each.ranks]["list"] = [
            part.numpy().tolist()
            for part in bps.grouped_allreduce([mine, 2 * mine], op="sum", process_set=each)
        ]
    found["all"] = bps.push_pull(mine, op="sum", name="same name").numpy().tolist()
    return found


def in_functions():
    """Traced and compiled, for all of the worker's sets at one place of the program."""
    found = []
    for jit_compile in (False, True):

        @tf.function(jit_compile=jit_compile)
        def step(x):
            sums = [bps.push_pull(x, op="sum", process_set=each) for each in own_sets()]
            rows = [bps.allgather(x, process_set=each) for each in own_sets()]
            copies = [bps.broadcast(x, each.ranks[-1], process_set=each) for each in own_sets()]
            return sums, rows, copies, bps.push_pull(x, op="sum")

        results = step(tf.constant([1.0 + bps.rank()]))
        found.append(tf.nest.map_structure(lambda each: each.numpy().tolist(), results))
    return found


def copies():
    rank = bps.rank()
    found = {}
    for each in own_sets():
        rows = tf.fill([rank + 1], rank)
        splits = [rank + place for place in range(each.size())]
        sent = tf.fill([sum(splits)], rank)
        received, counts = bps.alltoall(sent, splits, process_set=each)
        found[each.ranks] = {
            "gathered": bps.allgather(rows, process_set=each).numpy().tolist(),
            "strings": bps.allgather(tf.constant([str(rank)]), process_set=each).numpy().tolist(),
            "grouped": [
                part.numpy().tolist()
                for part in bps.grouped_allgather([rows, rows + 1], process_set=each)
            ],
            "from the last": int(bps.broadcast(rank, each.ranks[-1], process_set=each)),
            "sent to each": (received.numpy().tolist(), counts.numpy().tolist()),
            "even": bps.alltoall(tf.repeat([[rank]], each.size(), axis=0), process_set=each)
            .numpy()
            .tolist(),
            "own rows": bps.reducescatter(tf.range(5.0), op=bps.Sum, process_set=each)
            .numpy()
            .tolist(),
            "own rows of two": [
                part.numpy().tolist()
                for part in bps.grouped_reducescatter(
                    [tf.range(2.0), tf.range(3.0)], op=bps.Sum, process_set=each
                )
            ],
            "objects": bps.allgather_object({"rank": rank}, process_set=each),
            "object": bps.broadcast_object(rank, each.ranks[-1], process_set=each),
        }
    return found


def sparse():
    found = {}
    for each in own_sets():
        rows = tf.IndexedSlices(tf.fill([2, 3], 1.0 + bps.rank()), tf.constant([0, bps.rank()]))
        result = bps.push_pull(rows, op="average", process_set=each)
        found[each.ranks] = result.indices.numpy().tolist(), result.values.numpy().tolist()
    return found


def gradients():
    """Of a loss that weights each worker's results by its rank."""
    found = {}
    weight = 1.0 + bps.rank()
    exchanges = {
        "sum": functools.partial(bps.push_pull, op="sum"),
        "average": bps.push_pull,
        "gather": functools.partial(bps.allgather, gradient="sum"),
        "broadcast": lambda x, process_set: bps.broadcast(
            x, process_set.ranks[0], gradient="sum", process_set=process_set
        ),
        "alltoall": bps.alltoall,
        "reducescatter": functools.partial(bps.reducescatter, op="sum"),
    }
    for each in own_sets():
        x = tf.constant([[1.0, 2.0]] * each.size())
        for name, exchange in exchanges.items():
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = weight * tf.reduce_sum(exchange(x, process_set=each))
            found[each.ranks, name] = tape.gradient(loss, x).numpy().tolist()
    return found


def training():
    """The tape's gradients, and weights after steps of an optimizer; in two sets at a time."""
    its = ENDS if ENDS.included() else ALONE
    x = tf.Variable([2.0, 3.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x * (1.0 + bps.rank()))
    tape = bps.DistributedGradientTape(tape, process_set=its)
    of_tape = tape.gradient(loss, [x])[0].numpy().tolist()
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.full([2, 1], float(its.ranks[0]))])
    optimizer = bps_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=its)
    bps.broadcast_variables(model.variables, its.ranks[0], process_set=its)
    for _ in range(2):
        optimizer.apply([tf.fill([2, 1], 1.0 + bps.rank())], model.trainable_variables)
    by_hand = model.get_weights()[0].ravel().tolist()
    model.compile(optimizer, "mse")
    model.fit(np.ones([4, 2], "float32"), np.zeros([4, 1], "float32"), batch_size=2, verbose=0)
    in_fit = model.get_weights()[0].ravel().tolist()
    return its.ranks, of_tape, by_hand, in_fit


def numbers():
    included = bps.training.runtime_ops.process_set_included_op
    return [(int(bps.size_op(number)), int(included(number))) for number in (0, 1, 2, 3)], error_of(
        bps.size_op, 9
    )


def refusals():
    x = tf.ones([2])
    other = next(each for each in (ENDS, LAST, ALONE) if not each.included())
    own = own_sets()[0]
    outside = next(rank for rank in range(bps.size()) if rank not in own.ranks)
    return {
        "not a member": error_of(bps.push_pull, x, process_set=other, name="x"),
        "no tape": error_of(bps.DistributedGradientTape, tf.GradientTape(), process_set=other),
        "not in use": error_of(bps.allgather, x, process_set=bps.ProcessSet([0, 1])),
        "a number": error_of(bps.allreduce, x, process_set=1),
        "root": error_of(bps.broadcast, x, outside, process_set=own),
        "name": error_of(bps.push_pull, x, name="workers{0}/x"),
        "async": error_of(bps.push_pull, x, enable_async=True, name="stored", process_set=own),
        "backup": error_of(
            bps.DistributedGradientTape(
                tf.GradientTape(), backup_workers=1, process_set=own
            )._reduction.reduce,
            [x],
            [tf.Variable(x)],
        ),
        "no rank": error_of(bps.ProcessSet, []),
        "twice": error_of(bps.ProcessSet, [1, 1]),
        "text": error_of(bps.ProcessSet, "01"),
        "fraction": error_of(bps.ProcessSet, [0.5]),
    }


def adding():
    different = error_of(bps.add_process_set, [0, 1] if bps.rank() else [0])
    known = error_of(bps.add_process_set, [0, 2])
    unknown = error_of(bps.add_process_set, [0, 7])
    added = bps.add_process_set(range(bps.size()))
    number = added.process_set_id
    total = bps.push_pull(1.0, op="sum", process_set=added)
    removed = bps.remove_process_set(added)
    return {
        "different": different,
        "known": known,
        "unknown": unknown,
        "total": float(total),
        "number": number,
        "removed": (removed, bps.remove_process_set(added), added.process_set_id),
        "global": bps.remove_process_set(bps.global_process_set),
        "used after": error_of(bps.push_pull, 1.0, process_set=added),
    }


def disagreement():
    """The workers of a set send different shapes; then go on."""
    found = {}
    for each in own_sets():
        shape = [1 + each.rank()]
        found[each.ranks] = (
            error_of(bps.push_pull, tf.ones(shape), name="differs", process_set=each),
            bps.push_pull(tf.ones([2]), op="sum", name="differs", process_set=each)
            .numpy()
            .tolist(),
        )
    return found


def again():
    """A session of its own has no sets."""
    bps.shutdown()
    bps.init()
    before = ENDS.process_set_id, ENDS.included(), ENDS.size(), ENDS.rank()
    bps.add_process_set(ENDS)
    total = float(bps.push_pull(1.0, op="sum", process_set=ENDS)) if ENDS.included() else None
    return before, ENDS.process_set_id, total


def alone():
    """A job of one process has the set of that one."""
    only = bps.ProcessSet([0])
    bps.init(process_sets=[only])
    mean = bps.push_pull(1.0, process_set=only, name="mean")
    rows = bps.allgather(tf.constant([5.0]), process_set=only)
    return float(mean), rows.numpy().tolist(), only.process_set_id, only.included()
