"""What the workers of test_local_steps_saving.py do."""

import os
import shutil

import keras
import numpy as np
import tensorflow as tf

import tf_byteps

keras.config.set_floatx("float64")

_ROWS, _BATCH, _EPOCH = 60, 12, 5  # steps of an epoch
_STRATEGY = {"local_steps": 2, "outer": "diloco", "warmup_steps": 3, "fragments": 2}


def _rows():
    random = np.random.default_rng(1)
    x = random.normal(size=(_ROWS, 6))
    return x, np.sin(x.sum(axis=1, keepdims=True))


def _compiled(settings=None, optimizer=None):
    strategy = tf_byteps.BytePSStrategy(**{**_STRATEGY, **(settings or {})})
    with strategy.scope():
        keras.utils.set_random_seed(3)
        layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh")]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(optimizer or keras.optimizers.SGD(0.1), "mse")
    return strategy, model


def _fit(model, epochs, **options):
    model.fit(*_rows(), epochs=epochs, batch_size=_BATCH, shuffle=False, verbose=0, **options)


def _weights(model):
    return np.concatenate([np.ravel(each) for each in model.get_weights()]).tobytes()


def _momenta(model):
    return [np.array(each).tobytes() for each in model.optimizer._byteps_outer.momenta]


def goes_through():
    """Four epochs at once: weights and the outer momentum."""
    _, model = _compiled()
    _fit(model, 4)
    return _weights(model), _momenta(model)


def saves(folder, settings=None):
    """Two epochs, and what was saved then, in all ways."""
    _, model = _compiled(settings)
    backup = keras.callbacks.BackupAndRestore(
        os.path.join(folder, "backup"), delete_checkpoint=False
    )
    whole = keras.callbacks.ModelCheckpoint(os.path.join(folder, "callback.keras"))
    _fit(model, 2, callbacks=[backup, whole])
    model.save(os.path.join(folder, "saved.keras"))
    model.save_weights(os.path.join(folder, "saved.weights.h5"))
    tf.train.Checkpoint(model=model).write(os.path.join(folder, "checkpoint"))
    if tf_byteps.rank() == 0:
        np.savez(os.path.join(folder, "weights_alone.npz"), *model.get_weights())
    return _weights(model), _momenta(model)


def restores(folder, how, settings=None):
    """Two epochs more, from what was saved; the momentum before, and where they have ended."""
    path = os.path.join(folder, how)
    if how.endswith(".keras"):
        strategy = tf_byteps.BytePSStrategy(**{**_STRATEGY, **(settings or {})})
        with strategy.scope():
            model = keras.models.load_model(path)
    else:
        strategy, model = _compiled(settings)
    epochs, callbacks = 2, []
    if how == "backup":  # a copy: it is written again
        path = shutil.copytree(path, f"{path}_{tf_byteps.size()}_{tf_byteps.rank()}")
        epochs, callbacks = 4, [keras.callbacks.BackupAndRestore(path, delete_checkpoint=False)]
    elif how.endswith(".h5"):
        model.load_weights(path)
    elif how == "checkpoint":
        tf.train.Checkpoint(model=model).read(path).expect_partial()
    elif how.endswith(".npz"):
        model.set_weights(list(np.load(path).values()))
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: seen or seen.append(_momenta(model))
    )
    with strategy.scope():
        _fit(model, epochs, callbacks=[*callbacks, note])
    return seen[0], _weights(model), _momenta(model)


def is_read_without_local_steps(folder):
    """Programs without local steps read such files, and such with them read theirs."""
    path = os.path.join(folder, "saved.keras")
    alone = keras.models.load_model(path)
    same = alone.get_weights()
    plain = os.path.join(folder, f"plain_{tf_byteps.rank()}.weights.h5")
    alone.save_weights(plain)
    _, model = _compiled()
    model.load_weights(plain)
    read = model.get_weights()
    return all(np.array_equal(a, b) for a, b in zip(same, read, strict=True)), int(
        model.optimizer.iterations
    )


def refuses_other_weights(folder):
    """What is said if other weights were trainable when the file was made."""
    _, model = _compiled({"warmup_steps": 0})
    model.layers[0].trainable = False
    _fit(model, 1)
    state = model.optimizer._byteps_outer
    before = _momenta(model)
    try:
        state.load_own_variables({"outer_rounds": np.zeros(4, np.int64)})
    except ValueError as error:
        return str(error), before == _momenta(model)
    return "", False


def outer_sync(folder, steps, first=0):
    """`OuterSync` for some steps, from a checkpoint if it is not the first; saves one."""
    tf_byteps.init()
    rank = tf_byteps.rank()
    weight = tf.Variable(np.zeros(5), name="weight", dtype=tf.float64)
    outer = tf_byteps.OuterSync([weight], local_steps=2, outer="diloco", outer_momentum=0.9)
    path = os.path.join(folder, f"outer_{rank}")
    checkpoint = tf.train.Checkpoint(weight=weight, outer=outer)
    if first:
        checkpoint.read(path).assert_consumed()
        outer.finish()
    for step in range(first, first + steps):
        weight.assign_add(np.random.default_rng([rank, step]).normal(size=5))
        outer.step()
    outer.finish()
    checkpoint.write(path)
    return weight.numpy().tobytes()
