"""What the workers of test_on_servers.py do."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests.tables import tables_programs as base
from tf_byteps.keras import layers, optimizers
from tf_byteps.tables import layout as layouts, saving, server_tables

ROWS, WORDS, USERS, WIDTH, BATCH = 43, 50, 7, 4, 10  # the last batch has 3 rows
TABLES = {"words": (WORDS, WIDTH), "users": (USERS, WIDTH)}
OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.05),
    "Adagrad": lambda: keras.optimizers.Adagrad(_schedule()),
    "RowWiseAdagrad": lambda: optimizers.RowWiseAdagrad(0.1),
    "LazySGD": lambda: optimizers.LazySGD(0.05, momentum=0.5),
    "nesterov": lambda: optimizers.LazySGD(0.05, momentum=0.5, nesterov=True),
    "LazyAdam": lambda: optimizers.LazyAdam(_schedule()),
    "amsgrad": lambda: optimizers.LazyAdam(0.02, amsgrad=True),
    "Ftrl": lambda: optimizers.Ftrl(
        0.1,
        l1_regularization_strength=0.001,
        l2_regularization_strength=0.01,
        l2_shrinkage_regularization_strength=0.02,
        beta=0.1,
    ),
    "RMSprop": lambda: optimizers.RMSprop(0.01),
    "momentum": lambda: optimizers.RMSprop(0.01, momentum=0.5),
    "centered": lambda: optimizers.RMSprop(0.01, centered=True),
    "both": lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    # Of the model; the tables have LazyAdam and Adagrad.
    "two": lambda: keras.optimizers.SGD(0.05),
}


def _schedule():
    return keras.optimizers.schedules.PiecewiseConstantDecay([3], [0.1, 0.05])


def data():
    """The same on all workers."""
    random = np.random.default_rng(5)
    words = random.zipf(1.3, (ROWS, 6)) % WORDS
    inputs = {"words": words.astype("int64"), "users": random.integers(0, USERS, ROWS)}
    return inputs, np.cos(words.sum(axis=1, keepdims=True)).astype("float64")


def _inputs():
    shapes = {"words": [6], "users": []}
    return {
        name: keras.Input(shape, dtype="int64", name=f"{name}_ids")
        for name, shape in shapes.items()
    }


def _head(inputs, found):
    hidden = keras.layers.Dense(5, "tanh", name="hidden")(keras.layers.Concatenate()(found))
    return keras.Model(inputs, keras.layers.Dense(1, name="out")(hidden))


def on_servers(optimizer, placement="servers"):
    own = dict.fromkeys(TABLES, optimizer)
    if optimizer == "two":
        own = {"words": "LazyAdam", "users": "Adagrad"}
    tables = {
        name: layers.TableConfig(
            name, *shape, "uniform", OPTIMIZERS[own[name]](), placement=placement
        )
        for name, shape in TABLES.items()
    }
    features = {name: layers.FeatureConfig(name, table) for name, table in tables.items()}
    inputs = _inputs()
    found = layers.DistributedEmbedding(features, name="tables")(inputs)
    return _head(inputs, [found[name] for name in TABLES])


def _on_workers(optimizer):
    return on_servers(optimizer, "auto")


def _plain(optimizer):
    del optimizer
    inputs = _inputs()
    words = keras.layers.Embedding(*TABLES["words"], name="words")(inputs["words"])
    users = keras.layers.Embedding(*TABLES["users"], name="users")(inputs["users"])
    return _head(inputs, [keras.ops.mean(words, 1), users])


def made(make, optimizer):
    """A compiled model with the values of all tests."""
    model = make(optimizer)
    own = OPTIMIZERS[optimizer]()
    adds_up = make is _plain and not hasattr(own, "adds_up_rows")  # ours do so themselves
    model.compile(base._dense(own) if adds_up else own, "mse")
    random = np.random.default_rng(9)
    for name, shapes in {"hidden": [(8, 5), (5,)], "out": [(5, 1), (1,)]}.items():
        model.get_layer(name).set_weights([random.normal(size=shape) for shape in shapes])
    tables = {name: random.normal(size=shape) for name, shape in TABLES.items()}
    if make is _plain:
        for name, value in tables.items():
            model.get_layer(name).set_weights([value])
    else:
        model.get_layer("tables").set_embedding_tables(tables)
    return model


def fit(model, epochs=2):
    x, y = data()
    history = model.fit(x, y, epochs=epochs, batch_size=BATCH, shuffle=False, verbose=0)
    return history.history["loss"]


def _evaluated(model):
    x, y = data()
    evaluated = model.evaluate(x, y, batch_size=7, verbose=0)
    return [evaluated, model.predict(x, batch_size=21, verbose=0)]


def plain(optimizer):
    """One process, Keras's own layers."""
    model = made(_plain, optimizer)
    numbers = [fit(model), *_evaluated(model)]
    return {name: model.get_layer(name).get_weights()[0] for name in TABLES}, numbers


def trained(optimizer):
    """The same training with tables on the servers.

    Worker 0 looks some rows up alone before: this is no collective.
    """
    with tf_byteps.BytePSStrategy().scope():
        model = made(on_servers, optimizer)
        layer = model.get_layer("tables")
        x, _ = data()
        inputs = {name: tf.constant(values[:5]) for name, values in x.items()}
        for _ in range(3 if tf_byteps.rank() == 0 else 0):
            layer(inputs)
        losses, asked = _counted(lambda: fit(model))
        numbers = [losses, *_evaluated(model)]
        shapes = [tuple(each.shape) for each in layer.trainable_variables]
        return layer.get_embedding_tables(), numbers, shapes, asked


def _counted(train):
    """What a training returns, and of how many tables each request to servers was."""
    asked = {"read": [], "update": []}
    originals = {name: getattr(server_tables, name) for name in asked}

    def counting(name):
        def function(tables, *given):
            asked[name].append(len(tables))
            return originals[name](tables, *given)

        return function

    for name in asked:
        setattr(server_tables, name, counting(name))
    try:
        return train(), asked
    finally:
        for name, original in originals.items():
            setattr(server_tables, name, original)


def loop(is_plain):
    """A training loop of the program's own."""
    strategy = tf.distribute.get_strategy() if is_plain else tf_byteps.BytePSStrategy()
    with strategy.scope():
        model = made(_plain if is_plain else on_servers, "Adagrad")
        x, y = data()
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(20)
        if not is_plain:
            dataset = strategy.experimental_distribute_dataset(dataset)

        @tf.function
        def step(batch):
            def one(x, y):
                with tf.GradientTape() as tape:
                    loss = tf.nn.compute_average_loss(
                        tf.square(model(x) - y)[:, 0], global_batch_size=20
                    )
                gradients = tape.gradient(loss, model.trainable_variables)
                pairs = zip(gradients, model.trainable_variables, strict=True)
                model.optimizer.apply_gradients(pairs)
                return loss

            losses = strategy.run(one, batch)
            return strategy.reduce("SUM", losses, axis=None)

        losses = [float(step(batch)) for batch in dataset]
    if is_plain:
        return losses, {name: model.get_layer(name).get_weights()[0] for name in TABLES}
    return losses, model.get_layer("tables").get_embedding_tables()


def saves(folder):
    """Saves in several ways, then trains on. The numbers of workers that load may be others."""
    with tf_byteps.BytePSStrategy().scope():
        model = made(on_servers, "LazyAdam")
        fit(model)
        model.save(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        path = tf.train.Checkpoint(model=model).save(f"{folder}/checkpoint")
        layer = model.get_layer("tables")
        before = layer.get_embedding_tables()
        fit(model)
        return path, before, layer.get_embedding_tables()


def loads(folder, path):
    """Loads in these ways, and trains on. One model reads the files that have no model."""
    found = []
    with tf_byteps.BytePSStrategy().scope():
        model = keras.models.load_model(f"{folder}/model.keras")
        found.append(_trained_on(model))
        model = made(on_servers, "LazyAdam")
        model.optimizer.build(model.trainable_variables)
        model.load_weights(f"{folder}/model.weights.h5")
        found.append(_trained_on(model))
        tf.train.Checkpoint(model=model).restore(path)
        found.append(_trained_on(model))
    return found


def _trained_on(model):
    """The tables before and after a training."""
    layer = model.get_layer("tables")
    before = layer.get_embedding_tables()
    fit(model)
    return before, layer.get_embedding_tables()


def _kept(model):
    """The variables with rows and states of tables, by name, and the optimizers' steps."""
    layer = model.get_layer("tables")
    found = {f"rows {number}": each for number, each in enumerate(layer.trainable_variables)}
    for name, own in layer.table_optimizers.items():
        states = [each for each in own.variables if layouts.of(each) is not None]
        found |= {f"{name}, state {number}": each for number, each in enumerate(states)}
    return found, {name: own.iterations for name, own in layer.table_optimizers.items()}


def _read(model):
    rows, steps = _kept(model)
    whole = {name: saving.whole(each) for name, each in rows.items()}
    return whole, {name: int(each) for name, each in steps.items()}


def crosses(folder):
    """What files of each placement have, and what either placement has loaded from them."""
    makes = {"servers": on_servers, "workers": _on_workers}
    paths, found = {}, {}
    random = np.random.default_rng(7)
    with tf_byteps.BytePSStrategy().scope():
        models = {name: made(make, "two") for name, make in makes.items()}
        for name, model in models.items():
            _set(model, random, first_steps=3)
            model.save_weights(f"{folder}/{name}.weights.h5")
            paths[name] = tf.train.Checkpoint(model=model).save(f"{folder}/{name}")
            found[name] = {"saved": _read(model)}
        for name, model in models.items():
            for other, path in paths.items():
                _set(model, random, first_steps=50)  # so that all must come from the file
                model.load_weights(f"{folder}/{other}.weights.h5")
                found[other][f"{name}, weights"] = _read(model)
                _set(model, random, first_steps=50)
                tf.train.Checkpoint(model=model).restore(path)
                found[other][f"{name}, checkpoint"] = _read(model)
    return found


def _set(model, random, first_steps):
    """Gives the rows and states of tables random values, and the optimizers these steps and up."""
    rows, steps = _kept(model)
    for variable in rows.values():
        layout = layouts.of(variable)
        values = random.uniform(size=(layout.rows, *variable.shape[1:]))
        variable.assign(saving.own_rows(values, layout))
    for number, each in enumerate(steps.values()):
        each.assign(first_steps + number)


def initial_rows():
    """Tables of all distributions that servers make."""
    kinds = {
        "uniform": keras.initializers.RandomUniform(-0.5, 0.25, seed=3),
        "normal": keras.initializers.RandomNormal(1.0, 0.5, seed=3),
        "truncated": keras.initializers.TruncatedNormal(1.0, 0.5, seed=3),
        "scaled": keras.initializers.VarianceScaling(mode="fan_out", seed=3),
        "constant": keras.initializers.Constant(0.75),
    }
    with tf_byteps.BytePSStrategy().scope():
        features = {
            name: layers.FeatureConfig(
                name, layers.TableConfig(name, 1000, 16, kind, "sgd", placement="servers")
            )
            for name, kind in kinds.items()
        }
        layer = layers.DistributedEmbedding(features)
        layer.build()
        return layer.get_embedding_tables()


def bad_rows(indices):
    """Trainings with a bad row on worker 0: each index in turn, then a target that is no number, so
    that no gradient of worker 0 is one.

    Returns:
        Of each, the message, what has changed, and the losses of the next training.
    """
    with tf_byteps.BytePSStrategy().scope():
        model = made(on_servers, "LazyAdam")
        fit(model, 1)
        found = []
        for value in indices:
            x, y = data()
            x["words"][3] = value
            found.append(_after(model, x, y))
        x, y = data()
        y[3] = np.nan
        return [*found, _after(model, x, y)]


def _after(model, x, y):
    """See `bad_rows`."""
    layer = model.get_layer("tables")
    before = layer.get_embedding_tables()
    # What may become NaN: the other weights, and the optimizer's states of these.
    dense = [*model.get_layer("hidden").weights, *model.get_layer("out").weights]
    dense += model.optimizer.variables
    values = [each.numpy() for each in dense]
    message = base._message(lambda: model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0))
    tables = layer.get_embedding_tables()
    changed = [bool(np.any(before[name] != tables[name])) for name in before]
    for variable, value in zip(dense, values, strict=True):
        variable.assign(value)
    return message, changed, fit(model, 1)


def _table(name="items", rows=9, width=4, optimizer="sgd", **options):
    return layers.TableConfig(
        name, rows, width, optimizer=optimizer, placement="servers", **options
    )


def _build(table):
    layer = layers.DistributedEmbedding(layers.FeatureConfig(table.name, table))
    layer.build()
    return layer


def bad_tables():
    """Tables that are refused, and one that is not, afterwards."""
    found = {}
    with tf_byteps.BytePSStrategy().scope():
        found["too large"] = base._message(lambda: _build(_table("vast", 1 << 40, 64)))
        found["other shapes"] = base._message(
            lambda: _build(_table("odd", 9 + 2 * tf_byteps.rank()))
        )
        found["optimizer"] = base._message(lambda: _table(optimizer="adam"))
        found["unknown"] = base._message(lambda: _table(optimizer="lion"))
        found["beta"] = base._message(lambda: _table(optimizer=optimizers.LazyAdam(beta_1=1.0)))
        found["momentum"] = base._message(
            lambda: _table(optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
        )
        found["clipped"] = base._message(
            lambda: _table(optimizer=keras.optimizers.SGD(0.1, clipnorm=1.0))
        )
        found["no optimizer"] = base._message(lambda: _table(optimizer=None))
        found["initializer"] = base._message(lambda: _build(_table(initializer="glorot_uniform")))
        layer = _build(_table(initializer="ones"))
        return found, layer.get_embedding_tables()["items"]


def same_names():
    """Two layers, each with a table of one name and another shape."""
    with tf_byteps.BytePSStrategy().scope():
        made_ones = [
            _build(_table("users", rows, width, initializer="ones"))
            for rows, width in ((6, 4), (9, 2))
        ]
        made_ones[0].set_embedding_tables({"users": np.full((6, 4), 2.0)})
        return [layer.get_embedding_tables()["users"] for layer in made_ones]
