"""What the workers of test_state.py do."""

import contextlib
import logging

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils.python_utils import pythonify_logs

import tf_byteps as bps


def _rows(count, seed=0):
    random = np.random.RandomState(seed)
    return random.normal(size=(count, 4)).astype("float32"), np.ones([count, 1], "float32")


def _trained(*layers, rows=24, epochs=2, callbacks=(), **compile_arguments):
    """A model of these layers and a Dense, after `fit` with batches of 6 rows."""
    keras.utils.set_random_seed(1)
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential([*(layer() for layer in layers), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", **compile_arguments)
    options = {"batch_size": 6, "shuffle": False, "verbose": 0}
    model.fit(*_rows(rows), epochs=epochs, callbacks=list(callbacks), **options)
    return model


def _warnings(function):
    """What the "tf_byteps" logger says meanwhile."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("tf_byteps")
    logger.addHandler(handler)
    try:
        function()
    finally:
        logger.removeHandler(handler)
    return lines


# Moving statistics.


def _statistics(model):
    return [layer.moving_mean.numpy().tolist() for layer in model.layers if hasattr(layer, "gamma")]


def evaluated_within_an_epoch():
    """Moving statistics before each evaluation after two of four batches, and after the epochs."""
    seen = []

    class Evaluate(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                held_out = _rows(12, seed=1)
                self.model.evaluate(*held_out, batch_size=6, verbose=0)
                seen.append(_statistics(self.model))

    model = _trained(keras.layers.BatchNormalization, callbacks=[Evaluate()])
    return [*seen, _statistics(model)]


def trained_on_batches():
    """Moving statistics after each `train_on_batch`, with rows of each worker's own."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.BatchNormalization(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    seen = []
    for step in range(3):
        model.train_on_batch(*_rows(5, seed=10 * step + bps.rank()))
        seen.append(_statistics(model))
    return seen


class Buffers(keras.layers.Layer):
    """Floating-point variables that are not trained: some change, some do not."""

    def build(self, input_shape):
        def buffer(value, name):
            value = np.asarray(value, "float32")
            initializer = lambda shape, dtype: tf.constant(value, dtype)  # noqa: E731
            return self.add_weight(
                shape=value.shape, initializer=initializer, trainable=False, name=name
            )

        self.mask = buffer([np.finfo("float32").min, 0.0], "mask")
        self.table = buffer(np.random.RandomState(0).uniform(size=1000), "table")
        self.largest = buffer(np.finfo("float32").max * np.ones([2]), "largest")

    def call(self, x):
        noise = tf.reduce_mean(x)  # each worker's own rows
        self.largest.assign([np.finfo("float32").max, tf.where(noise > 0, 3e38, 2.9e38)])
        return x


def buffers():
    """The bits of constants, and of a statistic as large as can be."""
    layer = _trained(Buffers, epochs=4).layers[0]
    table = np.random.RandomState(0).uniform(size=1000).astype("float32")
    return {
        "mask": layer.mask.numpy().tolist(),
        "changed": int(np.sum(layer.table.numpy() != table)),
        "largest": layer.largest.numpy().tolist(),
    }


class Counters(keras.layers.Layer):
    def build(self, input_shape):
        self.steps = self.add_weight(
            shape=[], initializer="zeros", dtype="int32", trainable=False, name="steps"
        )
        self.begun = self.add_weight(
            shape=[], initializer="zeros", dtype="bool", trainable=False, name="begun"
        )

    def call(self, x):
        self.steps.assign_add(1)
        self.begun.assign(True)
        return x


def counters():
    """Two epochs of five steps; in the last of each only worker 0 has a row."""
    layer = _trained(Counters, rows=25).layers[0]
    return int(layer.steps.numpy()), bool(layer.begun.numpy())


class Queue(keras.layers.Layer):
    """The first number of the last rows, as MoCo keeps keys."""

    def __init__(self, kind=None):
        super().__init__()
        self.kind = kind

    def build(self, input_shape):
        self.queue = self.add_weight(shape=[4], initializer="zeros", trainable=False, name="queue")
        if self.kind:
            self.queue.byteps_kind = self.kind

    def call(self, x):
        self.queue.assign(tf.concat([x[:, 0], self.queue], 0)[:4])
        return x


def queue():
    """Where the numbers of a queue come from, whether it is marked as the worker's own."""
    rows = set(_rows(25)[0][:, 0].tolist())
    results = {}
    for kind in ("own", None):
        warnings = _warnings(
            lambda kind=kind: results.__setitem__(
                kind, _trained(lambda: Queue(kind), rows=25).layers[0].queue.numpy().tolist()
            )
        )
        results[f"warnings of {kind}"] = warnings
    return {**results, "own is of rows": all(number in rows for number in results["own"])}


def bad_kind():
    _trained(lambda: Queue("mine"))


class Seen(keras.callbacks.Callback):
    """The values of variables where epochs begin and batches end."""

    def __init__(self, *variables):
        super().__init__()
        self.variables, self.at_begin, self.after_batches = variables, [], []

    def _values(self):
        return [variable.numpy().tolist() for variable in self.variables]

    def on_epoch_begin(self, epoch, logs=None):
        self.at_begin += self._values()

    def on_train_batch_end(self, batch, logs=None):
        self.after_batches.append(self._values())


def another_fit():
    """Where two trainings begin and end: a queue of the worker's own, and a slot of a second
    optimizer, which worker 0 has changed in between."""
    strategy = bps.BytePSStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        queue = Queue("own")
        model = keras.Sequential([keras.Input([4]), queue, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
        second = keras.optimizers.SGD(0.1, momentum=0.9)
        second.build(model.trainable_variables)
        model.rest = [second]
    queue.queue.assign(tf.fill([4], 7.0 + bps.rank()))  # before the first training
    slot = second.momentums[1]
    options = {"batch_size": 6, "shuffle": False, "verbose": 0}
    begins, ends = [], []
    for _ in range(2):
        seen = Seen(queue.queue, slot)
        model.fit(*_rows(24), callbacks=[seen], **options)
        begins.append(seen.at_begin)
        ends.append(queue.queue.numpy().tolist())
        if bps.rank() == 0:
            slot.assign([5.0])
    return {"begins": begins, "ends": ends}


def saved_within_an_epoch(folder):
    """A moving mean after each of the first two batches, and what was saved after the second."""
    with bps.BytePSStrategy().scope():
        layer = keras.layers.BatchNormalization()
        model = keras.Sequential([keras.Input([4]), layer, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    path = f"{folder}/{{batch}}.weights.h5"
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=2)
    seen = Seen(layer.moving_mean)
    options = {"batch_size": 6, "shuffle": False, "verbose": 0}
    model.fit(*_rows(18), callbacks=[checkpoint, seen], **options)
    bps.allgather_object(None, name="saved")
    model.load_weights(path.format(batch=2))
    return {"after": seen.after_batches[:2], "saved": layer.moving_mean.numpy().tolist()}


def saved_by_the_program(folder):
    """What is said of the program's own saves: after each of three batches, and of an epoch."""
    path = f"{folder}/{bps.rank()}.weights.h5"
    save = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: model.save_weights(path),
        on_epoch_end=lambda epoch, logs: model.save_weights(path),
    )
    shared = keras.callbacks.ModelCheckpoint(
        f"{folder}/all.weights.h5", save_weights_only=True, save_freq=1
    )
    warnings = {}
    for name, callback in (("checkpoint", shared), ("at the end", None), ("own", save)):
        with bps.BytePSStrategy().scope():
            model = keras.Sequential([keras.Input([4]), keras.layers.BatchNormalization()])
            model.add(keras.layers.Dense(1))
            optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
            model.compile(optimizer, "mse", run_eagerly=True)

        def train(model=model, callback=callback):
            callbacks = [] if callback is None else [callback]
            options = {"batch_size": 6, "shuffle": False, "verbose": 0}
            model.fit(*_rows(18), callbacks=callbacks, **options)
            model.save_weights(path)

        warnings[name] = [line for line in _warnings(train) if "is saved within" in line]
    return warnings


def optimizer_built_outside():
    """Weights and slots of an optimizer that was made in the scope and built outside of it."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse", run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    model.fit(*_rows(12), batch_size=6, shuffle=False, verbose=0)
    return [variable.numpy().tolist() for variable in model.optimizer.variables]


def stateful_rnn(rows_of_a_piece=2, predicts=False):
    """The state after two epochs; pieces of two rows, and a model for as many, or others. Or the
    predictions."""
    keras.utils.set_random_seed(1)
    strategy = bps.BytePSStrategy()
    rows = 2 * bps.size()
    with strategy.scope():
        inputs = keras.Input(batch_shape=[rows_of_a_piece, 3, 4])
        outputs = keras.layers.LSTM(2, stateful=True)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
        model.compile("sgd", "mse")
    x = np.random.RandomState(0).normal(size=(4 * rows, 3, 4)).astype("float32")
    if predicts:
        return model.predict(x, batch_size=rows, verbose=0).tolist()
    model.fit(x, np.ones([4 * rows, 1]), batch_size=rows, shuffle=False, epochs=2, verbose=0)
    return [state.numpy().tolist() for state in model.layers[1].states]


class Teacher(keras.layers.Layer):
    """A frozen Dense whose kernel follows a trained one, as a momentum encoder's does."""

    def __init__(self):
        super().__init__()
        self.student = keras.layers.Dense(4)
        self.teacher = keras.layers.Dense(4, trainable=False)

    def call(self, x):
        result = self.student(x) + self.teacher(x)
        self.teacher.kernel.assign(0.9 * self.teacher.kernel + 0.1 * self.student.kernel)
        return result


def momentum_encoder():
    """The teacher's kernel after steps in which only worker 0 has a row."""
    return _trained(Teacher, rows=25).layers[0].teacher.kernel.numpy().tolist()


# Metrics.


class Python(keras.metrics.Metric):
    """The mean of the predictions, counted in Python as sklearn-style metrics do."""

    def __init__(self):
        super().__init__(name="python")
        self.values = []

    def update_state(self, y_true, y_pred, sample_weight=None):
        def note(value):
            self.values += value.numpy().ravel().tolist()

        tf.py_function(note, [y_true], [])

    def result(self):
        return float(np.mean(self.values))

    def reset_state(self):
        self.values = []


class Largest(keras.metrics.Metric):
    """The largest target, and whether there was any above 20."""

    def __init__(self):
        super().__init__(name="largest")
        self.largest = self.add_variable([], "zeros", name="largest")
        self.largest.byteps_op = "max"
        self.above = self.add_variable([], "zeros", dtype="bool", name="above")
        self.rows = self.add_variable([], "zeros", dtype="uint16", name="rows")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign(tf.maximum(self.largest, tf.reduce_max(y_true)))
        self.above.assign(tf.logical_or(self.above, tf.reduce_any(y_true > 20)))
        self.rows.assign(self.rows + tf.cast(tf.shape(y_true)[0], tf.uint16))

    def result(self):
        return {
            "largest": self.largest * 1.0,
            "above": tf.cast(self.above, tf.float32),
            "rows": tf.cast(self.rows, tf.float32),
        }


class NotReset(keras.metrics.MeanSquaredError):
    def __init__(self):
        super().__init__(name="not_reset")

    def reset_state(self):
        pass


def _fit_with(metric, epochs=3, plain=False):
    keras.utils.set_random_seed(1)
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=[metric()])
    y = np.arange(25, dtype="float32")[:, np.newaxis]
    options = {"batch_size": 6, "shuffle": False, "verbose": 0}
    held_out = _rows(7, seed=3)
    history = model.fit(_rows(25)[0], y, epochs=epochs, validation_data=held_out, **options)
    shown = pythonify_logs(model.get_metrics_result())
    evaluated = model.evaluate(*held_out, batch_size=6, verbose=0, return_dict=True)
    again = model.evaluate(*held_out, batch_size=6, verbose=0, return_dict=True)
    logs = {key: [float(value) for value in values] for key, values in history.history.items()}
    return {"logs": logs, "shown": shown, "evaluated": [evaluated, again]}


def metrics(plain=False):
    """Kind of metric -> logs of three epochs, of what it shows after them, and of `evaluate`."""
    return {kind.__name__: _fit_with(kind, plain=plain) for kind in (Largest, NotReset)}


def python_metric():
    results = {}
    results["warnings"] = _warnings(lambda: results.update(_fit_with(Python, epochs=2)))
    return results


# Predictions.


class Outputs(keras.Model):
    """Outputs of the dtypes that are not summed."""

    def call(self, x):
        words = tf.strings.as_string(tf.cast(x[:, 0] * 100, tf.int32))
        return {
            "bool": x > 0,
            "string": tf.where(x[:, 1] > 0, words, ""),
            "complex": tf.complex(x, -x),
            **{
                name: tf.cast(abs(x) * 100, name)
                for name in ("int16", "uint16", "uint32", "uint64")
            },
        }


def outputs(plain=False):
    """What `predict` returns for 25 rows, of which only worker 0 has some in the last batch."""
    with contextlib.nullcontext() if plain else bps.BytePSStrategy().scope():
        model = Outputs()
    found = model.predict(_rows(25)[0], batch_size=6, verbose=0)
    return {name: (value.dtype.name, value.tolist()) for name, value in found.items()}


class Scalar(keras.Model):
    def call(self, x):
        return tf.reduce_mean(x)


def scalar_output():
    with bps.BytePSStrategy().scope():
        model = Scalar()
    return model.predict(_rows(24)[0], batch_size=6, verbose=0)
