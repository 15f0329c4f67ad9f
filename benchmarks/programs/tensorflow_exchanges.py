"""A TensorFlow worker that exchanges tensors without a model: a chain, or one all-reduce."""

import time

import numpy as np
import tensorflow as tf

_functions = {}
_strategy = None


def join(strategy="byteps"):
    """Joins the job of a strategy: "byteps" or "mirrored"."""
    global _strategy
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if strategy == "byteps":
        import tf_byteps

        tf_byteps.init()
    else:
        _strategy = tf.distribute.MultiWorkerMirroredStrategy()


def leave():
    import tf_byteps

    tf_byteps.shutdown()


def build_chain(length, elements):
    """A function of `length` push_pulls, each of which needs the result of the one before."""
    import tf_byteps

    @tf.function
    def chain(value):
        for link in range(length):
            value = tf_byteps.push_pull(value, name=f"chain/{link}", op=tf_byteps.Average)
        return value

    _functions["chain"] = lambda: chain(tf.ones([elements]))


def build_all_reduce(elements):
    """An all-reduce of one tensor with MultiWorkerMirroredStrategy's collectives."""
    with _strategy.scope():
        tensor = tf.Variable(tf.ones([elements]))

    def reduce():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(tensor))

    def barrier():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant([1.0]))

    _functions["all_reduce"] = tf.function(lambda: _strategy.run(reduce))
    _functions["barrier"] = tf.function(lambda: _strategy.run(barrier))


def run(what):
    """Calls a function once; [begin, end] on the clock of all processes."""
    if "barrier" in _functions:
        _functions["barrier"]()
    begin = time.monotonic()
    np.asarray(_local(_functions[what]()))[:1]
    return [begin, time.monotonic()]


def _local(value):
    return value if _strategy is None else _strategy.experimental_local_results(value)[0]
