"""What test_other_inputs.py runs on each worker: `Model.fit` on input that Python makes.

With no cluster variable the same functions run in one process. `KERAS_BACKEND` says on what.
"""

import random

import keras
import numpy as np

import tf_byteps

if keras.backend.backend() == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)
keras.config.set_floatx("float64")

_ROWS, _BATCH = 53, 12  # the last batch has 5 rows


def _data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(_ROWS, 6))
    return x, np.argmax(x[:, :3], axis=1)


def _model(**input_options):
    with tf_byteps.BytePSStrategy().scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((6,), **input_options), keras.layers.Dense(5), keras.layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model


def _facts(model, history, **others):
    return {
        "history": history.history,
        "weights": [np.asarray(each) for each in model.get_weights()],
        **others,
    }


def _trained(make):
    """Facts about a training, of inputs that a function of arrays and of `shuffles` makes."""
    x, y = _data()
    model = _model()
    history = model.fit(make(x, y, True), validation_data=make(x, y, False), epochs=2, verbose=0)
    prediction = model.predict(make(x, y, False), verbose=0)
    evaluation = model.evaluate(make(x, y, False), verbose=0)
    return _facts(model, history, evaluation=evaluation, prediction=np.asarray(prediction))


class _Batches(keras.utils.PyDataset):
    """Batches, and in which order they were read."""

    def __init__(self, x, y):
        super().__init__()
        self._x, self._y, self.read = x, y, []

    def __len__(self):
        return -(-len(self._x) // _BATCH)

    def __getitem__(self, index):
        self.read.append(index)
        rows = slice(index * _BATCH, index * _BATCH + _BATCH)
        return self._x[rows], self._y[rows]


def shuffled_by_keras():
    """A `PyDataset`, which Keras shuffles by Python's random numbers, that differ."""
    batches = _Batches(*_data())
    model = _model()  # and there are ranks with its strategy
    random.seed(7 if tf_byteps.rank() == 0 else None)
    history = model.fit(batches, epochs=3, verbose=0)
    return {"facts": _facts(model, history), "read": batches.read}


def distributed_dataset():
    """A dataset that the program has distributed itself, for training and validation at once."""
    import tensorflow as tf

    from tf_byteps.strategy.input import position

    x, y = _data()
    model = _model()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(_BATCH)
    dataset = model.distribute_strategy.experimental_distribute_dataset(dataset)
    begun = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: begun.append(position.of(model, False).iterations)
    )
    options = {"callbacks": [note], "epochs": 3, "verbose": 0}
    history = model.fit(dataset, validation_data=dataset, **options)
    prediction = np.asarray(model.predict(dataset, verbose=0))
    return {"facts": _facts(model, history, prediction=prediction), "begun": begun}


def other_rows():
    """Batches that workers draw by generators of their own, which nobody can make agree."""
    rng = np.random.default_rng(tf_byteps.rank())
    batches = _Batches(rng.normal(size=(_ROWS, 6)), _data()[1])
    try:
        _model().fit(batches, verbose=0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def torch_loader():
    """A `DataLoader` of PyTorch, which shuffles by random numbers that differ."""
    import torch

    tf_byteps.BytePSStrategy()  # there are ranks with it
    if tf_byteps.rank() == 0:
        torch.manual_seed(7)
    else:
        torch.seed()

    def make(x, y, shuffles):
        dataset = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        return torch.utils.data.DataLoader(dataset, batch_size=_BATCH, shuffle=shuffles)

    return _trained(make)


def grain_dataset():
    """A `MapDataset` of Grain."""
    import grain

    def make(x, y, shuffles):
        dataset = grain.MapDataset.source(list(zip(x, y, strict=True)))
        return (dataset.shuffle(seed=3) if shuffles else dataset).batch(_BATCH)

    return _trained(make)


def grain_iterator():
    """An `IterDataset` of Grain, of which nobody says how long it is."""
    import grain

    def make(x, y, shuffles):
        dataset = grain.MapDataset.source(list(zip(x, y, strict=True)))
        return (dataset.shuffle(seed=3) if shuffles else dataset).to_iter_dataset().batch(_BATCH)

    return _trained(make)


def grain_loader():
    """A `DataLoader` of Grain."""
    import grain

    def make(x, y, shuffles):
        return grain.DataLoader(
            data_source=list(zip(x, y, strict=True)),
            sampler=grain.samplers.IndexSampler(len(x), num_epochs=1, shuffle=shuffles, seed=3),
            operations=[grain.transforms.Batch(_BATCH)],
        )

    return _trained(make)


def sparse_matrix():
    """A matrix of SciPy."""
    import scipy.sparse

    x, y = _data()
    matrix = scipy.sparse.csr_matrix(np.where(np.abs(x) < 0.7, 0, x))
    model = _model(sparse=True)
    history = model.fit(
        matrix, y, batch_size=_BATCH, shuffle=False, validation_data=(matrix, y), verbose=0
    )
    prediction = model.predict(matrix, verbose=0)
    evaluation = model.evaluate(matrix, y, verbose=0)
    return _facts(model, history, evaluation=evaluation, prediction=np.asarray(prediction))
