"""What the workers of test_row_optimizers.py do."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tf_byteps.keras import optimizers

keras.config.set_floatx("float64")

_VOCABULARY, _WIDTH, _ROWS, _BATCH = 1000, 4, 45, 10  # the last batch is cut unevenly
OPTIMIZERS = {
    "keras.Adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "Ftrl": lambda: optimizers.Ftrl(0.1, l2_regularization_strength=0.01),
    "RMSprop": lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    "LazySGD": lambda: optimizers.LazySGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.5),
    "LazyAdam": lambda: optimizers.LazyAdam(0.01, amsgrad=True, global_clipnorm=0.5),
    "RowWiseAdagrad": lambda: optimizers.RowWiseAdagrad(0.1),
}


def _data():
    random = np.random.default_rng(5)
    words = random.zipf(1.3, (_ROWS, 6)) % _VOCABULARY
    return words, np.cos(words.sum(axis=1, keepdims=True)).astype("float64")


def _model(optimizer):
    keras.utils.set_random_seed(3)
    layers = [
        keras.layers.Embedding(_VOCABULARY, _WIDTH),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((6,), dtype="int64"), *layers])
    model.compile(optimizer, "mse")
    return model


def _trained(name):
    data = _data()
    model = _model(OPTIMIZERS[name]())
    history = model.fit(*data, epochs=2, batch_size=_BATCH, shuffle=False, verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(data, _data(), strict=True))
    return [np.concatenate([np.ravel(w) for w in model.get_weights()]), history.history["loss"]]


def plain(name):
    """One process, no strategy."""
    return _trained(name)


def strategy(name):
    """This worker's part of the same training."""
    # Keras's Adagrad squares each occurrence of a row by itself; the others add them up first.
    merges = name not in ("keras.Adagrad", "Adagrad")
    with tf_byteps.BytePSStrategy(merge_repeated_rows=merges).scope():
        return _trained(name)


def lookups():
    """Whether lookups in steps of a strategy are Keras's, with all kinds of indices."""
    layer = keras.layers.Embedding(9, 2)
    layer.build()
    strategy = tf_byteps.BytePSStrategy()
    inputs = [
        tf.constant([[0, 8], [3, 3]], dtype) for dtype in ("int32", "int64", "uint8", "float32")
    ]
    inputs += [tf.constant([-1, -9]), tf.zeros((0, 3), tf.int64), tf.constant(4)]
    for indices in inputs:
        inside = strategy.run(layer, (indices,))
        np.testing.assert_array_equal(inside, layer(indices))
        assert inside.dtype == "float64"
    _looks_up_narrow_rows(strategy, inputs[0])
    try:
        strategy.run(layer, (tf.constant([9]),))
    except tf.errors.InvalidArgumentError as error:
        return str(error)


def _looks_up_narrow_rows(strategy, indices):
    """Mixed precision casts rows; their gradient is what Keras has for a table that was cast."""
    layer = keras.layers.Embedding(9, 2, dtype="mixed_float16")
    layer.build()

    def loss():
        with tf.GradientTape() as tape:
            rows = layer(indices)
            value = tf.reduce_sum(tf.square(rows))
        return rows, tape.gradient(value, layer.embeddings.value)

    (rows, gradient), (theirs, their_gradient) = tf.function(lambda: strategy.run(loss))(), loss()
    assert rows.dtype == theirs.dtype == "float16"
    assert gradient.values.dtype == their_gradient.values.dtype == "float32"
    np.testing.assert_array_equal(rows, theirs)
    np.testing.assert_array_equal(gradient.values, their_gradient.values)
    np.testing.assert_array_equal(gradient.indices, their_gradient.indices)


def tables(name):
    """Operations of a step that give a tensor as long as the embedding."""
    strategy = tf_byteps.BytePSStrategy()
    with strategy.scope():
        model = _model(OPTIMIZERS[name]())
        x, y = (tf.constant(each[:_BATCH]) for each in _data())
        step = tf.function(lambda: strategy.run(model.train_step, ((x, y),)))
        return whole_tables(step.get_concrete_function(), _VOCABULARY)


def whole_tables(traced, rows):
    """The operations of a traced function, and of those that it calls, that compute so many rows.

    `ReadVariableOp` is among them: once rows of a variable were updated, it copies.
    """
    graph = traced.graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    shapes = [(node.name, node.attr["_output_shapes"].list.shape) for node in nodes]
    assert sum(len(each) for _, each in shapes) > 20
    return [name for name, each in shapes if any(s.dim and s.dim[0].size == rows for s in each)]
