"""A training that one worker leaves by an exception, in a program that goes on."""

import contextlib
import logging
import os
import time
import traceback

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

_ROWS = np.random.default_rng(0).normal(size=[40, 6]).astype("float32")


class Failing(keras.callbacks.Callback):
    """Raises on worker 0, as a full disk would, at an event of the second epoch."""

    def __init__(self, event):
        super().__init__()
        self._event = event
        self._epoch = -1

    def _happens(self, event):
        if event == self._event and self._epoch == 1 and bps.rank() == 0:
            raise OSError("no space left")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self._happens("batch")

    def on_epoch_end(self, epoch, logs=None):
        self._happens("epoch")


def left_by_an_exception(distributed_optimizer=False):
    """The program catches what ends its training, and trains again."""
    if distributed_optimizer:
        bps.init()
        scope, optimizer = (
            contextlib.nullcontext(),
            bps.DistributedOptimizer(keras.optimizers.SGD()),
        )
    else:
        scope, optimizer = bps.BytePSStrategy().scope(), "sgd"
    keras.utils.set_random_seed(7)
    with scope:
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
    said = []
    for event in ("batch", "epoch", None):
        callbacks = [Failing(event)]
        try:
            model.fit(
                *(_ROWS, _ROWS[:, :1]),
                batch_size=10,
                epochs=2,
                shuffle=False,
                validation_data=(_ROWS, _ROWS[:, :1]),
                callbacks=callbacks,
                verbose=0,
            )
        except (OSError, tf.errors.OpError) as error:
            said.append(f"{type(error).__name__}: {error}")
    total = bps.push_pull(tf.constant(1.0), op=bps.Sum)
    return {
        "weights": [weight.tolist() for weight in model.get_weights()],
        "said": said,
        "total": float(total),
    }


def looped_after_an_exception(distributed_optimizer=False):
    """Worker 0 goes on at once with a traced loop of its own, while the others wait in `fit`.

    Worker 2 is not even there yet. Returns what each call of the loop has got of all workers.
    """
    if distributed_optimizer:
        bps.init()
        scope, optimizer = (
            contextlib.nullcontext(),
            bps.DistributedOptimizer(keras.optimizers.SGD(1.0)),
        )
    else:
        strategy = bps.BytePSStrategy()
        scope, optimizer = strategy.scope(), keras.optimizers.SGD(1.0)
    with scope:
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1, use_bias=False)])
        model.compile(optimizer, "mse")

    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs))
        kernels = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, kernels), kernels))

    traced = tf.function(step if distributed_optimizer else lambda each: strategy.run(step, [each]))

    def loop(call):
        """The gradient is what the workers have given on average: what says which call it was."""
        before = model.trainable_variables[0].numpy()
        inputs = np.full([1, 6], 100 * call + bps.rank(), "float32")
        try:
            traced(tf.constant(inputs))
        except tf.errors.OpError as error:
            return f"{type(error).__name__}: {error.message}"
        return np.round(before - model.trainable_variables[0].numpy(), 2)[:, 0].tolist()

    loop(0)
    model.trainable_variables[0].assign(tf.zeros([6, 1]))
    said = None
    try:
        model.fit(
            *(_ROWS[:24], _ROWS[:24, :1]),
            batch_size=8,
            epochs=2,
            shuffle=False,
            callbacks=[Failing("batch"), _HeldBack()],
            verbose=0,
        )
    except (OSError, tf.errors.OpError) as error:
        said = f"{type(error).__name__}: {error}"
    calls = [loop(call) for call in range(1, 5)]
    total = bps.push_pull(tf.constant(1.0), op=bps.Sum)
    model.fit(_ROWS, _ROWS[:, :1], verbose=0)
    return {"said": said, "calls": calls, "total": float(total)}


class _HeldBack(keras.callbacks.Callback):
    """Worker 2 comes late to the step in which the others miss worker 0."""

    def on_train_batch_begin(self, batch, logs=None):
        if (self._epoch, batch, bps.rank()) == (1, 1, 2):
            time.sleep(1)

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch


def evaluated_after_an_exception():
    """Its training ends with the last step of an epoch, where the others reduce metrics. The
    program goes on to evaluate and predict, twice."""
    keras.utils.set_random_seed(7)
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    said, results = [], []
    data = (_ROWS, _ROWS[:, :1])
    try:
        model.fit(
            *data,
            batch_size=40,
            epochs=9,
            validation_data=data,
            callbacks=[Failing("batch")],
            verbose=0,
        )
    except (OSError, tf.errors.OpError) as error:
        said.append(f"{type(error).__name__}: {error}")
    for _ in range(2):
        results.append(model.evaluate(_ROWS, np.ones([40, 1]), verbose=0, return_dict=True))
        results.append(model.predict(_ROWS, verbose=0).tolist())
    error = np.abs(model.predict(_ROWS, verbose=0) - 1)
    expected = {"loss": float(np.mean(error**2)), "mae": float(np.mean(error))}
    model.fit(*data, verbose=0)
    return said, results, expected, [weight.tolist() for weight in model.get_weights()]


class _FailsOutsideFit(keras.callbacks.Callback):
    """Raises on worker 0, in the second batch of an evaluation or a prediction."""

    def _fail(self, batch, logs=None):
        if batch == 1 and bps.rank() == 0:
            raise OSError("no space left")

    on_test_batch_begin = on_predict_batch_begin = _fail


def left_outside_fit():
    """An evaluation and a prediction that worker 0 leaves, among some that all end."""
    keras.utils.set_random_seed(7)
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    said, results = [], []

    def call_both(callbacks=()):
        options = {"batch_size": 10, "callbacks": list(callbacks), "verbose": 0}
        for call in (
            lambda: model.evaluate(_ROWS, _ROWS[:, :1], **options),
            lambda: model.predict(_ROWS, **options).tolist(),
        ):
            try:
                results.append(call())
            except (OSError, tf.errors.OpError) as error:
                said.append(f"{type(error).__name__}: {error}")

    call_both()
    call_both([_FailsOutsideFit()])
    call_both()
    model.fit(_ROWS, _ROWS[:, :1], verbose=0)
    return said, results, [weight.tolist() for weight in model.get_weights()]


def lost_before_an_evaluation():
    """Worker 1 ends, and worker 0 waits for it where an evaluation begins."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.evaluate(_ROWS, _ROWS[:, :1], verbose=0)
    if bps.rank() == 1:
        os._exit(9)
    try:
        model.evaluate(_ROWS, _ROWS[:, :1], verbose=0)
    except Exception as error:
        return type(error).__name__, str(error), error.byteps_lost.rank
    return None


def calls_that_differ():
    """One worker evaluates, the others predict."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    try:
        if bps.rank() == 1:
            model.evaluate(_ROWS, _ROWS[:, :1], verbose=0)
        else:
            model.predict(_ROWS, verbose=0)
    except ValueError as error:
        return str(error)
    return None


def left_by_an_error_of_tensorflow():
    """On worker 0 a label is out of range, then an image cannot be read."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, jit_compile=False)
    labels = np.zeros([40], "int64")
    labels[1] = 7  # among the rows of worker 0
    good = tf.data.Dataset.from_tensor_slices((_ROWS, np.zeros([40], "int64")))

    def read(row, label):
        if bps.rank() == 0:
            raise ValueError("broken image img_500.jpg")
        return row, label

    def broken(row, label):
        row, label = tf.numpy_function(read, [row, label], [tf.float32, tf.int64])
        return tf.ensure_shape(row, [6]), tf.ensure_shape(label, [])

    wrong = tf.data.Dataset.from_tensor_slices((_ROWS, labels)).batch(10)
    said = []
    for dataset in (wrong, good.map(broken).batch(10)):
        try:
            model.fit(dataset, shuffle=False, verbose=0)
        except (ValueError, tf.errors.OpError) as error:
            said.append(str(error))
    bps.push_pull(tf.constant(1.0), op=bps.Sum)  # who leaves the job gives up nothing
    return said


class RaisesOnWorker1(keras.Model):
    """While its step, or its layer, is traced: in code of the program's own."""

    def __init__(self, where):
        super().__init__()
        self.dense, self.where = keras.layers.Dense(1), where

    def _happens(self, where):
        if where == self.where and bps.rank() == 1:
            raise ValueError("no such feature: age")

    def call(self, x):
        self._happens("call")
        return self.dense(x)

    def train_step(self, data):
        self._happens("train_step")
        return super().train_step(data)


def left_while_tracing():
    """What the workers get of it; then all train with another model."""
    said = {}
    for where in ("train_step", "call", None):
        keras.utils.set_random_seed(7)
        with bps.BytePSStrategy().scope():
            model = RaisesOnWorker1(where)
            model.compile("sgd", "mse")
        try:
            model.fit(_ROWS, _ROWS[:, :1], batch_size=10, shuffle=False, verbose=0)
        except (ValueError, tf.errors.OpError) as error:
            said[where] = f"{type(error).__name__}: {error}"
    return {"said": said, "weights": [weight.tolist() for weight in model.get_weights()]}


class _Mistaken(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        {}["accurcy"]


def frames_of_an_error():
    """Whose frames a traceback shows: the files, without folders, of a callback's mistake."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    shown = []
    for filters in (True, False):
        if not filters:
            keras.config.disable_traceback_filtering()
        try:
            model.fit(_ROWS, _ROWS[:, :1], verbose=0, callbacks=[_Mistaken()])
        except KeyError as error:
            frames = traceback.extract_tb(error.__traceback__)
            shown.append([frame.filename for frame in frames])
        finally:
            keras.config.enable_traceback_filtering()
    return shown


def what_differs():
    """What is said of epochs that differ, and of learning rates."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1 * (1 + bps.rank())), "mse")
    heard = _Heard()
    logging.getLogger("tf_byteps").addHandler(heard)
    model.fit(_ROWS, _ROWS[:, :1], epochs=1, verbose=0)
    logging.getLogger("tf_byteps").removeHandler(heard)
    try:
        model.fit(_ROWS, _ROWS[:, :1], epochs=2 + bps.rank(), verbose=0)
    except ValueError as error:
        return heard.said, float(model.optimizer.learning_rate), str(error)
    return None


class _Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())
