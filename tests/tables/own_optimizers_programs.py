"""What the workers of test_own_optimizers.py and test_mixed_precision.py do."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests.tables import by_hand, tables_programs as base
from tf_byteps.keras import layers, optimizers

WORDS, USERS, SHOPS, WIDTH, ROWS, BATCH = 50, 7, 3, 4, 43, 10  # the last batch has 3 rows
TABLES = {"words": WORDS, "users": USERS, "shops": SHOPS}
OWN = {
    # Words and shops are updated alike, but by two objects; users by the model's optimizer.
    "Adagrad": lambda: {
        "words": keras.optimizers.Adagrad(0.2),
        "shops": keras.optimizers.Adagrad(0.2),
    },
    "LazyAdam": lambda: {"words": optimizers.LazyAdam(_schedule()), "users": "sgd"},
    "RowWiseAdagrad": lambda: {name: optimizers.RowWiseAdagrad(0.1) for name in TABLES},
    None: dict,
}
MODELS = {
    "SGD": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.5),
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "LazyAdam": lambda: optimizers.LazyAdam(0.01),
    "RowWiseAdagrad": lambda: optimizers.RowWiseAdagrad(0.1),
    "clipped": lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.1),
    "scaled": lambda: keras.optimizers.SGD(0.05, loss_scale_factor=64.0),
    "accumulating": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
}


def _schedule():
    return keras.optimizers.schedules.PiecewiseConstantDecay([3], [0.1, 0.05])


def data():
    """The same on all workers."""
    random = np.random.default_rng(5)
    words = random.zipf(1.3, (ROWS, 6)) % WORDS
    inputs = {
        "words": words.astype("int64"),
        "users": random.integers(0, USERS, (ROWS, 2)),
        "shops": random.integers(0, SHOPS, (ROWS, 1)),
    }
    return inputs, np.cos(words.sum(axis=1, keepdims=True)).astype("float32")


def _inputs():
    return {
        name: keras.Input(values.shape[1:], dtype=str(values.dtype), name=f"{name}_ids")
        for name, values in data()[0].items()
    }


def _head(inputs, found):
    joined = keras.layers.Concatenate()(found)
    hidden = keras.layers.Dense(5, "tanh", name="hidden")(joined)
    out = keras.layers.Dense(1, name="out", dtype=keras.config.floatx())
    return keras.Model(inputs, out(hidden))


def _with_tables(own):
    inputs, given = _inputs(), OWN[own]()
    tables = {
        name: layers.TableConfig(name, rows, WIDTH, optimizer=given.get(name))
        for name, rows in TABLES.items()
    }
    features = {name: layers.FeatureConfig(name, table) for name, table in tables.items()}
    found = layers.DistributedEmbedding(features, name="tables")(inputs)
    return _head(inputs, [found[name] for name in TABLES])


def _plain(own):
    del own
    inputs = _inputs()
    found = [
        keras.ops.mean(keras.layers.Embedding(rows, WIDTH, name=name)(inputs[name]), 1)
        for name, rows in TABLES.items()
    ]
    return _head(inputs, found)


def _values():
    random = np.random.default_rng(9)
    shapes = {"hidden": [(12, 5), (5,)], "out": [(5, 1), (1,)]}
    dense = {name: [random.normal(size=s) for s in each] for name, each in shapes.items()}
    return dense, {name: random.normal(size=(rows, WIDTH)) for name, rows in TABLES.items()}


def made(make, own, optimizer):
    """A compiled model with the values of all tests."""
    model = make(own)
    model.compile(MODELS[optimizer](), "mse")
    dense, tables = _values()
    for name, values in dense.items():
        model.get_layer(name).set_weights(values)
    if make is _with_tables:
        model.get_layer("tables").set_embedding_tables(tables)
    else:
        for name, value in tables.items():
            model.get_layer(name).set_weights([value])
    return model


def _numbers(model):
    layer = model.get_layer("tables")
    dense = [model.get_layer(name).get_weights() for name in ("hidden", "out")]
    return layer.get_embedding_tables(), sum(dense, [])


def _fit(model, **options):
    (x, y), (kept, targets) = data(), data()
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, **options)
    assert all((x[name] == kept[name]).all() for name in x) and (y == targets).all()
    return history.history["loss"]


def spread(own, optimizer):
    """The tables, the other weights, losses, and where the states are."""
    given = OWN[own]
    with tf_byteps.BytePSStrategy().scope():
        model = made(_with_tables, own, optimizer)
        losses = _fit(model, epochs=2)
    layer = model.get_layer("tables")
    of_tables = {
        name: [(each.path, tuple(each.shape)) for each in its.variables]
        for name, its in layer.table_optimizers.items()
    }
    steps = {name: int(its.iterations) for name, its in layer.table_optimizers.items()}
    of_model = [each.path for each in model.optimizer.variables]
    assert sorted(of_tables) == sorted(given())
    return *_numbers(model), losses, of_tables, of_model, steps


def reference(own, optimizer):
    """One process: Keras's embeddings, and a step that calls each optimizer by hand."""
    model = made(_plain, None, optimizer)
    own_of = {name: keras.optimizers.get(each) for name, each in OWN[own]().items()}

    def apply(pairs):
        of_model = []
        for gradient, weight in pairs:
            its_own = own_of.get(weight.path.split("/")[0])
            if type(its_own).__module__ != optimizers.__name__:  # which add rows up
                gradient = tf.convert_to_tensor(gradient)
            if its_own is None:
                of_model.append((gradient, weight))
            else:
                its_own.apply([gradient], [weight])
        factor = model.optimizer.loss_scale_factor or 1.0  # by which Keras divides
        model.optimizer.apply(
            [gradient * factor for gradient, _ in of_model], [weight for _, weight in of_model]
        )

    losses = by_hand.train(model, *data(), BATCH, apply)
    tables = {name: model.get_layer(name).get_weights()[0] for name in TABLES}
    dense = [model.get_layer(name).get_weights() for name in ("hidden", "out")]
    return tables, sum(dense, []), losses


def saves(folder):
    """Saves in all ways, then trains on. The numbers of workers that load may be others."""
    with tf_byteps.BytePSStrategy().scope():
        model = made(_with_tables, "LazyAdam", "momentum")
        _fit(model, callbacks=[keras.callbacks.ModelCheckpoint(f"{folder}/kept.keras")])
        model.save(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        path = tf.train.Checkpoint(model=model).save(f"{folder}/checkpoint")
        before = _numbers(model)
        _fit(model)
        return path, before, _numbers(model)


def loads(folder, path, kinds):
    """What was saved, from these kinds of files, and after training on.

    One model reads the files that have no model, one after the other.
    """
    found = []
    restoring = {
        "weights": lambda model: model.load_weights(f"{folder}/model.weights.h5"),
        "checkpoint": lambda model: tf.train.Checkpoint(model=model).restore(path),
    }
    with tf_byteps.BytePSStrategy().scope():
        for name in (kind for kind in kinds if kind not in restoring):
            model = keras.models.load_model(f"{folder}/{name}")
            found.append((_numbers(model), _fit(model), _numbers(model))[::2])
        model = made(_with_tables, "LazyAdam", "momentum")
        model.optimizer.build(model.trainable_variables)
        for restore in (restoring[kind] for kind in kinds if kind in restoring):
            restore(model)
            found.append((_numbers(model), _fit(model), _numbers(model))[::2])
    return found


def refused():
    """The messages of what does not go with tables that have their own optimizer."""
    with tf_byteps.BytePSStrategy().scope():
        model = made(_with_tables, "Adagrad", "accumulating")
    found = {"accumulating": base._message(lambda: _fit(model))}
    for name, optimizer in {
        "ema": keras.optimizers.SGD(use_ema=True),
        "wrapped": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
        "distributed": tf_byteps.DistributedOptimizer(keras.optimizers.SGD()),
        "unknown": "adagrat",
        "number": 0.1,
    }.items():
        try:
            layers.TableConfig("words", 5, 4, optimizer=optimizer)
        except (ValueError, TypeError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def given_is_kept():
    """A program's optimizer is not changed by the layer, which two layers may have."""
    optimizer = keras.optimizers.Adagrad(0.3)
    table = layers.TableConfig("words", 9, 2, optimizer=optimizer)
    found = []
    for _ in range(2):
        layer = layers.DistributedEmbedding(layers.FeatureConfig("word", table))
        layer.build()
        own = layer.table_optimizers["words"]
        found.append((own is not optimizer, float(own.learning_rate), len(own.variables)))
    return found, optimizer.built, len(optimizer.variables)


def mixed(policy, own, optimizer):
    """A training in mixed precision, with the loss scale at its end."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy(policy)
    try:
        with tf_byteps.BytePSStrategy().scope():
            model = made(_with_tables, own, optimizer)
            if policy == "mixed_float16":  # with a scale at which nothing overflows
                plain = MODELS[optimizer]()
                model.compile(keras.optimizers.LossScaleOptimizer(plain, 256.0), "mse")
            losses = _fit(model, epochs=3)
        layer = model.get_layer("tables")
        outputs = layer({name: values[:2] for name, values in data()[0].items()})
        dtypes = {each.dtype.name for each in outputs.values()}
        kinds = {each.dtype for each in layer.trainable_variables}
        scale = getattr(model.optimizer, "dynamic_scale", None)
        return *_numbers(model), losses, dtypes, kinds, None if scale is None else float(scale)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def overflows():
    """Steps of mixed_float16 whose gradients overflow on one worker change no table."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with tf_byteps.BytePSStrategy().scope():
            model = made(_with_tables, "Adagrad", "SGD")
            start = _numbers(model)
            x, y = data()
            y = y.copy()
            y[0] = np.inf  # of the first worker's rows
            model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)
            layer = model.get_layer("tables")
            steps = {name: int(each.iterations) for name, each in layer.table_optimizers.items()}
            scale = float(model.optimizer.dynamic_scale)
            return start, _numbers(model), steps, scale, float(model.optimizer.initial_scale)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])
