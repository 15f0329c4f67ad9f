"""What the workers of test_keras2.py do: programs for Keras 2."""

import numpy as np
import tensorflow as tf
import tf_keras

import tf_byteps as bps


def _rows():
    x = np.random.RandomState(0).normal(size=(23, 4)).astype("float32")
    return x, x[:, :1]


def _model(strategy):
    with strategy.scope():
        tf_keras.utils.set_random_seed(3)
        model = tf_keras.Sequential([tf_keras.layers.Dense(3, "tanh"), tf_keras.layers.Dense(1)])
        model.build([None, 4])
    return model


def compiled_in_the_scope():
    with bps.BytePSStrategy().scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse")


def predicting():
    _model(bps.BytePSStrategy()).predict(_rows()[0])


def outside_the_scope():
    """Each process trains alone, as it says."""
    bps.BytePSStrategy()
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(*_rows(), verbose=0)
    return len(model.predict(_rows()[0], verbose=0))


def loop():
    """The loop of TensorFlow's guide, with an uneven last batch."""
    strategy = bps.BytePSStrategy()
    model = _model(strategy)
    with strategy.scope():
        optimizer = tf_keras.optimizers.SGD(0.1, momentum=0.9)
    dataset = strategy.experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices(_rows()).batch(6)
    )

    @tf.function
    def train(batch, rows):
        def replica(x, y):
            with tf.GradientTape() as tape:
                losses = tf.reduce_mean((model(x) - y) ** 2, axis=1)
                loss = tf.nn.compute_average_loss(losses, global_batch_size=rows)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, batch), axis=None)

    losses = []
    for _ in range(2):
        for number, batch in enumerate(dataset):
            losses.append(float(train(batch, 6 if number < 3 else 5)))
    return losses, [weights.tolist() for weights in model.get_weights()]
