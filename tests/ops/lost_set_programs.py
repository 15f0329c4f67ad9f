"""What the workers of test_process_sets.py do while a process is killed."""

import os
import time

import tensorflow as tf

import tf_byteps as bps

SETS = ([0, 2], [1, 2])


def sums_of_sets(steps, begun):
    """Sums in both sets, of which rank 2 is in each; whether all were right."""
    sets = [bps.ProcessSet(ranks) for ranks in SETS]
    bps.init(process_sets=sets)
    own = [each for each in sets if each.included()]

    @tf.function
    def step(x):
        return [
            (
                bps.push_pull([x, 2 * x], op="sum", name="sums", process_set=each),
                bps.allgather(x[:2], name="rows", process_set=each),
            )
            for each in own
        ]

    for number in range(steps):
        results = step(tf.fill([5000], number + 1.0 + bps.rank()))
        for each, (sums, rows) in zip(own, results, strict=True):
            values = [number + 1.0 + rank for rank in each.ranks]
            assert all(sums[0].numpy() == sum(values)), (number, each, sums[0])
            assert all(sums[1].numpy() == 2 * sum(values)), (number, each, sums[1])
            assert rows.numpy().tolist() == [value for value in values for _ in range(2)]
        if number == 3:
            print(begun, flush=True)
        time.sleep(0.002)
    bps.shutdown()
    return len(own)


def survive_a_worker():
    """Worker 1 ends within sums of its set; what the others see, also one that is in no set of
    its."""
    sets = [bps.ProcessSet(ranks) for ranks in SETS]
    bps.init(process_sets=sets)
    own = [each for each in sets if each.included()]
    try:
        for number in range(10**6):
            for each in own:
                bps.push_pull(tf.ones([5000]), op="sum", name="sums", process_set=each)
            if number == 20 and bps.rank() == 1:
                os._exit(3)
    except tf.errors.OpError as error:
        return [type(error).__name__, error.message]


def leave_in_turn():
    """Worker 1, in no set with rank 0, leaves in order: the set of 0 and 2 goes on."""
    ends = bps.ProcessSet([0, 2])
    bps.init(process_sets=[ends])
    if bps.rank() == 1:
        bps.shutdown()
        return None
    total = 0.0
    for number in range(50):
        total += float(bps.push_pull(number + 0.0, op="sum", name="sums", process_set=ends))
        time.sleep(0.01)
    bps.shutdown()
    return total
