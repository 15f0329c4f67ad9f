"""What test_cross_step.py runs on each worker: `fit` of Keras on JAX, also with cross_step."""

import os
import re
import tempfile
import warnings

import jax
import keras
import numpy as np
from keras_models import Batches, data, error_of, model_of

import tf_byteps
from tf_byteps.errors import ExchangeError
from tf_byteps.strategy.jax import cross_step, start_scheduling

_schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.9)
_OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "scheduled": lambda: keras.optimizers.Adam(_schedule, global_clipnorm=0.5),
    "averaging": lambda: keras.optimizers.AdamW(
        0.05, use_ema=True, ema_overwrite_frequency=3, clipnorm=0.5
    ),
    "accumulating": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
    "scaling": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05)),
}


class _Notes(keras.callbacks.Callback):
    """What a callback sees that asks for no weights: losses, and the updates in the state."""

    def __init__(self):
        super().__init__()
        self.losses, self.done = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        state = zip(self._model.optimizer.variables, self._model._jax_state["optimizer_variables"])
        self.done.append(max(int(now) for variable, now in state if variable.name == "iteration"))


def _model(across, optimizer="momentum", layers=(), compression="none", **options):
    strategy = tf_byteps.BytePSStrategy(cross_step=across, compression=compression)
    return model_of(_OPTIMIZERS[optimizer](), strategy=strategy, layers=layers, **options)


def _everything(model):
    return [np.asarray(variable) for variable in [*model.weights, *model.optimizer.variables]]


def _about(caught):
    return [str(w.message) for w in caught if "cross_step" in str(w.message)]


def train(across, noisy=False, rows=50, evaluates=True, **options):
    """Two epochs of batches of 12 rows and a shorter one, with a validation."""
    x, y = data(rows)
    layers = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=3)] if noisy else []
    model = _model(across, layers=layers, **options)
    notes = _Notes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = model.fit(
            x,
            y,
            batch_size=12,
            epochs=2,
            validation_data=(x, y) if evaluates else None,
            verbose=0,
            callbacks=[notes],
        )
    if evaluates and not model.optimizer.use_ema:  # after which Keras itself fails
        model.train_on_batch(x[:12], y[:12])  # plain again
    return {
        "losses": notes.losses,
        "done": notes.done,
        "history": history.history,
        "warnings": _about(caught),
        "weights": _everything(model),
        "programs": across and model.__dict__[cross_step._STEPS]._program._cache_size(),
    }


def _saved(model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.weights.h5")
        model.save_weights(path)
        with open(path, "rb") as file:
            return len(file.read()) > 0, model.get_weights()


def _slower(model):
    model.optimizer.learning_rate = float(model.optimizer.learning_rate) / 2


_WAYS = {
    "get_weights": lambda model: model.get_weights(),
    "optimizer": lambda model: [np.asarray(v) for v in model.optimizer.variables],
    "evaluate": lambda model: model.evaluate(*data(20), verbose=0),
    "test_on_batch": lambda model: model.test_on_batch(*data(4)),
    "predict": lambda model: model.predict(data(20)[0], verbose=0),
    "call": lambda model: np.asarray(model(data(4)[0], training=False)),
    "train_on_batch": lambda model: model.train_on_batch(*data(4)),
    "save_weights": _saved,
    "set_weights": lambda model: model.set_weights([2 * w for w in model.get_weights()]),
    "learning rate": _slower,
}


class _Looks(keras.callbacks.Callback):
    """Uses the model in another way after every second batch, and notes what it has found."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def on_train_batch_end(self, batch, logs=None):
        if batch % 2:
            way = list(_WAYS)[batch // 2]
            self.found[way] = _WAYS[way](self.model)


def look(across):
    x, y = data(8 * len(_WAYS))
    model, looks = _model(across), _Looks()
    model.fit(x, y, batch_size=4, verbose=0, callbacks=[looks])
    return {"found": looks.found, "weights": _everything(model)}


class _OwnStep(keras.Sequential):
    def train_step(self, state, data):
        return super().train_step(state, data)


def plain_after_a_warning():
    """Why trainings cannot go across steps."""
    x, y = data(24)
    found = {}
    own = _OwnStep([keras.layers.Dense(3, "softmax")])
    for name, options in {"own": None, "eager": {"run_eagerly": True}}.items():
        if options is None:
            with tf_byteps.BytePSStrategy(cross_step=True).scope():
                model = own
                model.compile("sgd", "sparse_categorical_crossentropy")
        else:
            model = _model(True, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(x, y, batch_size=12, verbose=0)
        found[name] = _about(caught)
    return found


class _FailsAtTheThird(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 3:
            raise OSError("the disk is full")


def callback_fails(across):
    """An exception between two steps, on all workers: the updates before it are done."""
    x, y = data()
    model = _model(across)
    error = error_of(
        model.fit, x, y, batch_size=12, shuffle=False, verbose=0, callbacks=[_FailsAtTheThird()]
    )
    weights = model.get_weights()
    model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
    return {"error": error, "weights": [weights, _everything(model)]}


def one_fails():
    """An exception between two steps, on worker 1 alone. The weights are anybody's then."""
    x, y = data()
    model = _model(True)
    failing = [_FailsAtTheThird()] if tf_byteps.rank() == 1 else []
    given = {"batch_size": 12, "shuffle": False, "verbose": 0}
    error = error_of(model.fit, x, y, epochs=2, callbacks=failing, **given)
    again = error_of(model.fit, x, y, **given)
    return {"error": error, "again": again, "weights": _everything(model)}


class _Leaving(Batches):
    def __getitem__(self, index):
        if tf_byteps.rank() == 1 and index == 3:
            os._exit(9)
        return super().__getitem__(index)


def lost():
    """Worker 1 ends in the middle of an epoch."""
    model = _model(True)
    kept = []
    keeping = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: kept.extend(model.get_weights())
    )
    try:
        model.fit(_Leaving(*data()), epochs=3, callbacks=[keeping], shuffle=False, verbose=0)
    except ExchangeError as error:
        same = all(np.array_equal(a, b) for a, b in zip(kept, model.get_weights(), strict=True))
        return {"lost": error.byteps_lost.rank, "weights are kept": same}
    return None


def order():
    """The products of a step's forward pass, and the ends of exchanges, in the order that XLA has
    given them."""
    start_scheduling.LEAST_ELEMENTS = 2**18
    layers = [keras.layers.Dense(512, "relu", name=f"layer_{i}") for i in range(4)]
    with tf_byteps.BytePSStrategy(cross_step=True).scope():
        model = keras.Sequential([keras.Input([512]), *layers])
        model.compile("sgd", "mse")
    x = np.random.default_rng(3).normal(size=(16, 512))
    model.fit(x, x, batch_size=16, verbose=0)
    state = model._get_jax_state(True, True, True, True)
    program = model.__dict__[cross_step._STEPS]._program
    marked = cross_step.steps.Marked((x[:8], x[:8]), np.zeros([16, 8, 0], bool))
    _, _, before = jax.tree.map(
        lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype),
        program.lower(state, None, marked).out_info,
    )
    text = program.lower(state, before, marked).compile().as_text()
    found = []
    for line in text[text.index("\nENTRY") :].splitlines():
        if 'custom_call_target="byteps_done"' in line:
            for name in re.search(r'names = "([0-9a-f.]*)"', line)[1].split("."):
                found.append(bytes.fromhex(name).decode().rpartition("layer_")[2])
        elif "jvp(" in line and "transpose(" not in line and "dot_general" in line:
            found.append("product")
    return found
