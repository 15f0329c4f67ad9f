"""What the workers of test_releasing.py do. Each has a server, and the tables are on both."""

import gc

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests.cluster import wait_until
from tests.tables import tables_programs as base
from tf_byteps.keras import layers
from tf_byteps.tables import releasing

ROWS, WIDTH = 20_000, 32
_TABLE_BYTES = ROWS * WIDTH * 8 * 2  # on each server, with what Adagrad keeps
IDS = np.arange(40).reshape(10, 4) * 7


def _trained():
    """A model that has trained an epoch with a new table."""
    table = layers.TableConfig("items", ROWS, WIDTH, "ones", "adagrad", placement="servers")
    ids = keras.Input([4], dtype="int64")
    rows = layers.DistributedEmbedding(layers.FeatureConfig("items", table), name="tables")(ids)
    model = keras.Model(ids, keras.layers.Dense(1, kernel_initializer="ones")(rows))
    model.compile("sgd", "mse")
    model.fit(IDS, np.zeros((len(IDS), 1)), batch_size=5, shuffle=False, verbose=0)
    return model


def _held():
    """The memory of this worker's server, in tables."""
    return tf_byteps.server_counters()["accumulator_bytes"] / _TABLE_BYTES


def _meet():
    tf_byteps.push_pull(tf.zeros([1]), name="meet")


def _await_free():
    """Waits until this worker's server has freed all tables. Returns what it still has."""
    wait_until(lambda: _held() < 0.5, 300)  # one of its two blocks
    return _held()


def _await_forgotten():
    """Waits until this worker keeps nothing of tables that all have released."""
    wait_until(lambda: not releasing.releaser._releases, 300)


def _look_up(model):
    return model.get_layer("tables")(tf.constant(IDS)).numpy()


def _told_of_a_change(model):
    rows = {"items": np.zeros((ROWS, WIDTH))}
    return base._message(lambda: model.get_layer("tables").set_embedding_tables(rows))


def one_after_the_other():
    """Of each of some models: memory while it is there and afterwards, and its trained rows."""
    found = []
    with tf_byteps.BytePSStrategy().scope():
        for _ in range(3):
            model = _trained()
            rows, held = _look_up(model), _held()
            del model
            gc.collect()
            found.append((held, _await_free(), rows))
            _await_forgotten()
            _meet()  # the next table would be on servers that free the last
    return found


def one_worker_keeps_it():
    """Worker 1 still has the model when worker 0 has it no more.

    Returns:
        Memory when worker 0 has no model any more, and when both have none. Worker 1 also: rows
        before and in between, and what it is told when it changes the table.
    """
    with tf_byteps.BytePSStrategy().scope():
        model = _trained()
        if tf_byteps.rank() == 0:
            del model
            gc.collect()
            _meet()
            held = _held()
            _meet()
            return held, _await_free()
        before, message = _look_up(model), _told_of_a_change(model)
        between, held = _look_up(model), _held()
        _meet()
        _meet()
        del model
        gc.collect()
        return held, _await_free(), before, between, message
