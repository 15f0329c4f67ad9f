"""What the workers of test_bad_input.py do: nothing that they have is lost."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests.tables import own_optimizers_programs as base
from tf_byteps.keras import layers


def _after(change, optimizer, own):
    """The message of a training whose second batch is bad on worker 0, and what has changed."""
    with tf_byteps.BytePSStrategy().scope():
        model = base.made(base._with_tables, own, optimizer)
        x, y = base.data()
        good = {name: values[:10] for name, values in x.items()}, y[:10]
        model.fit(*good, batch_size=10, shuffle=False, verbose=0)
        layer = model.get_layer("tables")
        before = [weight.copy() for weight in layer.get_weights()]
        x, y = {name: values.copy() for name, values in x.items()}, y.copy()
        change(x, y)
        kept = {name: values.copy() for name, values in x.items()}, y.copy()
        message = base.base._message(
            lambda: model.fit(x, y, batch_size=10, shuffle=False, verbose=0)
        )
        assert all((x[name] == kept[0][name]).all() for name in x)
        np.testing.assert_array_equal(y, kept[1])
        changed = [
            bool(np.any(old != new)) for old, new in zip(before, layer.get_weights(), strict=True)
        ]
        finite = all(np.isfinite(weight).all() for weight in layer.get_weights())
        return message, changed, finite


def index(value):
    """In the first batch, so that no step is made."""

    def change(x, y):
        x["words"][3] = value

    return _after(change, "SGD", "Adagrad")


def target(own):
    """A target that is not a number: so is the loss, and with it all gradients."""

    def change(x, y):
        y[3] = np.nan

    return _after(change, "SGD", own)


def same_names():
    """Two layers, each with a table of the same name and another shape."""
    numbers = np.arange(24) % 6
    with tf_byteps.BytePSStrategy().scope():
        found, made = [], {}
        ids = keras.Input([1], dtype="int64")
        for name, (rows, width) in {"first": (6, 4), "second": (9, 2)}.items():
            table = layers.TableConfig("users", rows, width, "ones", optimizer="sgd")
            made[name] = layers.DistributedEmbedding(layers.FeatureConfig("user", table), name=name)
            found.append(made[name](ids))
        out = keras.layers.Dense(1, kernel_initializer="ones")
        model = keras.Model(ids, out(keras.layers.Concatenate()(found)))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        x, y = numbers.reshape(-1, 1), np.cos(numbers).reshape(-1, 1)
        model.fit(x, y, batch_size=6, shuffle=False, verbose=0)
        assert (x[:, 0] == numbers).all()
        return {name: layer.get_embedding_tables()["users"] for name, layer in made.items()}


def one_layer():
    """One layer with two tables of one name."""
    tables = [layers.TableConfig("users", rows, 4) for rows in (6, 9)]
    features = [layers.FeatureConfig(f"user_{table.shape[0]}", table) for table in tables]
    return base.base._message(lambda: layers.DistributedEmbedding(features))


def loads_other_shape(folder):
    """A file whose table has fewer rows, in all ways of reading it."""
    with tf_byteps.BytePSStrategy().scope():
        models = []
        for rows in (6, 9):
            table = layers.TableConfig("users", rows, 4, optimizer="adagrad")
            layer = layers.DistributedEmbedding(layers.FeatureConfig("user", table), name="users")
            ids = keras.Input([1], dtype="int64")
            models.append(keras.Model(ids, keras.layers.Dense(1)(layer(ids))))
            models[-1].compile("sgd", "mse")
            models[-1].optimizer.build(models[-1].trainable_variables)
        models[0].save_weights(f"{folder}/small.weights.h5")
        path = tf.train.Checkpoint(model=models[0]).save(f"{folder}/small")
        before = models[1].get_layer("users").get_embedding_tables()["users"]
        found = [
            base.base._message(lambda: models[1].load_weights(f"{folder}/small.weights.h5")),
            base.base._message(lambda: tf.train.Checkpoint(model=models[1]).restore(path)),
        ]
        after = models[1].get_layer("users").get_embedding_tables()["users"]
        return found, bool((before == after).all())
