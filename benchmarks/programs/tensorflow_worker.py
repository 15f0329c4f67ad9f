"""How TensorFlow workers of a benchmark join their job and leave it: with few threads each."""

import tensorflow as tf

import tf_byteps


def join():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf_byteps.init()


def leave():
    tf_byteps.shutdown()
