"""Trainings of digits that lose workers: `python -m tests.elastic.training HOW FOLDER EPOCHS`.

HOW is "fit" or "loop", or "fit" with something more: "backup" (workers), "compiled" (by XLA),
"generator" (an input of unknown length, and commits where it ends), "cross_step" or "quorum" (of
local steps), whose models count nothing. A quorum's workers are at different batches, and commit
after epochs only. A variable of the state counts how often each image
was used, over all workers, in the steps that led to the final weights: steps that were taken back
are not in it. Rank 0 writes `result.json` into FOLDER; all write a line to `progress.txt` with each
commit, for those who kill them, and train no further than `limit.txt` says.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

if __name__ == "__main__":
    from tests import quick_start

    quick_start.leave_out_packages("jax")

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.elastic import digits
from tests.elastic.progress import BATCHES, COMMIT, SECONDS, Noting

BATCH = 64  # over all workers
BACKUP = 2  # workers
LOCAL_STEPS, QUORUM = 4, 2
RATE = 0.05


class Digits(keras.Model):
    """A classifier that knows on which images it was trained. Inputs: images and their numbers."""

    def __init__(self, images):
        super().__init__()
        layers = [keras.Input([64]), keras.layers.Dense(32, activation="relu")]
        self.classifier = keras.Sequential([*layers, keras.layers.Dense(10)])
        self.counts = self.add_weight(shape=[images], dtype="int64", trainable=False, name="counts")
        self.built = True

    def call(self, inputs):
        return self.classifier(inputs[0])

    def count(self, numbers, weights):
        """Notes the images of this worker's part of a batch, and the other workers' images."""
        # TensorFlow keeps int32 variables on the CPU, where XLA for a GPU cannot use them.
        rows = tf.reshape(tf.cast(weights, tf.int64), [-1])
        # Unlike bincount of the rows that count, this has a shape that XLA knows.
        mine = tf.math.unsorted_segment_sum(rows, tf.reshape(numbers, [-1]), self.counts.shape[0])
        self.counts.assign_add(bps.push_pull(mine, op=bps.Sum, name="counts"))

    def train_step(self, data):
        inputs, labels, weights = data
        self.count(inputs[1], weights)
        return super().train_step((inputs, labels))


def batches(epoch):
    """All batches of an epoch: the same on every worker, whatever their number."""
    images, labels = digits.load()
    order = np.random.default_rng(epoch).permutation(len(images))
    images = (images / 16).astype("float32")
    ones = np.ones(len(images), "float32")  # a row that stands for none has 0
    rows = ((images[order], order.astype("int32")), labels[order], ones)
    return tf.data.Dataset.from_tensor_slices(rows).batch(BATCH)


def main(how, folder, epochs):
    """Trains, and reports on rank 0."""
    keras.utils.set_random_seed(1)
    given = {
        "cross_step": {"cross_step": True},
        "backup": {"backup_workers": BACKUP},
        "quorum": {"local_steps": LOCAL_STEPS, "quorum": QUORUM},
    }
    strategy = bps.BytePSStrategy(**given.get(how, {}))
    with strategy.scope():
        model = Digits(len(digits.load()[1]))
        if how in ("cross_step", "quorum"):  # which cannot do with a train_step of its own
            model = model.classifier
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
        model.compile(optimizer, loss, jit_compile=True if how == "compiled" else "auto")
    state = KerasState(model, epoch=0, batch=0)
    state.folder = folder
    resets = []
    state.register_reset_callbacks([lambda: resets.append(bps.size())])
    kinds = {"loop": Loop, "quorum": FitByEpochs, "generator": FitGenerator}
    train = kinds.get(how, Fit)(strategy, model)
    bps.elastic.run(train)(state, epochs)
    if bps.rank() == 0:
        report(folder, state, loss, resets)


class KerasState(Noting, bps.elastic.KerasState):
    """Says how far it has come."""


class Pause(keras.callbacks.Callback):
    """Lets no batch take less than some time."""

    reads_weights = False

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(SECONDS)


class Fit:
    """Trains with `Model.fit`, an epoch at a time."""

    batches_per_commit = COMMIT

    def __init__(self, strategy, model):
        del strategy, model  # the state has them

    def __call__(self, state, epochs):
        state.note("begin")
        while state.epoch < epochs:
            rest = self.rest(state)
            if not isinstance(state.model, Digits):
                rest = rest.map(lambda inputs, labels, weights: (inputs[0], labels, weights))
            until = {"initial_epoch": state.epoch, "epochs": state.epoch + 1}
            callbacks = [*self.callbacks(state), Pause()]
            state.model.fit(rest, shuffle=False, verbose=0, callbacks=callbacks, **until)
            self.end_epoch(state)

    def rest(self, state):
        """Batches of the epoch that are not done."""
        return batches(state.epoch).skip(state.batch)

    def callbacks(self, state):
        return [
            bps.elastic.CommitStateCallback(state, self.batches_per_commit),
            bps.elastic.UpdateBatchStateCallback(state),
            bps.elastic.UpdateEpochStateCallback(state),
        ]

    def end_epoch(self, state):
        """What the callbacks have not done."""


class FitGenerator(Fit):
    """The same with an input that does not say how long it is, and commits where it ends."""

    batches_per_commit = BATCHES

    def rest(self, state):
        return super().rest(state).unbatch().filter(lambda *_: True).batch(BATCH)


class FitByEpochs(Fit):
    """The same, with a commit after each."""

    def callbacks(self, state):
        return []

    def end_epoch(self, state):
        state.epoch += 1
        state.commit()


class Loop:
    """Trains with a loop of its own; what is traced is made once, outside."""

    def __init__(self, strategy, model):
        @tf.function
        def replicas():
            return tf.constant(strategy.num_replicas_in_sync)

        @tf.function
        def step(data):
            def replica_step(data):
                (images, numbers), labels, weights = data
                with tf.GradientTape() as tape:
                    each = keras.ops.sparse_categorical_crossentropy(
                        labels, model((images, numbers), training=True), from_logits=True
                    )
                    total = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
                model.count(numbers, weights)
                gradients = tape.gradient(total, model.trainable_variables)
                model.optimizer.apply(gradients, model.trainable_variables)

            strategy.run(replica_step, args=(data,))

        self._strategy, self._step, self._replicas = strategy, step, replicas

    def __call__(self, state, epochs):
        state.note("begin")
        # A constant of the trace, which is made anew.
        assert int(self._replicas()) == bps.size()
        while state.epoch < epochs:
            rest = batches(state.epoch).skip(state.batch)
            for data in self._strategy.experimental_distribute_dataset(rest):
                self._step(data)
                time.sleep(SECONDS)
                state.batch += 1
                if state.batch % COMMIT == 0:
                    state.commit()
            state.epoch, state.batch = state.epoch + 1, 0
            state.commit()


def report(folder, state, loss, resets):
    """Writes what came of it."""
    images, labels = digits.load()
    logits = getattr(state.model, "classifier", state.model)((images / 16).astype("float32"))
    counts = getattr(state.model, "counts", tf.fill([1], state.epoch)).numpy()
    result = {
        "loss": float(loss(labels, logits)),
        "least": int(counts.min()),
        "most": int(counts.max()),
        "epochs": state.epoch,
        "size": bps.size(),
        "resets": resets,
        "iterations": int(state.optimizer.iterations.numpy()),
    }
    with open(os.path.join(folder, "result.json"), "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    bps.shutdown()
