"""What test_keras_fit.py runs on each worker: `Model.fit` of Keras on JAX.

With no cluster variable the same functions run in one process.
"""

import contextlib
import io
import os
import random

import jax
import jax.numpy as jnp
import keras
import numpy as np
from failing_programs import (  # noqa: F401
    left,
    left_outside_fit,
    lengths,
    lost,
    lost_before_an_evaluation,
    refusals,
)
from keras_models import Batches, Losses, data, facts, model_of
from step_programs import at_once, compiled_at_once, exchanged, own_optimizers, own_steps  # noqa: F401

import tf_byteps
from tests import freed as freed_weights


def arrays():
    """An unseeded shuffle, uneven pieces, an empty one with three workers, all that `fit` calls."""
    x, y = data()
    clipped = keras.optimizers.Adam(0.05, global_clipnorm=0.5)
    model = model_of(clipped, metrics=["accuracy"])
    history = model.fit(x, y, batch_size=12, epochs=2, validation_data=(x[:7], y[:7]), verbose=0)
    return facts(
        model,
        history,
        evaluation=model.evaluate(x, y, batch_size=12, verbose=0),
        prediction=model.predict(x, batch_size=12, verbose=0),
        one_batch=model.predict_on_batch(x[:4]),
        optimizer=[np.asarray(variable) for variable in model.optimizer.variables],
    )


def accumulation():
    """Accumulated gradients, clipped, with weights of samples, several steps in one execution."""
    x, y = data()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.1, gradient_accumulation_steps=2)
    model = model_of(optimizer, steps_per_execution=2, weighted_metrics=["accuracy"])
    weights = np.linspace(0, 2, len(x))
    history = model.fit(x, y, batch_size=12, epochs=2, sample_weight=weights, verbose=0)
    history.history["by class"] = model.fit(
        x, y, batch_size=20, class_weight={0: 1.0, 1: 3.0, 2: 0.5}, verbose=0
    ).history["loss"]
    return facts(model, history, prediction=model.predict(x, batch_size=12, verbose=0))


def loss_scale():
    """A step in which one worker's rows overflow is skipped by all."""
    x, y = data()
    x[3] = 1e300
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), initial_scale=1e20
    )
    model = model_of(optimizer, loss="mse")
    history = model.fit(x, np.eye(3)[y] * 1e10, batch_size=12, epochs=2, shuffle=False, verbose=0)
    return facts(model, history, scale=float(optimizer.dynamic_scale))


def inputs():
    """A `PyDataset`, which Keras shuffles, a generator, and a `tf.data.Dataset`."""
    import tensorflow as tf

    x, y = data()
    model = model_of()
    batches = Batches(x, y)
    history = {"dataset": model.fit(batches, epochs=2, verbose=0).history["loss"]}

    def generate():
        while True:
            for index in range(len(batches)):
                yield batches[index]

    history["generator"] = model.fit(generate(), steps_per_epoch=5, epochs=2, verbose=0).history[
        "loss"
    ]
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(12)
    history["tf.data"] = model.fit(dataset, epochs=2, verbose=0).history["loss"]
    return {**facts(model), "history": history, "prediction": model.predict(dataset, verbose=0)}


def batches_of_datasets():
    """Whether two batches of a dataset that are one tensor share memory, and may be written to; and
    the type of batches that are sparse."""
    import tensorflow as tf
    from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

    from tf_byteps.strategy.jax import batches

    x = np.arange(12.0).reshape(4, 3)
    dense = tf.data.Dataset.from_tensors({"x": x, "y": (x > 1, np.int32([1, 2, 3, 4]))}).repeat(2)
    first, second = batches._batches_of(TFDatasetAdapter(dense))
    arrays = [first["x"], *first["y"]]
    np.testing.assert_array_equal(arrays[0], x)
    shared = list(map(np.shares_memory, arrays, [second["x"], *second["y"]]))
    sparse = TFDatasetAdapter(tf.data.Dataset.from_tensors(tf.sparse.from_dense(x)))
    (of_sparse,) = batches._batches_of(sparse)
    return shared, [array.flags.writeable for array in arrays], type(of_sparse).__name__


def losses():
    """Losses that are no means over rows."""
    x, y = data()
    history = {}
    for reduction in ("sum", "mean_with_sample_weight"):
        model = model_of(loss=keras.losses.SparseCategoricalCrossentropy(reduction=reduction))
        weights = np.linspace(0, 2, len(x))
        history[reduction] = model.fit(
            x, y, batch_size=12, sample_weight=weights, shuffle=False, verbose=0
        ).history["loss"]
    words = np.random.default_rng(3).integers(0, 5, (26, 4))
    strategy = tf_byteps.BytePSStrategy()
    keras.utils.set_random_seed(7 + tf_byteps.rank())
    with strategy.scope():
        masked = keras.Sequential(
            [keras.layers.Embedding(5, 4, mask_zero=True), keras.layers.Dense(5, "softmax")]
        )
        masked.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    reported = masked.fit(words, words, batch_size=7, shuffle=False, verbose=0)
    history.update({f"masked {key}": value for key, value in reported.history.items()})
    return {**facts(masked), "history": history, "summed": facts(model)["weights"]}


class _Tracking(keras.Model):
    """A training step and a metric of its own, as in Keras's guides."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3, "softmax")
        self.tracker = keras.metrics.Mean(name="tracked", dtype="float64")

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, of_metrics = state
        x, y = data[:2]

        def loss(trainable, non_trainable):
            outputs, after = self.stateless_call(trainable, non_trainable, x)
            losses = keras.ops.sparse_categorical_crossentropy(y, outputs)
            return jnp.mean(losses), after  # keras.ops.mean rounds to float32

        (value, non_trainable), grads = jax.value_and_grad(loss, has_aux=True)(
            trainable, non_trainable
        )
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, grads, trainable)
        of_metrics = self.tracker.stateless_update_state(of_metrics, value)
        logs = {"tracked": self.tracker.stateless_result(of_metrics)}
        return logs, (trainable, non_trainable, optimizer, of_metrics)

    @property
    def metrics(self):
        return [self.tracker]


def own_step():
    x, y = data()
    strategy = tf_byteps.BytePSStrategy()
    keras.utils.set_random_seed(7 + tf_byteps.rank())
    with strategy.scope():
        model = _Tracking()
        model.compile("adam")
    return facts(model, model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0))


def by_hand():
    """`train_on_batch` and `test_on_batch` of global batches."""
    x, y = data(26)
    model = model_of("adam", metrics=["accuracy"])
    reported = [model.train_on_batch(x[i : i + 13], y[i : i + 13]) for i in (0, 13, 0)]
    reported.append(model.test_on_batch(x[:5], y[:5]))
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    reported.append([model.train_on_batch(x[:5], y[:5])])
    return facts(model, reported=[np.asarray(each) for each in reported])


def normalization():
    x, y = data()
    model = model_of(layers=[keras.layers.BatchNormalization()])
    history = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
    moving = [np.asarray(v) for v in model.non_trainable_variables if "moving" in v.path]
    return facts(model, history, moving=moving)


def dropout():
    """All rows are equal: the workers' own losses differ by what they drop."""
    model = model_of(layers=[keras.layers.Dropout(0.5, seed=3)])
    seen = Losses()
    history = model.fit(
        np.ones([12, 6]), np.zeros([12], int), batch_size=12, callbacks=[seen], verbose=0
    )
    seeds = [np.asarray(v) for v in model.non_trainable_variables if "seed" in v.path]
    return facts(model, history, own=seen.losses, seeds=seeds)


def stopping():
    """One worker wants to stop: after an epoch, after a batch; what follows works on."""
    x, y = data()

    def at_epoch(epoch, logs):
        if epoch == 1 and tf_byteps.rank() == last:
            model.stop_training = True

    class AtBatch(Losses):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if batch == 2 and tf_byteps.rank() == last:
                self.model.stop_training = True

    model = model_of()
    last = tf_byteps.size() - 1
    epochs = keras.callbacks.LambdaCallback(on_epoch_end=at_epoch)
    history = model.fit(x, y, batch_size=12, epochs=5, callbacks=[epochs], verbose=0)
    at_batch = AtBatch()
    model.fit(x, y, batch_size=12, epochs=5, callbacks=[at_batch], verbose=0)
    return facts(model, history, batches=len(at_batch.losses))


def files(folder):
    """What callbacks write, and what a backup restores, is worker 0's."""
    x, y = data(24)
    folder = os.path.join(folder, f"of {tf_byteps.size()}, {tf_byteps.rank()}")
    os.makedirs(folder)

    def callbacks():
        return [
            keras.callbacks.ModelCheckpoint(os.path.join(folder, "best.keras")),
            keras.callbacks.CSVLogger(os.path.join(folder, "log.csv")),
            keras.callbacks.BackupAndRestore(
                os.path.join(folder, "backup"), delete_checkpoint=False
            ),
        ]

    model = model_of("adam")
    model.fit(x, y, batch_size=12, epochs=1, callbacks=callbacks(), verbose=0)
    again = model_of("adam")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        history = again.fit(x, y, batch_size=12, epochs=2, callbacks=callbacks(), verbose=2)
    written = sorted(os.listdir(folder))
    return facts(again, history, epochs=history.epoch, written=written, printed=printed.getvalue())


def compression():
    x, y = data()
    strategy = tf_byteps.BytePSStrategy(
        compression=lambda v: "int8" if "kernel" in v.path else "fp16"
    )
    model = model_of("adam", strategy=strategy)
    return facts(model, model.fit(x, y, batch_size=12, shuffle=False, verbose=0))


def generators():
    """Those of which nobody says how long they are."""
    x, y = data()
    model = model_of("adam", metrics=["accuracy"])
    batches = Batches(x, y)
    all_of = lambda: (batches[index] for index in range(len(batches)))  # noqa: E731
    history = model.fit(all_of(), verbose=0)
    return facts(
        model,
        history,
        evaluation=model.evaluate(all_of(), verbose=0),
        prediction=model.predict(all_of(), verbose=0),
    )


def without_batches():
    """The first epochs of a training have no batch: before the model is built, and later."""
    import tensorflow as tf

    x, y = data()
    model = model_of("adam", metrics=["accuracy"])
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(12)
    rest = rows.skip(len(rows))
    of_unknown_length = rest.filter(lambda *_: True)
    seen, found = Losses(), {}
    for name, given in {
        "not built": {"x": of_unknown_length},
        "all": {"x": rows},
        "unknown": {"x": of_unknown_length, "validation_data": (x, y)},
        "known": {"x": rest},
        "steps": {"x": of_unknown_length, "steps_per_epoch": 3},
    }.items():
        history = model.fit(**given, epochs=2, verbose=0, callbacks=[seen])
        found[name] = [history.epoch, sorted(history.history)]
    return facts(model, found=found, batches=len(seen.losses))


def freed():
    """Weights that are there when their model is not: after plain steps, and after others."""
    x, y = data()

    def make(**options):
        model = model_of(keras.optimizers.Adam(), metrics=["accuracy"], **options)
        model.fit(x, y, batch_size=12, validation_data=(x, y), verbose=0)
        model.predict(x, verbose=0)
        return model

    across = tf_byteps.BytePSStrategy(cross_step=True)
    return [
        freed_weights.weights_after(make),
        freed_weights.weights_after(lambda: make(run_eagerly=True)),
        freed_weights.weights_after(lambda: make(strategy=across)),
    ]


def random_states():
    """Without a seed, workers shuffle as worker 0 does."""
    x, y = data()
    model = model_of()
    random.seed(tf_byteps.rank())
    np.random.seed(tf_byteps.rank())  # noqa: NPY002
    return facts(model, model.fit(x, y, batch_size=12, verbose=0))
