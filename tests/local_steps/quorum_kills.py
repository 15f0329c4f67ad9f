"""Trainings with a quorum that somebody is lost from; see test_quorum_kills.py."""

import time

import numpy as np
import tensorflow as tf

import tf_byteps
from tests.local_steps.quorum_programs import Recorded


def trains(steps):
    """Makes rounds of a quorum; worker 2 takes three times as long for a step.

    Returns:
        What the rounds' rows times their averages add up to, the same of what this worker has
        brought, and the weights.
    """
    tf_byteps.init()
    rank = tf_byteps.rank()
    weights = [tf.Variable(np.zeros(4000), name=f"weight {index}") for index in range(4)]
    with Recorded() as recorded:
        outer = tf_byteps.OuterSync(weights, 4, quorum=2, grace=0, fragments=2)
        for step in range(steps):
            time.sleep(0.03 if rank == 2 else 0.01)
            for index, weight in enumerate(weights):
                weight.assign_add(np.full(4000, 1.0 + rank + index + step % 3))
            outer.step(rows=rank + 1)
            print(f"step {step}.", flush=True)
            if outer.others_wait:
                break
        outer.finish()
    tf_byteps.shutdown()
    rounds, brought = recorded.totals()
    return [rounds, brought, [float(weight.numpy()[0]) for weight in weights]]


def waits_for_a_fault():
    """Makes rounds until a worker is lost.

    Returns:
        The error's text.
    """
    tf_byteps.init()
    weight = tf.Variable(np.zeros(10), name="weight")
    outer = tf_byteps.OuterSync([weight], 2, quorum=2)
    try:
        for step in range(10**6):
            time.sleep(0.005)
            outer.step()
            if step == 20:
                print("working", flush=True)
    except tf.errors.UnavailableError as error:
        tf_byteps.shutdown()
        return str(error)
    return None
