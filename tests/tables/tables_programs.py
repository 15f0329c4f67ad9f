"""What the workers of test_tables.py do."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests import freed as freed_weights
from tf_byteps import _engine
from tf_byteps.keras import layers, optimizers

keras.config.set_floatx("float64")

_WORDS, _USERS, _WIDTH, _ROWS, _BATCH = 50, 7, 4, 43, 10  # the last batch has 3 rows
OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.05),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "RowWiseAdagrad": lambda: optimizers.RowWiseAdagrad(0.1),
    "clipped": lambda: keras.optimizers.SGD(0.05, global_clipnorm=1.0),
    "accumulating": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
}


def _data():
    random = np.random.default_rng(5)
    words = random.zipf(1.3, (_ROWS, 6)) % _WORDS
    inputs = {
        "title": words.astype("int64"),
        "body": random.integers(0, _WORDS, (_ROWS, 3)),
        "user": random.integers(0, _USERS, _ROWS),
        "shop": random.integers(0, 3, (_ROWS, 2)),
    }
    y = np.cos(words.sum(axis=1, keepdims=True)).astype("float64")
    return inputs, y, random.uniform(0.5, 2, _ROWS).astype("float64")


def _inputs():
    return {
        name: keras.Input(values.shape[1:], dtype=str(values.dtype), name=name)
        for name, values in _data()[0].items()
    }


def _table_model(combiner):
    """Features of one table, tables of two widths, one of fewer rows than workers."""
    words = layers.TableConfig("words", _WORDS, _WIDTH, "uniform", combiner=combiner)
    users = layers.TableConfig("users", _USERS, _WIDTH, "uniform")
    shops = layers.TableConfig("shops", 2 + 1, 2, "uniform", combiner=None)
    features = {
        "title": layers.FeatureConfig("title", words),
        "body": layers.FeatureConfig("body", words),
        "user": layers.FeatureConfig("user", users),
        "shop": layers.FeatureConfig("shop", shops),
    }
    inputs = _inputs()
    ids = {name: inputs[name] for name in features}
    layer = layers.DistributedEmbedding(features, name="tables")
    found = layer(ids)
    return _head(inputs, [found[name] for name in features]), layer


def _small_model():
    """One feature and its table."""
    words = layers.TableConfig("words", _WORDS, _WIDTH)
    layer = layers.DistributedEmbedding(layers.FeatureConfig("title", words), name="tables")
    ids = keras.Input([6], dtype="int64")
    return keras.Model(ids, keras.layers.Dense(1)(layer(ids)))


def _fit_small(model, x):
    return model.fit(x["title"], _data()[1], batch_size=_BATCH, shuffle=False, verbose=0)


def _plain_model(combiner):
    words = keras.layers.Embedding(_WORDS, _WIDTH, name="words")
    users = keras.layers.Embedding(_USERS, _WIDTH, name="users")
    shops = keras.layers.Embedding(3, 2, name="shops")
    inputs = _inputs()
    combine = {
        "sum": lambda x: keras.ops.sum(x, 1),
        "mean": lambda x: keras.ops.mean(x, 1),
        None: lambda x: x,
    }[combiner]
    found = [combine(words(inputs[name])) for name in ("title", "body")]
    return _head(inputs, [*found, users(inputs["user"]), shops(inputs["shop"])])


def _head(inputs, found):
    flat = [keras.layers.Flatten()(each) for each in found]
    hidden = keras.layers.Dense(5, "tanh")(keras.layers.Concatenate()(flat))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def _made(make, combiner, optimizer):
    keras.utils.set_random_seed(3)
    made = make(combiner)
    model, layer = made if isinstance(made, tuple) else (made, None)
    model.compile(OPTIMIZERS[optimizer](), "mse", metrics=["mae"])
    random = np.random.default_rng(9)
    for dense in model.layers:
        if isinstance(dense, keras.layers.Dense):
            dense.set_weights([random.normal(size=w.shape) for w in dense.get_weights()])
    values = {
        name: random.normal(size=shape).astype("float64")
        for name, shape in {"words": (50, 4), "users": (7, 4), "shops": (3, 2)}.items()
    }
    if layer is None:
        for name, value in values.items():
            model.get_layer(name).set_weights([value])
    else:
        layer.set_embedding_tables(values)
    return model, layer


def _dense(optimizer):
    """The optimizer with dense gradients, in which the occurrences of a row are added up."""

    class Dense(type(optimizer)):
        def apply(self, grads, trainable_variables=None):
            super().apply([tf.convert_to_tensor(each) for each in grads], trainable_variables)

    return Dense.from_config(optimizer.get_config())


def _trained(make, combiner, optimizer):
    x, y, weights = _data()
    model, layer = _made(make, combiner, optimizer)
    if layer is None:
        model.compile(_dense(model.optimizer), "mse", metrics=["mae"])
    history = model.fit(
        x, y, sample_weight=weights, epochs=2, batch_size=_BATCH, shuffle=False, verbose=0
    )
    evaluated = model.evaluate(x, y, batch_size=7, verbose=0)
    predicted = model.predict(x, batch_size=21, verbose=0)
    return model, layer, [history.history["loss"], evaluated, predicted]


def freed():
    """Weights of a model without and with training that are there when the model is not."""

    def make(trains):
        model, _ = _made(_table_model, "sum", "SGD")
        if trains:
            x, y, _ = _data()
            model.fit(x, y, batch_size=_BATCH, verbose=0)
        return model

    with tf_byteps.BytePSStrategy().scope():
        return [freed_weights.weights_after(make, trains) for trains in (False, True)]


def plain(combiner, optimizer):
    """One process, Keras's own layers."""
    model, _, numbers = _trained(_plain_model, combiner, optimizer)
    tables = {name: model.get_layer(name).get_weights()[0] for name in ("words", "users", "shops")}
    return tables, numbers


def spread(combiner, optimizer):
    """The same training with tables that the workers share."""
    with tf_byteps.BytePSStrategy().scope():
        model, layer, numbers = _trained(_table_model, combiner, optimizer)
    rows = {each.path: tuple(each.shape) for each in layer.trainable_variables}
    return layer.get_embedding_tables(), numbers, rows


def _fit(model, **options):
    x, y, _ = _data()
    return model.fit(x, y, batch_size=_BATCH, shuffle=False, verbose=0, **options)


def _backup(folder):
    return keras.callbacks.BackupAndRestore(f"{folder}/backup", delete_checkpoint=False)


def saves(folder):
    """Saves in all ways, then trains on. The numbers of workers that load may be others."""
    with tf_byteps.BytePSStrategy().scope():
        model, layer = _made(_table_model, "sum", "RowWiseAdagrad")
        callbacks = [keras.callbacks.ModelCheckpoint(f"{folder}/kept.keras"), _backup(folder)]
        _fit(model, callbacks=callbacks)
        model.save(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        path = tf.train.Checkpoint(model=model).save(f"{folder}/checkpoint")
        tables = layer.get_embedding_tables()
        _fit(model)
    return path, tables, layer.get_embedding_tables()


def loads(folder, path, kinds):
    """What was saved, from these kinds of files, and after training on.

    One model reads the files that have no model, one after the other.
    """
    found = []
    restoring = {
        "weights": lambda model: model.load_weights(f"{folder}/model.weights.h5"),
        "checkpoint": lambda model: tf.train.Checkpoint(model=model).restore(path),
        "backup": lambda model: _fit(model, callbacks=[_backup(folder)]),
    }
    with tf_byteps.BytePSStrategy().scope():
        for name in (kind for kind in kinds if kind not in restoring):
            model = keras.models.load_model(f"{folder}/{name}")
            before = model.get_layer("tables").get_embedding_tables()
            _fit(model, initial_epoch=1, epochs=2)  # the backup's first epoch is 1
            found.append((before, model.get_layer("tables").get_embedding_tables()))
        model, layer = _made(_table_model, "sum", "RowWiseAdagrad")
        model.optimizer.build(model.trainable_variables)
        for restore in (restoring[kind] for kind in kinds if kind in restoring):
            layer.set_embedding_tables(
                {name: 0 * table for name, table in layer.get_embedding_tables().items()}
            )
            restore(model)
            before = layer.get_embedding_tables()
            _fit(model, initial_epoch=1, epochs=2)  # the backup's first epoch is 1
            found.append((before, layer.get_embedding_tables()))
    return found


def loop(is_plain, is_eager=False):
    """A loop of the program's own in strategy.run."""
    x, y, _ = _data()
    strategy = tf_byteps.BytePSStrategy()
    with strategy.scope():
        model, layer = _made(_plain_model if is_plain else _table_model, "sum", "SGD")
        batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(12, drop_remainder=True)
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)

        def step(batch):
            inputs, targets = batch
            with tf.GradientTape() as tape:
                errors = tf.square(model(inputs, training=True) - targets)
                loss = tf.nn.compute_average_loss(tf.reduce_mean(errors, 1), global_batch_size=12)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

        def run(batch):
            return strategy.run(step, (batch,))

        run = run if is_eager else tf.function(run)
        losses = [
            float(strategy.reduce("SUM", run(batch), None))
            for batch in strategy.experimental_distribute_dataset(batches)
        ]
    if is_plain:
        return losses, {"words": model.get_layer("words").get_weights()[0]}
    return losses, layer.get_embedding_tables()


def bytes_of_a_lookup():
    """What a worker sends and receives when rows are looked up, and what it should."""
    with tf_byteps.BytePSStrategy().scope():
        table = layers.TableConfig("words", _WORDS, _WIDTH)
        layer = layers.DistributedEmbedding(layers.FeatureConfig("word", table))
        layer.build()
        size, mine = tf_byteps.size(), tf_byteps.rank()
        asked = [np.arange(0, _WORDS, rank + 2) for rank in range(size)]
        before = _engine.worker_counters()
        layer(tf.constant(np.repeat(asked[mine], 3)))
        after = _engine.worker_counters()
    sent = received = 2 * 8 * size  # of two exchanges the numbers of rows
    for other in set(range(size)) - {mine}:
        to, by = np.sum(asked[mine] % size == other), np.sum(asked[other] % size == mine)
        sent += 4 * to + 8 * _WIDTH * by
        received += 4 * by + 8 * _WIDTH * to
    moved = [after[name] - before[name] for name in ("pushed_bytes", "received_bytes")]
    return moved, [int(sent), int(received)]


def uncompiled():
    """Tables that a checkpoint of a model without an optimizer gives back."""
    words = layers.TableConfig("words", 4, 2)
    layer = layers.DistributedEmbedding(layers.FeatureConfig("word", words))
    ids = keras.Input([], dtype="int64")
    model = keras.Model(ids, layer(ids))
    values = np.arange(8.0).reshape(4, 2)
    layer.set_embedding_tables({"words": values})
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(model=model).save(f"{folder}/checkpoint")
        layer.set_embedding_tables({"words": 0 * values})
        tf.train.Checkpoint(model=model).restore(path)
    return values, layer.get_embedding_tables()["words"]


def _message(function):
    try:
        function()
    except (ValueError, NotImplementedError, RuntimeError, tf.errors.OpError) as error:
        return str(error)
    return "no error"


def refused():
    """The messages of what does not go with spread tables."""
    found, x = {}, _data()[0]
    with tf_byteps.BytePSStrategy().scope():
        model = _small_model()
        for optimizer in ("clipped", "accumulating"):
            model.compile(OPTIMIZERS[optimizer](), "mse")
            found[optimizer] = _message(lambda model=model: _fit_small(model, x))
    with tf_byteps.BytePSStrategy(local_steps=2).scope():
        model = _small_model()
        model.compile(OPTIMIZERS["SGD"](), "mse")
    found["local_steps"] = _message(lambda: _fit_small(model, x))
    found["no strategy"] = _message(_small_model)
    with tempfile.TemporaryDirectory() as folder:
        found["export"] = _message(lambda: model.export(f"{folder}/exported", verbose=False))
    return found


def out_of_range(index):
    """An index on one worker alone that no table has."""
    with tf_byteps.BytePSStrategy().scope():
        model = _small_model()
        model.compile(OPTIMIZERS["SGD"](), "mse")
    x = _data()[0]
    x["title"][3] = index
    return _message(lambda: _fit_small(model, x))


def inputs():
    """What one process gives for ragged and sparse inputs, and weights."""
    words = layers.TableConfig("words", 4, 2, combiner="mean")
    layer = layers.DistributedEmbedding(layers.FeatureConfig("word", words))
    layer.build()
    layer.set_embedding_tables({"words": np.arange(8.0).reshape(4, 2)})
    ragged = tf.ragged.constant([[1, 3], [], [2]], dtype="int64")
    dense = tf.constant([[1, 3, 0], [0, 0, 0], [2, 0, 0]], "int64")
    mask = tf.constant([[1.0, 1, 0], [0, 0, 0], [1, 0, 0]], "float64")
    sparse = ragged.with_values(ragged.values).to_sparse()
    return [layer(ragged).numpy(), layer(sparse).numpy(), layer(dense, mask).numpy()]
