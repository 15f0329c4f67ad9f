"""A TensorFlow worker whose steps take a given time, whatever the machine computes meanwhile.

Steps of `paced` change weights and compute nothing else. Those of `trains` are of the character
model of `character_training`.
"""

import time

import numpy as np
import tensorflow as tf

import tf_byteps
from benchmarks.programs import character_training as characters
from benchmarks.programs.character_training import join as join, leave as leave


def paced(megabytes, seconds, slow, steps, settings, name):
    """Makes steps that take some time, with rounds or without.

    Args:
        megabytes: of the weights, in eight equal ones.
        seconds: of a step.
        slow: times longer that a step of the last worker takes.
        steps: of each worker; with a quorum the last one makes as many as it can meanwhile.
        settings: of `OuterSync`; `None`: computing alone.
        name: of the weights.

    Returns:
        The seconds that the steps took, without what comes after the last one, and their number.
    """
    count = int(megabytes * 1e6 / 4 / 8)
    weights = [tf.Variable(np.zeros(count, np.float32), name=f"{name}{i}") for i in range(8)]
    is_last = tf_byteps.rank() == tf_byteps.size() - 1
    pause = seconds * (slow if is_last else 1)
    # The same for all, so that it costs a pause little.
    change = tf.constant(1e-3, tf.float32, [count])
    outer = None if settings is None else tf_byteps.OuterSync(weights, **settings)
    if outer is not None:  # a round of each fragment is traced
        for _ in range(settings["local_steps"] + settings.get("delay", 0) + 1):
            outer.step()
        outer.finish()
    _meet()
    made, begin = 0, time.monotonic()
    while made < steps and not (outer is not None and outer.others_wait):
        weights[made % 8].assign_add(change)
        time.sleep(pause)
        if outer is not None:
            outer.step()
        made += 1
    took = time.monotonic() - begin
    if outer is not None:
        outer.finish()
    _meet()
    return took, made


def trains(asynchronous, seed, seconds, slow, rows):
    """Trains the character model with batches of its own on each worker.

    Args:
        asynchronous: whether weights' changes are exchanged, and nobody waits; or gradients.
        seed: of the weights and the batches.
        seconds: of a step's pause.
        slow: times longer that of the last worker.
        rows: of all workers, after which training ends.

    Returns:
        The seconds of the training, the rows of this worker, and the validation loss.
    """
    weights = characters._weights(np.random.default_rng(seed))
    steps = rows // characters._BATCH // tf_byteps.size()
    optimizer = characters._optimizer("adam", steps)
    optimizer.build(weights)
    random = tf.random.Generator.from_seed(1000 * seed + tf_byteps.rank())
    pause = seconds * (slow if tf_byteps.rank() == tf_byteps.size() - 1 else 1)
    name = f"{'asynchronous' if asynchronous else 'synchronous'} {seed}"

    @tf.function(autograph=False)
    def step():
        windows = characters._windows(characters._text["train"], random, characters._BATCH)
        with tf.GradientTape() as tape:
            loss = characters._loss(weights, *windows)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        if not asynchronous:
            gradients = tf_byteps.push_pull(gradients, op="average", name=name)
        optimizer.apply(gradients, weights)

    @tf.function(autograph=False)
    def exchange(changes, made):
        sent = [each / tf_byteps.size() for each in changes]
        return tf_byteps.push_pull([*sent, made], name=name, enable_async=True)

    step.get_concrete_function()
    own = 0
    if asynchronous:
        values = [tf.identity(weight.value) * tf_byteps.size() for weight in weights]
        *held, done = exchange(values, tf.constant(0, tf.int64))
    _meet()
    begin = time.monotonic()
    if not asynchronous:
        for _ in range(steps):
            step()
            time.sleep(pause)
            own += characters._BATCH
    while asynchronous and int(done) * characters._BATCH < rows:
        for weight, value in zip(weights, held, strict=True):
            weight.assign(value)
        step()
        time.sleep(pause)
        changes = [weight - value for weight, value in zip(weights, held, strict=True)]
        *held, done = exchange(changes, tf.constant(1, tf.int64))
        own += characters._BATCH
    took = time.monotonic() - begin
    _meet()
    if asynchronous:
        nothing = [tf.zeros_like(weight.value) for weight in weights]
        *held, done = exchange(nothing, tf.constant(0, tf.int64))
        for weight, value in zip(weights, held, strict=True):
            weight.assign(value)
    return took, own, characters._validation_loss(weights)


def _meet():
    tf_byteps.push_pull(tf.constant(0.0), name="all begin")
