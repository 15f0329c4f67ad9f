"""What test_keras_fit.py runs on each worker: `Model.fit` of Keras on JAX.

With no cluster variable the same functions run in one process.
"""

import contextlib
import io
import os
import random

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from step_programs import exchanged, own_optimizers, own_steps  # noqa: E402, F401

import tf_byteps  # noqa: E402
from tf_byteps.errors import BytePSError, ExchangeError  # noqa: E402

keras.config.set_floatx("float64")
_RANK = 0


def _strategy(**options):
    global _RANK
    strategy = tf_byteps.BytePSStrategy(**options)
    _RANK = tf_byteps.rank()
    return strategy


def _data(rows=50):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 6))
    return x, x[:, :3].argmax(axis=1)


def _model(optimizer="sgd", loss="sparse_categorical_crossentropy", layers=(), **options):
    """Made alike in one process and on worker 0; other workers begin with other weights."""
    strategy = options.pop("strategy", None) or _strategy()
    keras.utils.set_random_seed(7 + _RANK)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(8, "relu", kernel_regularizer="l2"),
                *layers,
                keras.layers.Dense(3, "softmax"),
            ]
        )
        model.compile(optimizer, loss, **options)
    return model


def _facts(model, history=None, **others):
    return {
        "history": history.history if history is not None else {},
        "weights": [np.asarray(weight) for weight in model.get_weights()],
        **others,
    }


def arrays():
    """An unseeded shuffle, uneven pieces, an empty one with three workers, all that `fit` calls."""
    x, y = _data()
    clipped = keras.optimizers.Adam(0.05, global_clipnorm=0.5)
    model = _model(clipped, metrics=["accuracy"])
    history = model.fit(x, y, batch_size=12, epochs=2, validation_data=(x[:7], y[:7]), verbose=0)
    return _facts(
        model,
        history,
        evaluation=model.evaluate(x, y, batch_size=12, verbose=0),
        prediction=model.predict(x, batch_size=12, verbose=0),
        one_batch=model.predict_on_batch(x[:4]),
        optimizer=[np.asarray(variable) for variable in model.optimizer.variables],
    )


def accumulation():
    """Accumulated gradients, clipped, with weights of samples, several steps in one execution."""
    x, y = _data()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.1, gradient_accumulation_steps=2)
    model = _model(optimizer, steps_per_execution=2, weighted_metrics=["accuracy"])
    weights = np.linspace(0, 2, len(x))
    history = model.fit(x, y, batch_size=12, epochs=2, sample_weight=weights, verbose=0)
    history.history["by class"] = model.fit(
        x, y, batch_size=20, class_weight={0: 1.0, 1: 3.0, 2: 0.5}, verbose=0
    ).history["loss"]
    return _facts(model, history, prediction=model.predict(x, batch_size=12, verbose=0))


def loss_scale():
    """A step in which one worker's rows overflow is skipped by all."""
    x, y = _data()
    x[3] = 1e300
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), initial_scale=1e20
    )
    model = _model(optimizer, loss="mse")
    history = model.fit(x, np.eye(3)[y] * 1e10, batch_size=12, epochs=2, shuffle=False, verbose=0)
    return _facts(model, history, scale=float(optimizer.dynamic_scale))


class _Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self._x, self._y = x, y

    def __len__(self):
        return -(-len(self._x) // 12)

    def __getitem__(self, index):
        rows = slice(index * 12, index * 12 + 12)
        return self._x[rows], self._y[rows]


def inputs():
    """A `PyDataset`, which Keras shuffles, a generator, and a `tf.data.Dataset`."""
    import tensorflow as tf

    x, y = _data()
    model = _model()
    batches = _Batches(x, y)
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
    facts = _facts(model)
    return {**facts, "history": history, "prediction": model.predict(dataset, verbose=0)}


def losses():
    """Losses that are no means over rows."""
    x, y = _data()
    history = {}
    for reduction in ("sum", "mean_with_sample_weight"):
        model = _model(loss=keras.losses.SparseCategoricalCrossentropy(reduction=reduction))
        weights = np.linspace(0, 2, len(x))
        history[reduction] = model.fit(
            x, y, batch_size=12, sample_weight=weights, shuffle=False, verbose=0
        ).history["loss"]
    words = np.random.default_rng(3).integers(0, 5, (26, 4))
    keras.utils.set_random_seed(7 + _RANK)
    with _strategy().scope():
        masked = keras.Sequential(
            [keras.layers.Embedding(5, 4, mask_zero=True), keras.layers.Dense(5, "softmax")]
        )
        masked.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    told = masked.fit(words, words, batch_size=7, shuffle=False, verbose=0)
    history.update({f"masked {key}": value for key, value in told.history.items()})
    return {**_facts(masked), "history": history, "summed": _facts(model)["weights"]}


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
    x, y = _data()
    keras.utils.set_random_seed(7 + _RANK)
    with _strategy().scope():
        model = _Tracking()
        model.compile("adam")
    return _facts(model, model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0))


def by_hand():
    """`train_on_batch` and `test_on_batch` of global batches."""
    x, y = _data(26)
    model = _model("adam", metrics=["accuracy"])
    told = [model.train_on_batch(x[i : i + 13], y[i : i + 13]) for i in (0, 13, 0)]
    told.append(model.test_on_batch(x[:5], y[:5]))
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    told.append([model.train_on_batch(x[:5], y[:5])])
    return _facts(model, told=[np.asarray(each) for each in told])


def normalization():
    x, y = _data()
    model = _model(layers=[keras.layers.BatchNormalization()])
    history = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
    moving = [np.asarray(v) for v in model.non_trainable_variables if "moving" in v.path]
    return _facts(model, history, moving=moving)


class _Losses(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def dropout():
    """All rows are equal: the workers' own losses differ by what they drop."""
    model = _model(layers=[keras.layers.Dropout(0.5, seed=3)])
    seen = _Losses()
    history = model.fit(
        np.ones([12, 6]), np.zeros([12], int), batch_size=12, callbacks=[seen], verbose=0
    )
    seeds = [np.asarray(v) for v in model.non_trainable_variables if "seed" in v.path]
    return _facts(model, history, own=seen.losses, seeds=seeds)


def stopping():
    """One worker wants to stop: after an epoch, after a batch; what follows works on."""
    x, y = _data()
    last = tf_byteps.size() - 1 if tf_byteps.is_initialized() else 0

    def at_epoch(epoch, logs):
        if epoch == 1 and _RANK == last:
            model.stop_training = True

    class AtBatch(_Losses):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if batch == 2 and _RANK == last:
                self.model.stop_training = True

    model = _model()
    last = tf_byteps.size() - 1
    epochs = keras.callbacks.LambdaCallback(on_epoch_end=at_epoch)
    history = model.fit(x, y, batch_size=12, epochs=5, callbacks=[epochs], verbose=0)
    at_batch = AtBatch()
    model.fit(x, y, batch_size=12, epochs=5, callbacks=[at_batch], verbose=0)
    return _facts(model, history, batches=len(at_batch.losses))


def files(folder):
    """What callbacks write, and what a backup restores, is worker 0's."""
    x, y = _data(24)
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

    model = _model("adam")
    model.fit(x, y, batch_size=12, epochs=1, callbacks=callbacks(), verbose=0)
    again = _model("adam")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        history = again.fit(x, y, batch_size=12, epochs=2, callbacks=callbacks(), verbose=2)
    written = sorted(os.listdir(folder))
    return _facts(again, history, epochs=history.epoch, written=written, printed=printed.getvalue())


def compression():
    x, y = _data()
    strategy = _strategy(compression=lambda v: "int8" if "kernel" in v.path else "fp16")
    model = _model("adam", strategy=strategy)
    return _facts(model, model.fit(x, y, batch_size=12, shuffle=False, verbose=0))


def _error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def refusals():
    x, y = _data(24)
    model = _model()
    errors = {
        name: _error_of(tf_byteps.BytePSStrategy, **{name: value})
        for name, value in {
            "cross_step": True,
            "local_steps": 4,
            "backup_workers": 1,
            "x": 1,
        }.items()
    }
    errors["compression"] = _error_of(
        _model(strategy=_strategy(compression="powersgd")).fit, x, y, verbose=0
    )
    devices = keras.distribution.list_devices()
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    try:
        errors["distribution"] = _error_of(model.fit, x, y, verbose=0)
    finally:
        keras.distribution.set_distribution(None)
    errors["data"] = _error_of(model.fit, x + tf_byteps.rank(), y, verbose=0)
    errors["rows"] = _error_of(model.train_on_batch, {"a": x, "b": x[:4]}, y)
    history = model.fit(x, y, batch_size=12, verbose=0)  # works after all of them
    return {"errors": errors, "loss": history.history["loss"]}


def lengths():
    """Inputs that end at other places; those that end together, which Keras cannot know."""
    x, y = _data(24)
    model = _model()

    def generate(count):
        for batch in range(count):
            rows = slice(12 * (batch % 2), 12 * (batch % 2) + 12)
            yield x[rows], y[rows]

    rank = tf_byteps.rank()
    errors = {
        "fit": _error_of(model.fit, generate(3 + rank), verbose=0),
        "steps": _error_of(model.fit, generate(3 - rank), steps_per_epoch=3, verbose=0),
        "evaluate": _error_of(model.evaluate, generate(1 + rank), verbose=0),
        "predict": _error_of(model.predict, generate(4 - rank), verbose=0),
        "known": _error_of(model.fit, _Batches(x[rank * 12 :], y[rank * 12 :]), verbose=0),
        "arguments": _error_of(model.fit, x, y, batch_size=12, steps_per_epoch=1 + rank, verbose=0),
    }
    return errors


def generators():
    """Those of which nobody says how long they are."""
    x, y = _data()
    model = _model("adam", metrics=["accuracy"])
    batches = _Batches(x, y)
    all_of = lambda: (batches[index] for index in range(len(batches)))  # noqa: E731
    history = model.fit(all_of(), verbose=0)
    return _facts(
        model,
        history,
        evaluation=model.evaluate(all_of(), verbose=0),
        prediction=model.predict(all_of(), verbose=0),
    )


def left():
    """A callback fails on one worker: all leave `fit`, and meet again in the next one."""
    x, y = _data(24)
    model = _model()

    def fail(batch, logs):
        if _RANK == tf_byteps.size() - 1:
            raise OSError("the disk is full")

    failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    error = _error_of(model.fit, x, y, batch_size=12, epochs=2, callbacks=[failing], verbose=0)
    history = model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
    return _facts(model, history, error=error)


def random_states():
    """Without a seed, workers shuffle as worker 0 does."""
    x, y = _data()
    model = _model()
    random.seed(_RANK)
    np.random.seed(_RANK)  # noqa: NPY002
    return _facts(model, model.fit(x, y, batch_size=12, verbose=0))


class _Leaving(_Batches):
    """Worker 1 ends in the second epoch."""

    taken = 0

    def __getitem__(self, index):
        self.taken += 1
        if tf_byteps.rank() == 1 and self.taken == 9:
            os._exit(9)
        return super().__getitem__(index)


def lost():
    """Another worker ends in the second epoch."""
    x, y = _data()
    model = _model("adam")
    kept = []

    def keep(epoch, logs):
        kept[:] = model.get_weights()

    keeping = keras.callbacks.LambdaCallback(on_epoch_begin=keep)
    try:
        model.fit(_Leaving(x, y), epochs=3, callbacks=[keeping], verbose=0)
    except ExchangeError as error:
        caught = error
    else:
        return "no error"
    same = all(np.array_equal(a, b) for a, b in zip(kept, model.get_weights()))
    return {
        "error": str(caught),
        "code": caught.code,
        "is ours": isinstance(caught, BytePSError),
        "lost": caught.byteps_lost.rank,
        "cause": caught.__suppress_context__,
        "weights are kept": same,
    }
