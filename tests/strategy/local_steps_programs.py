"""What the workers of test_local_steps.py do."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tf_byteps import _engine

keras.config.set_floatx("float64")

_ROWS, _BATCH = 57, 12  # the last batch is cut unevenly, for 2 and 3 workers
_FIT = {"batch_size": _BATCH, "shuffle": False, "verbose": 0}


def _rows():
    random = np.random.default_rng(1)
    x = random.normal(size=(_ROWS, 6))
    return x, np.sin(x.sum(axis=1, keepdims=True))


def _model(optimizer, normalizes=False, **options):
    keras.utils.set_random_seed(3)
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh")]
    if normalizes:
        layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.1)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def _weights(model):
    return np.concatenate([np.ravel(each) for each in model.get_weights()])


def plain(epochs=2):
    """One process, no strategy."""
    model = _model(keras.optimizers.SGD(0.1))
    history = model.fit(*_rows(), epochs=epochs, **_FIT, validation_data=_rows())
    return _weights(model), history.history


def each_step(epochs=2, **settings):
    """Rounds after each step, of plain gradient descent: what one process does."""
    strategy = tf_byteps.BytePSStrategy(local_steps=1, **settings)
    rows = _rows()
    with strategy.scope():
        model = _model(keras.optimizers.SGD(0.1))
    history = model.fit(*rows, epochs=epochs, **_FIT, validation_data=_rows())
    assert all(np.array_equal(a, b) for a, b in zip(rows, _rows(), strict=True))
    return _weights(model), history.history


class _Evaluates(keras.callbacks.Callback):
    """Looks at the model within an epoch, on all workers."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            rows = _rows()
            self.seen = self.model.evaluate(*rows, batch_size=_BATCH, verbose=0)


def trains(optimizer="adam", options=None, evaluates=False, **settings):
    """Two trainings; weights and the optimizer's own state after each, and the bytes sent."""
    strategy = tf_byteps.BytePSStrategy(**settings)
    optimizers = {
        "adam": lambda: keras.optimizers.Adam(0.02),
        "accumulating": lambda: keras.optimizers.Adam(0.02, gradient_accumulation_steps=2),
        "scaled": lambda: keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.02, gradient_accumulation_steps=2)
        ),
    }
    with strategy.scope():
        model = _model(optimizers[optimizer](), normalizes=True, **options or {})
    found = []
    callbacks = [_Evaluates()] if evaluates else []
    for _ in range(2):
        before = [np.array(each) for each in model.optimizer.variables[2:]]
        history = model.fit(*_rows(), epochs=2, callbacks=callbacks, **_FIT)
        own = [np.array(each) for each in model.optimizer.variables[2:]]
        losses = history.history["loss"]
        found.append((_weights(model).tobytes(), [o.tobytes() for o in own], losses, len(before)))
    predicted = model.predict(_rows()[0], batch_size=_BATCH, verbose=0)
    return found, predicted.tobytes(), bool(np.isfinite(_weights(model)).all())


def bytes_sent(**settings):
    """Those of an epoch of 32 steps, and the bytes of the weights."""
    strategy = tf_byteps.BytePSStrategy(**settings)
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    sent = []
    note = lambda *_: sent.append(_engine.worker_counters()["pushed_bytes"])  # noqa: E731
    callback = keras.callbacks.LambdaCallback(on_epoch_begin=note, on_train_end=note)
    x, y = np.ones((256, 64)), np.zeros((256, 512))
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False, callbacks=[callback])
    return sent[-1] - sent[-2], 64 * 512 * 8


def goes_on_after_an_exception():
    """A callback fails on all workers within a round with a delay; then the model trains again."""
    strategy = tf_byteps.BytePSStrategy(local_steps=3, outer="diloco", delay=2)
    with strategy.scope():
        model = _model("adam")

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                raise KeyError("of the program")

    try:
        model.fit(*_rows(), callbacks=[Fails()], **_FIT)
    except KeyError as error:
        said = str(error)
    losses = model.fit(*_rows(), epochs=3, **_FIT).history["loss"]
    return said, losses, _weights(model).tobytes()


def steps_of_the_programs_own():
    """`train_on_batch`, which takes each worker's own rows; then what is predicted."""
    strategy = tf_byteps.BytePSStrategy(local_steps=4)
    with strategy.scope():
        model = _model(keras.optimizers.SGD(0.1))
    x, y = _rows()
    mine = x[tf_byteps.rank() :: 2], y[tf_byteps.rank() :: 2]
    for start in range(0, 24, 6):
        model.train_on_batch(*(each[start : start + 6] for each in mine))
    after_a_round = _weights(model).tobytes()
    model.train_on_batch(*(each[:6] for each in mine))
    own = _weights(model).tobytes()
    model.predict(x, batch_size=_BATCH, verbose=0)
    return after_a_round, own, _weights(model).tobytes()


def lookahead(plain=False):
    """One worker: the outer optimizer takes half of what four steps have done."""
    weights = []
    if not plain:
        strategy = tf_byteps.BytePSStrategy(local_steps=4, outer_learning_rate=0.5)
        with strategy.scope():
            model = _model(keras.optimizers.SGD(0.1))
        model.fit(*_rows(), epochs=2, **_FIT)
        return _weights(model)
    model = _model(keras.optimizers.SGD(0.1))
    x, y = _rows()
    for _ in range(2):
        weights = [np.array(each) for each in model.get_weights()]
        for step in range(5):
            model.train_on_batch(*(r[step * _BATCH : (step + 1) * _BATCH] for r in (x, y)))
            if step in (3, 4):  # the epoch ends with a round
                now = model.get_weights()
                weights = [old + 0.5 * (new - old) for old, new in zip(weights, now, strict=True)]
                model.set_weights(weights)
    return _weights(model)


def refusals():
    """What is said to what cannot be."""
    said = []

    def note(function):
        try:
            function()
        except (ValueError, NotImplementedError) as error:
            said.append(str(error))

    make = tf_byteps.BytePSStrategy
    note(lambda: make(local_steps=4, cross_step=True))
    note(lambda: make(local_steps=4, backup_workers=1))
    note(lambda: make(fragments=2))
    note(lambda: make(outer="diloco"))
    strategy = make(local_steps=4)
    with strategy.scope():
        variable = tf.Variable(1.0)
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([variable])

    def step():
        with tf.GradientTape() as tape:
            loss = variable * variable
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

    note(lambda: strategy.run(step))
    return said
