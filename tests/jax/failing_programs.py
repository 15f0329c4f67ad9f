"""What test_keras_fit.py runs on each worker: trainings on JAX that are refused, or fail."""

import os

import keras
import numpy as np
from keras_models import Batches, data, error_of, facts, model_of

import tf_byteps
from tf_byteps.errors import BytePSError, ExchangeError


def refusals():
    x, y = data(24)
    model = model_of()
    errors = {
        name: error_of(tf_byteps.BytePSStrategy, **{name: value})
        for name, value in {"local_steps": 4, "staleness": 2, "x": 1}.items()
    }
    errors["cross_step"] = error_of(tf_byteps.BytePSStrategy, cross_step="yes")
    errors["backup"] = error_of(tf_byteps.BytePSStrategy, cross_step=True, backup_workers=1)
    errors["compression"] = error_of(
        model_of(strategy=tf_byteps.BytePSStrategy(compression="powersgd")).fit, x, y, verbose=0
    )
    devices = keras.distribution.list_devices()
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    try:
        errors["distribution"] = error_of(model.fit, x, y, verbose=0)
    finally:
        keras.distribution.set_distribution(None)
    errors["data"] = error_of(model.fit, x + tf_byteps.rank(), y, verbose=0)
    errors["rows"] = error_of(model.train_on_batch, {"a": x, "b": x[:4]}, y)
    history = model.fit(x, y, batch_size=12, verbose=0)  # works after all of them
    return {"errors": errors, "loss": history.history["loss"]}


def lengths():
    """Inputs that end at other places; those that end together, which Keras cannot know."""
    x, y = data(24)
    model = model_of()

    def generate(count):
        for batch in range(count):
            rows = slice(12 * (batch % 2), 12 * (batch % 2) + 12)
            yield x[rows], y[rows]

    rank = tf_byteps.rank()
    errors = {
        "fit": error_of(model.fit, generate(3 + rank), verbose=0),
        "steps": error_of(model.fit, generate(3 - rank), steps_per_epoch=3, verbose=0),
        "evaluate": error_of(model.evaluate, generate(1 + rank), verbose=0),
        "predict": error_of(model.predict, generate(4 - rank), verbose=0),
        "known": error_of(model.fit, Batches(x[rank * 12 :], y[rank * 12 :]), verbose=0),
        "arguments": error_of(model.fit, x, y, batch_size=12, steps_per_epoch=1 + rank, verbose=0),
    }
    return errors


def left():
    """A callback fails on one worker: all leave `fit`, and meet again in the next one."""
    x, y = data(24)
    model = model_of()

    def fail(batch, logs):
        if tf_byteps.rank() == tf_byteps.size() - 1:
            raise OSError("the disk is full")

    failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    error = error_of(model.fit, x, y, batch_size=12, epochs=2, callbacks=[failing], verbose=0)
    history = model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
    return facts(model, history, error=error)


class _FailsAt(keras.callbacks.Callback):
    """Fails in a batch on the last worker."""

    def __init__(self, batch):
        super().__init__()
        self._batch = batch

    def _fail(self, batch, logs=None):
        if batch == self._batch and tf_byteps.rank() == tf_byteps.size() - 1:
            raise OSError("the disk is full")

    on_test_batch_begin = on_predict_batch_begin = _fail


def left_outside_fit():
    """An evaluation and a prediction fail on one worker: all leave them, and meet in the next."""
    x, y = data(24)
    model = model_of(metrics=["accuracy"])
    calls = {"evaluate": lambda **more: model.evaluate(x, y, batch_size=12, verbose=0, **more)}
    calls["predict"] = lambda **more: model.predict(x, batch_size=12, verbose=0, **more)
    results = {name: call() for name, call in calls.items()}
    reported = {
        f"{name} at {batch}": error_of(call, callbacks=[_FailsAt(batch)])
        for name, call in calls.items()
        for batch in (0, 1)
    }
    again = {name: call() for name, call in calls.items()}
    history = model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
    return facts(model, history, reported=reported, results=results, again=again)


def lost_before_an_evaluation():
    """Worker 1 ends, and worker 0 waits for it where an evaluation begins."""
    x, y = data(24)
    model = model_of()
    model.evaluate(x, y, verbose=0)
    if tf_byteps.rank() == 1:
        os._exit(9)
    try:
        model.evaluate(x, y, verbose=0)
    except ExchangeError as error:
        return str(error), error.byteps_lost.rank
    return None


class _Leaving(Batches):
    """Worker 1 ends in the second epoch."""

    taken = 0

    def __getitem__(self, index):
        self.taken += 1
        if tf_byteps.rank() == 1 and self.taken == 9:
            os._exit(9)
        return super().__getitem__(index)


def lost():
    """Another worker ends in the second epoch."""
    x, y = data()
    model = model_of("adam")
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
