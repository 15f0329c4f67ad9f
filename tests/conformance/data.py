"""Rows about input whose lengths no worker count divides. The strategy cuts the batches."""

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.sides import BATCH, STRATEGY, classes, compiled, numbers, row


def _adam():
    return keras.optimizers.Adam(0.05)


def _arrays(rows):
    return numbers(5, rows=rows), numbers(1, seed=1, rows=rows)


def _train(side, *args, model=None, **options):
    """Returns the weights and what the logs said."""
    model = model or compiled(side, _adam, metrics=["mae"])
    options = {"epochs": 2, "shuffle": False, "verbose": 0, **options}
    history = model.fit(*args, **options).history
    return [*model.get_weights(), *(history[key] for key in sorted(history))]


@row(STRATEGY)
def uneven_arrays(side):
    """The last batch has 5 rows: 3 and 2."""
    return _train(side, *_arrays(29), batch_size=BATCH)


@row(STRATEGY)
def one_row_left(side):
    """In the last step worker 1 has nothing."""
    return _train(side, *_arrays(25), batch_size=BATCH)


@row(STRATEGY)
def fewer_rows_than_a_batch(side):
    return _train(side, *_arrays(3), batch_size=BATCH)


@row(STRATEGY)
def uneven_dataset(side):
    return _train(side, tf.data.Dataset.from_tensor_slices(_arrays(29)).batch(BATCH))


@row(STRATEGY)
def one_row_left_in_dataset(side):
    return _train(side, tf.data.Dataset.from_tensor_slices(_arrays(25)).batch(BATCH))


@row(STRATEGY)
def dataset_of_unknown_length(side):
    dataset = tf.data.Dataset.from_tensor_slices(_arrays(29)).filter(lambda x, y: x[0] > -1.0)
    return _train(side, dataset.batch(BATCH))


@row(STRATEGY)
def repeated_dataset(side):
    dataset = tf.data.Dataset.from_tensor_slices(_arrays(29)).repeat().batch(7)
    return _train(side, dataset, steps_per_epoch=4)


@row(STRATEGY)
def dataset_shuffled_with_seed(side):
    """One order: to build a model Keras iterates once more under a strategy, which reshuffles."""
    dataset = tf.data.Dataset.from_tensor_slices(_arrays(29))
    dataset = dataset.shuffle(29, seed=4, reshuffle_each_iteration=False)
    return _train(side, dataset.batch(BATCH))


@row(STRATEGY)
def generator(side):
    x, y = _arrays(29)

    def batches():
        while True:
            for begin in range(0, 29, BATCH):
                yield x[begin : begin + BATCH], y[begin : begin + BATCH]

    return _train(side, batches(), steps_per_epoch=4)


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return tuple(array[index * BATCH : (index + 1) * BATCH] for array in _arrays(29))


@row(STRATEGY)
def py_dataset(side):
    return _train(side, Sequence())


@row(STRATEGY)
def uneven_with_accumulation(side):
    def optimizer():
        return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, clipnorm=0.3)

    return _train(side, *_arrays(29), batch_size=BATCH, model=compiled(side, optimizer))


@row(STRATEGY)
def uneven_steps_per_execution(side):
    model = compiled(side, _adam, steps_per_execution=3)
    return _train(side, *_arrays(25), batch_size=BATCH, model=model)


@row(STRATEGY)
def uneven_class_and_sample_weights(side):
    def build():
        return keras.Sequential([keras.Input([5]), keras.layers.Dense(3, activation="softmax")])

    loss = "sparse_categorical_crossentropy"
    model = compiled(side, _adam, loss, build, weighted_metrics=["accuracy"])
    x, y = numbers(5, rows=29), classes(3, rows=29)
    first = _train(side, x, y, batch_size=BATCH, model=model, class_weight={0: 1.0, 1: 0.2, 2: 3.0})
    weights = np.linspace(0.0, 2.0, 29).astype("float32")
    return first + _train(side, x, y, batch_size=BATCH, model=model, sample_weight=weights)


@row(STRATEGY)
def predictions_in_input_order(side):
    """`predict` returns all rows, from arrays and datasets; `predict_on_batch` what it is given."""
    model = compiled(side, _adam)
    x, _ = _arrays(29)
    results = [model.predict(x[:rows], batch_size=BATCH, verbose=0) for rows in (29, 25, 3)]
    assert [len(result) for result in results] == [29, 25, 3]
    dataset = tf.data.Dataset.from_tensor_slices(x).batch(BATCH)
    results.append(model.predict(dataset, verbose=0))
    results.append(model.predict_on_batch(x[:5]))
    return results


@row(STRATEGY)
def predictions_of_several_outputs(side):
    def build():
        x = keras.Input([5])
        return keras.Model(x, {"a": keras.layers.Dense(2)(x), "b": [x, keras.layers.Dense(1)(x)]})

    with side.scope():
        model = build()
    return tf.nest.flatten(model.predict(_arrays(29)[0], batch_size=BATCH, verbose=0))
