"""A TensorFlow worker that exchanges the rows of embeddings that batches of ids touch."""

import time

import tensorflow as tf

import tf_byteps
from benchmarks.draws import DRAWS, ids_of
from benchmarks.programs.tensorflow_worker import join as join, leave as leave
from tf_byteps import _engine

_exchanges = {}


def prepare(draw):
    """Makes the function that exchanges a draw's rows."""
    rows, columns, _, _ = DRAWS[draw]

    @tf.function
    def exchange(values, ids):
        slices = tf.IndexedSlices(values, ids, tf.constant([rows, columns], tf.int64))
        return tf_byteps.push_pull(slices, op=tf_byteps.Sum, name=draw).values

    _exchanges[draw] = exchange


def run(draw, turn):
    """Exchanges the rows of a batch.

    Returns:
        When it began and ended on the clock of all processes, and the bytes pushed and received.
    """
    columns = DRAWS[draw][1]
    ids = tf.constant(ids_of(draw, tf_byteps.rank(), turn))
    values = tf.ones([len(ids), columns])
    tf_byteps.push_pull(0.0, name="together")
    before = _engine.worker_counters()
    begin = time.monotonic()
    _exchanges[draw](values, ids).numpy()
    end = time.monotonic()
    after = _engine.worker_counters()
    moved = [after[name] - before[name] for name in ("pushed_bytes", "received_bytes")]
    return [begin, end, *moved]


def add_up(megabytes):
    """Exchanges a tensor, of which all elements are added up. Returns the bytes pushed."""
    tensor = tf.ones([megabytes * 250_000])
    before = _engine.worker_counters()["pushed_bytes"]
    tf_byteps.push_pull(tensor, op=tf_byteps.Sum, name="plain")
    return _engine.worker_counters()["pushed_bytes"] - before
