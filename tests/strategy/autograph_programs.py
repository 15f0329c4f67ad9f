"""What the workers of test_autograph.py do."""

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


class Deciding(keras.Model):
    """A step with Python's `if` on a tensor."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        logs = super().train_step((data, tf.zeros([tf.shape(data)[0], 1])))
        if tf.reduce_any(data > 100.0):
            large = 1.0
        else:
            large = 0.0
        return {"large": large, **logs}


def converts():
    """Traces steps with branches that AutoGraph makes part of the graph.

    Returns:
        What each step gives for 2 and -2, what a model's own step gives for small and large rows,
        and the modules of all functions that are converted.
    """
    weight = tf.Variable(3.0)
    strategy = bps.BytePSStrategy()
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.build([weight])
    with strategy.scope():
        model = Deciding()
        model.build([None, 6])
        model.compile(keras.optimizers.SGD(0.01), "mse")

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

    def of_model(rows):
        logs = strategy.run(model.train_step, args=(rows,))
        return strategy.reduce("SUM", bps.push_pull(logs["large"], op="sum"), axis=None)

    modules = set()
    convert = api._convert_actual

    def noted(entity, program):
        modules.add(entity.__module__)
        return convert(entity, program)

    with mock.patch.object(api, "_convert_actual", noted):
        steps = [tf.function(each) for each in (of_strategy, of_tape, of_optimizer, of_compressor)]
        found = [[float(step(tf.constant(x))) for x in (2.0, -2.0)] for step in steps]
        step, rows = tf.function(of_model), (1.0, 101.0 - bps.rank())
        decided = [float(step(tf.fill([4, 6], value))) for value in rows]
    return found, decided, modules
