"""What the worker of test_autograph.py does."""

from unittest import mock

import keras
import tensorflow as tf
from tensorflow.python.autograph.impl import api

import tf_byteps as bps


class Halving(bps.ops.Compressor):
    """Sends large values as their halves."""

    def compress(self, tensor):
        if tf.reduce_max(tensor) > 1.0:
            sent = tensor / 2.0
        else:
            sent = tensor
        return sent, None

    def decompress(self, tensor, context):
        del context
        if tf.reduce_max(tensor) < 0.0:
            tensor = tensor + 8.0
        return tensor


def converts():
    """Traces steps with branches that AutoGraph makes part of the graph.

    Returns:
        What each step gives for 2 and -2, and the modules of all functions that are converted.
    """
    weight = tf.Variable(3.0)
    strategy = bps.BytePSStrategy()
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.build([weight])

    def signed(x):
        if x > 0.0:
            return weight * x
        return -x

    def of_strategy(x):
        return strategy.run(signed, args=(x,))

    def of_tape(x):
        with tf.GradientTape() as tape:
            loss = signed(x)
        (gradient,) = bps.DistributedGradientTape(tape).gradient(loss, [weight])
        return gradient

    def of_optimizer(x):
        if x > 0.0:
            optimizer.apply([x], [weight])
        return weight.read_value()

    def of_compressor(x):
        return bps.push_pull(x, compression=Halving())

    modules = set()
    convert = api._convert_actual

    def noted(entity, program):
        modules.add(entity.__module__)
        return convert(entity, program)

    with mock.patch.object(api, "_convert_actual", noted):
        steps = [tf.function(each) for each in (of_strategy, of_tape, of_optimizer, of_compressor)]
        found = [[float(step(tf.constant(x))) for x in (2.0, -2.0)] for step in steps]
    return found, modules
