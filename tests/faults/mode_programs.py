"""What the workers of mode_kills.py do: trainings that wait for others less than in each step."""

import hashlib
import time

import numpy as np
import tensorflow as tf

import tf_byteps
from tests.local_steps import quorum_kills
from tf_byteps.local_steps.changes import Changes, Staleness

_SHAPES = ((64, 50), (700,), (3,))  # of several parts, and less than one
_DIGITS = 1000  # of a worker's steps, in sums of all workers' changes


def stores(steps, staleness):
    """Asynchronous steps. Each moves each weight by a whole number of this worker's own.

    Args:
        steps: fewer than `_DIGITS`.
        staleness: as in `BytePSStrategy`.

    Returns:
        What the weights are when all have come together, each different value once.
    """
    tf_byteps.init()
    weights = _weights(tf.float64)
    changes = Changes([each.name for each in weights], weights, Staleness(staleness))
    for step in range(steps):
        changes.begin_steps()
        for weight in weights:  # servers add it divided by the number of workers
            moved = _DIGITS ** tf_byteps.rank() * tf_byteps.size()
            weight.assign_add(np.full(weight.shape, moved, np.float64))
        _note(step)
        changes.end_steps()
    changes.finish()
    values = np.concatenate([each.numpy().ravel() for each in weights])
    tf_byteps.shutdown()
    return np.unique(values).tolist()


def of_stores(steps, workers):
    """What `stores` returns if each change is in the weights once."""
    return [float(steps * sum(_DIGITS**rank for rank in range(workers)))]


def rounds(steps, settings):
    """Local steps, whose changes follow from the weights: a lost or doubled one stays seen.

    Returns:
        A digest of the weights and of the outer momentum.
    """
    tf_byteps.init()
    weights = _weights(tf.float32)
    outer = tf_byteps.OuterSync(weights, **settings)
    random = np.random.default_rng(tf_byteps.rank())
    for step in range(steps):
        for weight in weights:
            drawn = random.normal(size=weight.shape).astype("float32")
            weight.assign(0.9 * weight + drawn)
        _note(step)
        outer.step()
    outer.finish()
    digest = hashlib.sha256()
    for variable in [*weights, *(outer._rounds.state.momenta or [])]:
        digest.update(variable.numpy().tobytes())
    tf_byteps.shutdown()
    return digest.hexdigest()


def quorum(steps):
    """See `quorum_kills.trains`."""
    return quorum_kills.trains(steps)


def of_quorum(results):
    """What is wrong with what `quorum` returned on all workers; nothing should be."""
    counted, brought, weights = zip(*results, strict=True)
    if any(each != counted[0] for each in counted) or any(each != weights[0] for each in weights):
        return [f"the workers differ: {results}"]
    if not np.allclose(counted[0], np.sum(brought, axis=0), rtol=1e-9, atol=0):
        return [f"rounds have {counted[0]}, and workers brought {np.sum(brought, axis=0)}"]
    return []


def _weights(dtype):
    return [
        tf.Variable(tf.zeros(shape, dtype), name=f"weight_{number}")
        for number, shape in enumerate(_SHAPES)
    ]


def _note(step):
    time.sleep(0.005)
    print(f"step {step}.", flush=True)
