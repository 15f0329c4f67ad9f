"""Rows about input whose lengths no worker count divides. The strategy cuts the batches."""

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.sides import BATCH, STRATEGY, classes, compiled, numbers, row


def _adam():
    return keras.optimizers.Adam(0.05)


def _arrays(rows):
    return numbers(5, rows=rows), numbers(1, seed=1, rows=rows)


def _not_built():
    return keras.Sequential([keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)])


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
def shuffled_arrays(side):
    """Keras's own shuffle of arrays, which follows the user's seed, in two trainings."""
    first = _train(side, *_arrays(29), batch_size=BATCH, shuffle=True, epochs=3)
    return first + _train(side, *_arrays(29), batch_size=BATCH, shuffle="batch", epochs=2)


@row(STRATEGY)
def one_row_left(side):
    """In the last step worker 1 has nothing."""
    return _train(side, *_arrays(25), batch_size=BATCH)


@row(STRATEGY)
def all_lengths_modulo_the_batch(side):
    """With 2 workers or 3, each in turn has more rows, fewer, or none."""
    model = compiled(side, _adam, metrics=["mae"])
    results = []
    for rows in range(2 * BATCH + 1, 3 * BATCH):
        results += _train(side, *_arrays(rows), batch_size=BATCH, model=model, epochs=1)
    return results


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
def arrays_in_the_default_order(side):
    """`fit` shuffles, unless told otherwise: as a seed of the user's has it in one process."""
    keras.utils.set_random_seed(6)
    return _train(side, *_arrays(29), batch_size=BATCH, shuffle=True, epochs=3)


@row(STRATEGY)
def two_trainings_in_the_default_order(side):
    keras.utils.set_random_seed(6)
    model = compiled(side, _adam, metrics=["mae"])
    validation = {"validation_split": 0.2, "batch_size": BATCH, "shuffle": True}
    first = _train(side, *_arrays(29), model=model, **validation)
    return first + _train(side, *_arrays(25), model=model, **validation)


@row(STRATEGY)
def datasets_shuffled_without_seed(side):
    """Two shuffles, of which each has an order of its own; zipped, and shuffled again."""
    keras.utils.set_random_seed(6)
    x, y = (tf.data.Dataset.from_tensor_slices(rows).shuffle(29) for rows in _arrays(29))
    dataset = tf.data.Dataset.zip((x, y)).shuffle(9).batch(BATCH)
    return _train(side, dataset, epochs=3)


@row(STRATEGY)
def random_numbers_in_the_input(side):
    """Drawn in `map`, from the user's seed."""
    keras.utils.set_random_seed(6)
    dataset = tf.data.Dataset.from_tensor_slices(_arrays(29))
    dataset = dataset.map(lambda x, y: (x + tf.random.normal([5]), y)).batch(BATCH)
    return _train(side, dataset)


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
    """Every epoch has the order that it has in the single process; so has validation."""
    dataset = tf.data.Dataset.from_tensor_slices(_arrays(29)).shuffle(29, seed=4).batch(BATCH)
    held_out = tf.data.Dataset.from_tensor_slices(_arrays(29)).shuffle(29, seed=5).take(8).batch(4)
    model = compiled(side, _adam, build=_not_built, metrics=["mae"])
    return _train(side, dataset, model=model, validation_data=held_out, epochs=3)


def _batches(step=0):
    """For ever, without a batch twice in a row. Each has the same number of columns."""
    x, y = _arrays(29)
    while True:
        begin = step * BATCH % 32
        yield x[begin : begin + BATCH] + 0.1 * (step // 4), y[begin : begin + BATCH]
        step += 1


@row(STRATEGY)
def generator(side):
    """Every batch is trained on, none is used up to build the model."""
    return _train(side, _batches(), steps_per_epoch=4)


@row(STRATEGY)
def generator_for_model_without_shapes(side):
    """As well if the model, its metrics and its loss are not built yet; and for evaluation."""
    model = compiled(side, _adam, build=_not_built, metrics=["mae", keras.metrics.R2Score()])
    evaluated = model.evaluate(_batches(2), steps=3, verbose=0)
    held_out = {"validation_data": _batches(1), "validation_steps": 2}
    return [evaluated, *_train(side, _batches(), model=model, steps_per_epoch=4, **held_out)]


@row(STRATEGY)
def generator_of_changing_lengths(side):
    """Lengths of sequences, which the input does not tell; the model is built already."""

    def sequences():
        for step in range(8):
            rows = classes(7, 3 + step % 3, seed=step, rows=BATCH)
            yield rows, rows.mean(axis=1, keepdims=True).astype("float32")

    def build():
        layers = [keras.layers.Embedding(7, 3), keras.layers.GlobalAveragePooling1D()]
        return keras.Sequential(
            [keras.Input([None], dtype="int32"), *layers, keras.layers.Dense(1)]
        )

    keras.utils.set_random_seed(3)
    model = compiled(side, keras.optimizers.SGD(0.1), build=build)
    return _train(side, sequences(), model=model, steps_per_epoch=4)


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
