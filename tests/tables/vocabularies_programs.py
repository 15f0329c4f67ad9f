"""What the workers of test_vocabularies.py do."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests import freed as freed_weights
from tests.tables import by_hand, tables_programs as base
from tf_byteps.keras import layers, optimizers

keras.config.set_floatx("float64")

WIDTH, ROWS, BATCH = 4, 43, 10  # the last batch has 3 rows
FEATURES = {"user": "people", "films": "people", "shop": "shops", "tags": "tags"}
# Enough where rows of one table are on several workers, and rows of the other pass to other keys.
TWO_FEATURES = ("films", "shop")
OPTIMIZERS = {
    "Adagrad": lambda: keras.optimizers.Adagrad(0.2),
    "LazyAdam": lambda: optimizers.LazyAdam(0.05),
    "Adam": lambda: keras.optimizers.Adam(0.05),
    "SGD": lambda: keras.optimizers.SGD(0.1),
}


def data(number=0):
    """Keys of which some occur only at the beginning, and some once."""
    random = np.random.default_rng(5)
    many = random.integers(-(2**62), 2**62, 80)
    of_time = (np.arange(ROWS) // 4)[:, np.newaxis]
    films = many[(random.integers(0, 12, (ROWS, 3)) + 3 * of_time) % 80]
    inputs = {
        "user": many[random.zipf(1.4, ROWS) % 80],
        "films": films + number,
        "shop": random.integers(0, 25, (ROWS, 2)) * 10**15,
        "tags": many[random.integers(0, 30, (ROWS, 2))],
    }
    return inputs, np.cos(films.sum(axis=1, keepdims=True) % 7).astype("float64")


def vocabularies():
    """One whose blocks are on several workers, one in which keys lose rows, one of other width."""
    kinds = layers.DynamicVocabulary
    return {
        "people": (5000, WIDTH, "mean", kinds(min_count=3, expire_after_steps=4)),
        "shops": (22, WIDTH, "sum", kinds(when_full="evict_rarest", expire_after_steps=9)),
        "tags": (3000, 2, None, kinds()),
    }


def made(optimizer, of_tables=None, initializer=None, names=tuple(FEATURES)):
    """A compiled model with these features, and its layer."""
    keras.utils.set_random_seed(3)
    of_features = {name: FEATURES[name] for name in names}
    tables = {
        name: layers.TableConfig(
            name,
            rows,
            width,
            initializer or keras.initializers.RandomNormal(stddev=0.5, seed=7),
            optimizer=OPTIMIZERS[optimizer](),
            combiner=combiner,
            vocabulary=vocabulary,
        )
        for name, (rows, width, combiner, vocabulary) in (of_tables or vocabularies()).items()
        if name in of_features.values()
    }
    features = {
        name: layers.FeatureConfig(name, tables[table]) for name, table in of_features.items()
    }
    inputs = {
        name: keras.Input(values.shape[1:], dtype="int64", name=name)
        for name, values in data()[0].items()
        if name in names
    }
    layer = layers.DistributedEmbedding(features, name="tables")
    found = layer(inputs)
    model = base._head(inputs, [found[name] for name in inputs])
    model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=1)
    return model, layer


def fit(model, x=None, **options):
    """Trains, without changing the program's arrays."""
    (own, y), (kept, _) = data(), data()
    x = own if x is None else x
    x = {each.name: x[each.name] for each in model.inputs}
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, **options)
    assert all((own[name] == kept[name]).all() for name in own)
    return history.history.get("loss", [])  # none if a backup has all epochs


def tables_of(layer):
    return {name: tuple(each) for name, each in layer.get_embedding_tables().items()}


def trains(optimizer, steps_per_execution=1):
    """The losses, what unseen keys give, the tables, and this worker's rows."""
    with tf_byteps.BytePSStrategy().scope():
        model, layer = made(optimizer)
        model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=steps_per_execution)
        losses = fit(model, epochs=2)
        before = [each.numpy() for each in layer.weights]
        x, y = data(number=1)
        evaluated = model.evaluate(x, y, batch_size=7, verbose=0)
        predicted = model.predict(x, batch_size=21, verbose=0)
        changed = [
            bool((each.numpy() != old).any())
            for each, old in zip(layer.weights, before, strict=True)
        ]
    shapes = {each.path: tuple(each.shape) for each in layer.trainable_variables}
    return losses, evaluated, predicted, tables_of(layer), shapes, changed


def _numbered():
    """The tables and a number for each key, as a program without vocabularies has them."""
    sizes = {"people": 300, "shops": 40, "tags": 60}
    known = {name: {} for name in sizes}
    x, y = data()
    for name, values in x.items():
        numbers = known[FEATURES[name]]
        flat = [numbers.setdefault(key, len(numbers)) for key in values.ravel().tolist()]
        x[name] = np.reshape(flat, values.shape)
    return sizes, known, x, y


def plain(optimizer):
    """Keras's embeddings for keys that have been numbered before, and dense gradients."""
    sizes, known, x, y = _numbered()
    widths = {"people": WIDTH, "shops": WIDTH, "tags": 2}
    keras.utils.set_random_seed(3)
    of = {
        name: keras.layers.Embedding(rows, widths[name], "ones", name=f"{name}_rows")
        for name, rows in sizes.items()
    }
    inputs = {
        name: keras.Input(values.shape[1:], dtype="int64", name=name) for name, values in x.items()
    }
    found = [
        of["people"](inputs["user"]),
        keras.ops.mean(of["people"](inputs["films"]), 1),
        keras.ops.sum(of["shops"](inputs["shop"]), 1),
        of["tags"](inputs["tags"]),
    ]
    model = base._head(inputs, found)
    of_rows, of_dense = OPTIMIZERS[optimizer](), keras.optimizers.SGD(0.05)

    def apply(pairs):
        of_rows.apply(*_chosen(pairs, True))
        of_dense.apply(*_chosen(pairs, False))

    losses = by_hand.train(model, x, y, BATCH, apply)
    rows = {name: of[name].get_weights()[0] for name in sizes}
    tables = {
        name: {key: rows[name][number] for key, number in known[name].items()} for name in sizes
    }
    return losses, tables


def _chosen(pairs, are_tables):
    """Gradients and weights that are tables, or that are none."""
    chosen = [each for each in pairs if ("embeddings" in each[1].path) == are_tables]
    return [tf.convert_to_tensor(gradient) for gradient, _ in chosen], [w for _, w in chosen]


def counterpart(optimizer):
    """The same with vocabularies that every key is let into at once."""
    kinds = {
        name: (5000, width, combiner, layers.DynamicVocabulary())
        for name, (_, width, combiner, _) in vocabularies().items()
    }
    with tf_byteps.BytePSStrategy().scope():
        model, layer = made(optimizer, kinds, "ones")
        losses = fit(model, epochs=2)
    return losses, tables_of(layer)


def _backup(folder):
    return keras.callbacks.BackupAndRestore(f"{folder}/backup", delete_checkpoint=False)


def saves(folder):
    """Saves in all ways, then trains on. The numbers of workers that load may be others."""
    with tf_byteps.BytePSStrategy().scope():
        model, layer = made("Adagrad", names=TWO_FEATURES)
        callbacks = [keras.callbacks.ModelCheckpoint(f"{folder}/kept.keras"), _backup(folder)]
        fit(model, callbacks=callbacks)
        model.save(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        path = tf.train.Checkpoint(model=model).save(f"{folder}/checkpoint")
        tables = tables_of(layer)
        fit(model)
    return path, tables, tables_of(layer)


def loads(folder, kinds):
    """What was saved, from these kinds of files, and after training on.

    One model reads the files that have no model, one after the other: each time it has been trained
    with other data.
    """
    found, path = [], f"{folder}/checkpoint-1"
    restoring = {
        "weights": lambda model: model.load_weights(f"{folder}/model.weights.h5"),
        "checkpoint": lambda model: tf.train.Checkpoint(model=model).restore(path),
        "backup": lambda model: fit(model, callbacks=[_backup(folder)]),
    }
    with tf_byteps.BytePSStrategy().scope():
        for name in (kind for kind in kinds if kind not in restoring):
            model = keras.models.load_model(f"{folder}/{name}")
            layer = model.get_layer("tables")
            before = tables_of(layer)
            fit(model, initial_epoch=1, epochs=2)  # the backup's first epoch is 1
            found.append((before, tables_of(layer)))
        model, layer = made("Adagrad", names=TWO_FEATURES)
        for restore in (restoring[kind] for kind in kinds if kind in restoring):
            fit(model, data(number=3)[0])
            restore(model)
            before = tables_of(layer)
            fit(model, initial_epoch=1, epochs=2)
            found.append((before, tables_of(layer)))
    return found


def sets():
    """Weights and tables that are set back, or in another model."""
    with tf_byteps.BytePSStrategy().scope():
        model, layer = made("SGD", names=TWO_FEATURES)
        fit(model)
        weights, tables = model.get_weights(), layer.get_embedding_tables()
        fit(model, data(number=3)[0])
        model.set_weights(weights)
        found = [tables_of(layer)]
        losses = fit(model)
        other, its_layer = made("SGD", names=TWO_FEATURES)
        its_layer.set_embedding_tables(tables)
        found.append(tables_of(its_layer))
        its_layer.set_embedding_tables({name: each[:2] for name, each in tables.items()})
        found.append(tables_of(its_layer))
        model.set_weights(weights)
        again = fit(model)
    return tuple(map(tuple, [tables[name] for name in tables])), found, losses, again


def begins_anew():
    """A row that another key gets: with the numbers of a row that nobody had."""
    table = {"shops": (1, 2, "sum", layers.DynamicVocabulary(when_full="evict_oldest"))}

    def rows_after(keys):
        with tf_byteps.BytePSStrategy().scope():
            config = layers.TableConfig(
                "shops", 1, 2, "ones", keras.optimizers.Adagrad(0.1), vocabulary=table["shops"][3]
            )
            layer = layers.DistributedEmbedding(layers.FeatureConfig("shop", config))
            ids = keras.Input([1], dtype="int64")
            model = keras.Model(ids, keras.layers.Lambda(lambda x: x[:, :1])(layer(ids)))
            model.compile("sgd", "mse")
            for key in keys:
                model.fit(np.array([[key]]), np.array([[5.0]]), verbose=0)
            return tuple(layer.get_embedding_tables()["shops"])

    return rows_after([1, 1, 1, 2]), rows_after([2])


def mixed():
    """In mixed precision rows stay float32."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        with tf_byteps.BytePSStrategy().scope():
            model, layer = made("Adagrad", names=TWO_FEATURES)
            losses = fit(model, epochs=2)
            outputs = layer({name: data()[0][name][:2] for name in TWO_FEATURES})
            return losses, {each.dtype.name for each in outputs.values()}, tables_of(layer)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def freed():
    """Weights of a model without and with training that are there when the model is not."""

    def make(trains):
        model, _ = made("Adagrad", names=TWO_FEATURES)
        if trains:
            fit(model)
        return model

    with tf_byteps.BytePSStrategy().scope():
        return [freed_weights.weights_after(make, trains) for trains in (False, True)]


def full():
    """A table with fewer rows than the keys of a step, and what it is then."""
    table = {**vocabularies(), "shops": (4, WIDTH, "sum", layers.DynamicVocabulary())}
    with tf_byteps.BytePSStrategy().scope():
        model, layer = made("Adagrad", table, names=TWO_FEATURES)
        x, _ = data()
        few = {name: x[name] * 0 for name in TWO_FEATURES}
        fit(model, few)
        before = layer.get_weights()
        message = base._message(lambda: fit(model, {**few, "shop": x["shop"]}))
        rows, keys = [], []
        for weights, old in zip(layer.weights, before, strict=True):
            if "keys_of_4" in weights.path:
                keys.append(bool((weights.numpy()[:-1, 0] == old[:-1, 0]).all()))
            if "/rows_of_4" in weights.path:
                rows.append(bool((weights.numpy() == old).all()))
        return message, rows, keys


def refused():
    """The messages of what does not go with vocabularies."""
    vocabulary, found = layers.DynamicVocabulary(), {}

    def table(**arguments):
        given = {"optimizer": "adagrad", "vocabulary": vocabulary, **arguments}
        return layers.TableConfig("shops", 4, 2, **given)

    for name, arguments in {
        "servers": {"placement": "servers"},
        "no optimizer": {"optimizer": None},
        "initializer": {"initializer": "orthogonal"},
        "kind": {"vocabulary": 3},
    }.items():
        try:
            table(**arguments)
        except (ValueError, TypeError) as error:
            found[name] = str(error)
    with tf_byteps.BytePSStrategy().scope():
        layer = layers.DistributedEmbedding(layers.FeatureConfig("shop", table()), name="shops")
        ids = keras.Input([], dtype="int64")
        model = keras.Model(ids, layer(ids))
        found["floats"] = base._message(lambda: layer(np.ones([2], "float32")))
        found["strings"] = base._message(lambda: layer(tf.constant(["a"])))
        found["compiled"] = base._message(
            lambda: tf.function(layer, jit_compile=True)(tf.constant([1], tf.int64))
        )
        for name, given in {
            "array": np.ones([4, 2]),
            "shapes": (np.arange(3), np.ones([2, 2])),
            "twice": (np.array([1, 1]), np.ones([2, 2])),
            "many": (np.arange(5), np.ones([5, 2])),
        }.items():
            found[name] = base._message(
                lambda given=given: layer.set_embedding_tables({"shops": given})
            )
        found["nothing"] = base._message(lambda: layer.set_embedding_tables({}))
        with tempfile.TemporaryDirectory() as folder:
            found["export"] = base._message(lambda: model.export(f"{folder}/x", verbose=False))
    return found
