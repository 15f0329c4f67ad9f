"""What the workers of test_saved.py do."""

import os

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
import tf_byteps.ops  # loads the operations, which a SavedModel may contain


class Exchanges(tf.Module):
    """Functions that exchange, one within the other, and the numbers of the job."""

    def __init__(self):
        self.weight = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def inner(self, x):
        return bps.push_pull(x * self.weight, op="sum", name="saved")

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def outer(self, x):
        slices = tf.IndexedSlices(x[:, None], tf.range(tf.size(x)), tf.constant([9, 1]))
        return {
            "first": self.inner(x),
            "second": bps.push_pull(10 * x, op="sum", name="saved"),
            "gathered": bps.gather(x, name="saved rows"),
            "broadcast": bps.broadcast(x, root_rank=0),
            "slices": tf.convert_to_tensor(bps.push_pull(slices, op="sum", name="slices")),
        }

    @tf.function(input_signature=[])
    def place(self):
        return bps.rank_op(), bps.size_op(), bps.local_rank_op(), bps.local_size_op()


def _outcomes(module):
    """What the functions return; also several times in one function, in program order."""
    x = tf.constant([1.0, 2.0]) * (bps.rank() + 1)
    repeated = tf.function(lambda: [module.inner(x), module.inner(10 * x)])()
    return tf.nest.map_structure(
        lambda tensor: np.asarray(tensor).tolist(),
        {**module.outer(x), "repeated": repeated, "place": list(module.place())},
    )


def save(folder):
    """Saves the functions, and loads them into the same process."""
    bps.init()
    module = Exchanges()
    before = _outcomes(module)
    path = os.path.join(folder, str(bps.rank()))
    tf.saved_model.save(module, path, signatures=module.outer)
    return before, _outcomes(tf.saved_model.load(path)), _outcomes(module)


def load(folder):
    """Loads in a new process what worker 0 of another job has saved."""
    bps.init()
    loaded = tf.saved_model.load(os.path.join(folder, "0"))
    x = tf.constant([1.0, 2.0]) * (bps.rank() + 1)
    served = loaded.signatures["serving_default"](x=x)
    return _outcomes(loaded), served["first"].numpy().tolist()


def place_in_another_job():
    """A function that was traced in this job, and then runs in a job of one worker."""
    bps.init()
    place = Exchanges().place
    numbers = [[int(number) for number in place()]]
    eager = [bps.rank_op(), bps.size_op(), bps.local_rank_op(), bps.local_size_op()]
    numbers.append([int(number) for number in eager])
    kinds = {node.op for node in place.get_concrete_function().graph.as_graph_def().node}
    bps.shutdown()
    try:
        place()
    except tf.errors.FailedPreconditionError as error:
        message = error.message
    del os.environ["TF_CONFIG"]
    bps.init()
    return numbers, [int(number) for number in place()], sorted(kinds), message


def export(folder):
    """Trains with the strategy, then exports; returns some inputs and their predictions."""
    strategy = bps.BytePSStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.layers.Dense(4, activation="relu"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Dense(1),
        ]
        model = keras.Sequential(layers)
        model.compile("adam", "mse")
    x = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
    model.fit(x, x.sum(axis=1, keepdims=True), batch_size=8, epochs=2, verbose=0)
    if bps.rank() == 0:
        model.export(os.path.join(folder, "exported"), verbose=False)
        tf.saved_model.save(model, os.path.join(folder, "saved"))
    return x, model.predict(x, batch_size=8, verbose=0)
