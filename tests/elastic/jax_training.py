"""Trainings of digits on JAX that lose workers: `python -m tests.elastic.jax_training HOW FOLDER
EPOCHS`.

As `tests.elastic.training`, in float64: weights must be those of one worker but for the last bits.
HOW is "fit" (with `BytePSStrategy`), "distributed" (`fit` with `DistributedOptimizer`), "batches"
(`train_on_batch` with the strategy) or "loop", which has no Keras: a state of trees, and a jitted
step. The first two may be followed by "backup" (workers), or "generator": an input of unknown
length, and commits where it ends. The state counts how often each image was used, in the steps that
led to the final weights.
"""

import hashlib
import json
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import tf_byteps as bps
from tests.elastic import digits as digits_of_sklearn
from tests.elastic.progress import BATCHES, COMMIT, SECONDS, Noting
from tf_byteps.exchange.object_gather import gather_objects

BATCH = 60  # over all workers: 1, 2 and 3 have equal pieces
BACKUP = 2  # workers
RATE = 0.05


def digits():
    """Images, labels and numbers of the images: whole batches only."""
    images, labels = digits_of_sklearn.load()
    rows = BATCHES * BATCH
    return images[:rows] / 16, labels[:rows].astype("int32")


def order_of(epoch):
    """The images of an epoch's batches: the same on every worker, whatever their number."""
    return np.random.default_rng(epoch).permutation(BATCHES * BATCH).reshape(BATCHES, BATCH)


def own(rows):
    """This worker's piece of each batch; `rows` ends with the axis of a batch's rows."""
    return np.split(rows, bps.size(), axis=-1)[bps.rank()]


def loop(folder, epochs):
    """Trains without Keras."""

    class State(Noting, bps.elastic.JaxState):
        """Says how far it has come."""

    images, labels = digits()
    random = np.random.default_rng(1)
    weights = {
        "hidden": jnp.asarray(random.normal(size=(64, 32)) / 8),
        "output": jnp.asarray(random.normal(size=(32, 10)) / 6),
    }
    slots = jax.tree.map(jnp.zeros_like, weights)
    counts = jnp.zeros(len(images), "int64")
    state = State(weights=weights, slots=slots, counts=counts, epoch=0, batch=0)
    state.folder, resets = folder, []
    state.register_reset_callbacks([lambda: resets.append(bps.size())])

    def loss_of(weights, x, y):
        logits = jnp.tanh(x @ weights["hidden"]) @ weights["output"]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(y)), y])

    @jax.jit
    def step(weights, slots, counts, x, y, numbers):
        gradients = bps.jax.push_pull_tree(jax.grad(loss_of)(weights, x, y), name="gradients")
        slots = jax.tree.map(lambda slot, gradient: 0.9 * slot + gradient, slots, gradients)
        weights = jax.tree.map(lambda weight, slot: weight - RATE * slot, weights, slots)
        mine = jnp.zeros_like(counts).at[numbers].add(1)
        # A constant of the program, which is compiled anew.
        every = bps.jax.push_pull(mine, op="sum", name="counts")
        return weights, slots, counts + every, jnp.asarray(bps.size())

    @bps.elastic.run
    def train(state):
        state.note("begin")
        while state.epoch < epochs:
            order = order_of(state.epoch)
            for numbers in own(order[state.batch :]):
                given = (images[numbers], labels[numbers], numbers)
                state.weights, state.slots, state.counts, size = step(
                    state.weights, state.slots, state.counts, *given
                )
                assert int(size) == bps.size()
                time.sleep(SECONDS)
                state.batch += 1
                if state.batch % COMMIT == 0:
                    state.commit()
            state.epoch, state.batch = state.epoch + 1, 0
            state.commit()

    train(state)
    arrays = [np.asarray(each) for each in jax.tree.leaves(state.weights)]
    report(folder, state, arrays, float(loss_of(state.weights, images, labels)), resets)


def of_unknown_length(rows, size):
    """Batches of rows, as a dataset that does not say how many there are."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(rows).filter(lambda *_: True).batch(size)


def compiled_model(distributed, loss, **options):
    """A model that `DistributedOptimizer` or else the strategy compiles, and its optimizer."""
    import keras

    layers = [keras.Input([64]), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
    if distributed:
        model.compile(bps.DistributedOptimizer(optimizer, **options), loss)
    else:
        with bps.BytePSStrategy(**options).scope():
            model.compile(optimizer, loss)
    return model, optimizer


def batch_counter(state):
    """A callback that notes the images of a batch, and lets no batch take less than some time."""
    import keras

    class Counts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(SECONDS)
            state.counts[order_of(state.epoch)[state.batch - 1]] += 1

    return Counts()


def fit_epoch(state, images, labels, distributed, from_generator):
    """Trains with what is left of an epoch in `Model.fit`."""
    order = order_of(state.epoch)[state.batch :]
    if distributed:
        order = own(order)
    data = images[order.ravel()], labels[order.ravel()]
    given = {"x": data[0], "y": data[1], "batch_size": order.shape[1]}
    if from_generator:
        given = {"x": of_unknown_length(data, order.shape[1])}
    callbacks = [
        bps.elastic.CommitStateCallback(state, BATCHES if from_generator else COMMIT),
        bps.elastic.UpdateBatchStateCallback(state),
        bps.elastic.UpdateEpochStateCallback(state),
        batch_counter(state),
    ]
    until = {"initial_epoch": state.epoch, "epochs": state.epoch + 1}
    state.model.fit(**given, shuffle=False, verbose=0, callbacks=callbacks, **until)


def train_on_batches(state, images, labels):
    """The same with `train_on_batch`."""
    for numbers in order_of(state.epoch)[state.batch :]:
        state.model.train_on_batch(images[numbers], labels[numbers])
        state.counts[numbers] += 1
        time.sleep(SECONDS)
        state.batch += 1
        if state.batch % COMMIT == 0:
            state.commit()
    state.epoch, state.batch = state.epoch + 1, 0
    state.commit()


def with_keras(how, folder, epochs):
    """Trains with Keras."""
    import keras

    how, *options = how.split()
    distributed = how == "distributed"

    class State(Noting, bps.elastic.KerasState):
        """Says how far it has come."""

    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(1)
    images, labels = digits()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    backup = {"backup_workers": BACKUP} if "backup" in options else {}
    model, optimizer = compiled_model(distributed, loss, **backup)
    state = State(model, epoch=0, batch=0, counts=np.zeros(len(images), np.int64))
    state.folder, resets = folder, []
    state.register_reset_callbacks([lambda: resets.append(bps.size())])

    @bps.elastic.run
    def train(state):
        state.note("begin")
        while state.epoch < epochs:
            if how == "batches":
                train_on_batches(state, images, labels)
            else:
                fit_epoch(state, images, labels, distributed, "generator" in options)

    train(state)
    logits = model(images)
    iterations = int(optimizer.iterations.value)
    assert iterations == epochs * BATCHES, iterations
    report(folder, state, model.get_weights(), float(loss(labels, logits)), resets)


def report(folder, state, weights, loss, resets):
    """Writes what came of it, on rank 0."""
    digest = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
    digests = gather_objects("digests", digest)
    if bps.rank() != 0:
        return
    counts = np.asarray(state.counts)
    result = {
        "weights": [each.ravel().tolist() for each in weights],
        "loss": loss,
        "digests": len(set(digests)),
        "least": int(counts.min()),
        "most": int(counts.max()),
        "epochs": state.epoch,
        "size": bps.size(),
        "resets": resets,
        "iterations": state.epoch * BATCHES,
    }
    with open(os.path.join(folder, "result.json"), "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    given = sys.argv[2], int(sys.argv[3])
    if sys.argv[1] == "loop":
        loop(*given)
        assert "keras" not in sys.modules
    else:
        with_keras(sys.argv[1], *given)
    assert "tf_byteps.ops" not in sys.modules
    bps.shutdown()
