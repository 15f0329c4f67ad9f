"""What the workers of test_staleness.py do."""

import os

import keras
import numpy as np

import tf_byteps
from tests.cluster import wait_until
from tests.strategy.local_steps_programs import _BATCH, _FIT, _Evaluates, _model, _rows, _weights

keras.config.set_floatx("float32")

_STEPS = 8


def _counter(staleness, **options):
    """A model whose weight falls by 1 in each step of all workers, whatever it is."""
    strategy = tf_byteps.BytePSStrategy(staleness=staleness)
    with strategy.scope():
        ones = keras.initializers.Ones()
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer=ones)]
        )
        # Each worker's change, a whole number, is divided by the number of workers.
        optimizer = keras.optimizers.SGD(float(tf_byteps.size()))
        model.compile(optimizer, lambda _, y: keras.ops.mean(y), **options)
    return model


def _fit(model, epochs=1, callbacks=(), steps=_STEPS):
    rows = np.ones((steps * 12, 1), np.float32)
    options = {"epochs": epochs, "callbacks": list(callbacks), "verbose": 0, "shuffle": False}
    model.fit(rows, rows, batch_size=12, **options)


def _weight(model):
    return float(model.get_weights()[0].item())


def counts(staleness, **options):
    """The weight after each of several trainings, which all workers' changes add up to."""
    model = _counter(staleness, **options)
    start = _weight(model)
    seen = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(_weight(model)))
    _fit(model, epochs=2, callbacks=[note])
    _fit(model, callbacks=[note])
    model.set_weights([np.full((1, 1), 100, np.float32)])
    _fit(model, callbacks=[note])
    fell = [*(start - each for each in seen[:3]), 100 - seen[3]]
    return [start, *(each / tf_byteps.size() for each in fell)]


class _Slow(keras.callbacks.Callback):
    """Worker 1 makes its second step when worker 0 has made all of its steps."""

    def __init__(self, folder):
        super().__init__()
        self._file = os.path.join(folder, "worker 0 is done")

    def on_train_batch_begin(self, batch, logs=None):
        if tf_byteps.rank() != 1 or batch != 1:
            return
        wait_until(lambda: os.path.exists(self._file), 300)

    def on_train_batch_end(self, batch, logs=None):
        if tf_byteps.rank() == 0 and batch == _STEPS - 1:
            with open(self._file, "w"):
                self.model.seen = _weight(self.model)


def does_not_wait():
    """What the fast worker has when the slow one has made one step, and what both have then."""
    model = _counter("unbounded")
    _fit(model, callbacks=[_Slow(os.environ["STALENESS_FOLDER"])])
    return getattr(model, "seen", None), _weight(model)


def trains(staleness):
    """Two trainings with moving statistics; what the workers have in common after each."""
    strategy = tf_byteps.BytePSStrategy(staleness=staleness)
    with strategy.scope():
        model = _model(keras.optimizers.Adam(0.02), normalizes=True)
    found = []
    for _ in range(2):
        history = model.fit(*_rows(), epochs=3, callbacks=[_Evaluates()], **_FIT)
        found.append((_weights(model).tobytes(), history.history["loss"]))
    predicted = model.predict(_rows()[0], batch_size=_BATCH, verbose=0)
    return found, predicted.tobytes()


def goes_on_after_an_exception():
    """A callback fails on all workers; then the model trains again."""
    model = _counter(2)

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                raise KeyError("of the program")

    try:
        _fit(model, callbacks=[Fails()])
    except KeyError as error:
        said = str(error)
    before = []
    note = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: before.append(_weight(model)))
    _fit(model, callbacks=[note])
    return said, (before[0] - _weight(model)) / tf_byteps.size(), _weight(model)


def synchronous(**arguments):
    """The bits of a training."""
    strategy = tf_byteps.BytePSStrategy(**arguments)
    with strategy.scope():
        model = _model(keras.optimizers.Adam(0.02))
    model.fit(*_rows(), epochs=2, **_FIT)
    return _weights(model).tobytes()


def refusals():
    """What is said to what cannot be."""
    said = []
    for arguments in (
        {"cross_step": True},
        {"backup_workers": 1},
        {"compression": "int8"},
        {"local_steps": 4},
        {"staleness": -1},
        {"staleness": "none"},
        {"staleness": 1.5},
    ):
        try:
            tf_byteps.BytePSStrategy(**{"staleness": 2, **arguments})
        except (TypeError, ValueError) as error:
            said.append(str(error))
    return said
