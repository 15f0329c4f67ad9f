"""What the workers of test_server_rules.py do."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests.tables.on_servers_programs import OPTIMIZERS
from tf_byteps.keras import layers
from tf_byteps.tables import saving

ROWS, WIDTH, STEPS = 7, 4, 4


def _gradient(step, rank):
    """Of some rows, which are others for each worker."""
    random = np.random.default_rng((step, rank))
    indices = np.sort(random.choice(ROWS, 3, replace=False))
    return tf.IndexedSlices(tf.constant(random.normal(size=(3, WIDTH))), tf.constant(indices))


def _average(gradients):
    """What an optimizer in one process gets."""
    values = tf.concat([each.values for each in gradients], 0) / len(gradients)
    indices = tf.concat([each.indices for each in gradients], 0)
    rows, places = tf.unique(indices)
    return tf.IndexedSlices(tf.math.unsorted_segment_sum(values, places, len(rows)), rows)


def _states(optimizer, rows):
    return [each for each in optimizer.variables if tuple(each.shape)[:1] == (rows,)]


def updated(names):
    """The rows and states of each optimizer after some steps, on servers and in one process."""
    found = {}
    with tf_byteps.BytePSStrategy().scope():
        for name in names:
            table = layers.TableConfig(
                name, ROWS, WIDTH, "ones", OPTIMIZERS[name](), placement="servers"
            )
            layer = layers.DistributedEmbedding(layers.FeatureConfig(name, table))
            layer.build()
            (variable,) = layer.trainable_variables
            own, plain = layer.table_optimizers[name], OPTIMIZERS[name]()
            weights = keras.Variable(np.ones((ROWS, WIDTH)), dtype="float64")
            plain.build([weights])
            for step in range(STEPS):
                gradients = [_gradient(step, rank) for rank in range(tf_byteps.size())]
                own.apply([gradients[tf_byteps.rank()]], [variable])
                plain.update_step(_average(gradients), weights, plain.learning_rate)
                plain.iterations.assign_add(1)
            expected = [each.numpy() for each in (weights, *_states(plain, ROWS))]
            found[name] = [saving.whole(each) for each in (variable, *_states(own, 1))], expected
    return found
