"""What the workers of test_user_arrays.py do, and the single process.

Every row of an array takes 64 bytes or a multiple, in memory that begins at one: then pieces of
batches could be views of it.
"""

import contextlib
import os
import tempfile

import h5py
import keras
import numpy as np
import tensorflow as tf
from gpu_in_sight import gpu_in_sight
from user_arrays import Watch, aligned, fingerprint

import tf_byteps as bps

_ROWS, _BATCH, _WIDTH = 58, 16, 64
_EPOCHS = 2


class Cubic(keras.Model):
    """Computes with its input, whatever it is, element by element: as a program may."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(_WIDTH)

    def call(self, x):
        if isinstance(x, tf.SparseTensor):
            x = tf.sparse.to_dense(x.with_values(_cube(x.values)))
        elif x.dtype == tf.string:
            x = tf.strings.to_number(tf.strings.lower(x), keras.config.floatx())
        else:
            x = _cube(x)
        if x.shape.rank == 3:  # was ragged
            x = tf.reduce_sum(x, 1)
        return self.dense(tf.ensure_shape(tf.cast(x, keras.config.floatx()), [None, _WIDTH]))


def _cube(x):
    return (x + x) * x * x


class Given:
    """Arrays of a program: x of a kind, and y to learn."""

    def __init__(self, kind, folder):
        dtype = {"float64": "float64"}.get(kind, "float32")
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)
        random = np.random.RandomState(0)
        self.x = aligned(random.uniform(0, 1, [_ROWS, _WIDTH]).astype(dtype))
        self.y = aligned(random.normal(size=[_ROWS, _WIDTH]).astype(dtype))
        if kind in ("uint8", "int64"):
            self.x = aligned(random.randint(0, 3, [_ROWS, _WIDTH]).astype(kind))
        if kind == "string":
            self.x = random.randint(0, 3, [_ROWS, _WIDTH]).astype("str").astype(object)
        if kind.startswith("mapped"):
            path = os.path.join(folder, "y.npy")
            np.save(path, self.y)
            self.y = np.load(path, mmap_mode=kind.removeprefix("mapped "))
        self.watch = Watch()
        self.watch.add(kind, self.x, self.y)
        if kind == "hdf5":
            path = os.path.join(folder, "xy.h5")
            with h5py.File(path, "w") as file:
                file["x"], file["y"] = self.x, self.y
            file = h5py.File(path, "r")
            self.x, self.y = file["x"], file["y"]
            self.watch.add("file", np.memmap(path, mode="r"))

    def batch(self, index):
        rows = slice(index * _BATCH, (index + 1) * _BATCH)
        return self.x[rows], self.y[rows]

    def batches(self):
        return (self.batch(index) for index in range(_steps()))


def _steps():
    return -(-_ROWS // _BATCH)


class Batches(keras.utils.PyDataset):
    def __init__(self, given, **options):
        super().__init__(**options)
        self.given = given

    def __len__(self):
        return _steps()

    def __getitem__(self, index):
        return self.given.batch(index)


def _signature(given):
    return tuple(tf.TensorSpec([None, _WIDTH], array.dtype) for array in (given.x, given.y))


def _for_ever(given):
    while True:
        yield from given.batches()


def _from_generator(given):
    return tf.data.Dataset.from_generator(given.batches, output_signature=_signature(given))


def _from_numpy(given):
    """Batches that a function in NumPy looks up."""
    types = [tf.as_dtype(given.x.dtype), tf.as_dtype(given.y.dtype)]

    def batch(index):
        x, y = tf.numpy_function(given.batch, [index], types)
        return tf.ensure_shape(x, [None, _WIDTH]), tf.ensure_shape(y, [None, _WIDTH])

    return tf.data.Dataset.range(_steps()).map(batch)


def _ragged(given):
    """Each row of x is one of the tensor's, of `_WIDTH` lists of one element."""

    def ragged(x, y):
        splits = tf.numpy_function(lambda n: given.splits[: n + 1], [tf.shape(x)[0]], tf.int64)
        lists = tf.RaggedTensor.from_row_splits(x, tf.ensure_shape(splits, [None]))
        return lists, y

    given.splits = aligned(np.arange(_BATCH + 1))
    given.watch.add("splits", given.splits)
    return _from_generator(given).map(ragged)


def _sparse(given):
    """All elements of x, with the array's memory as the values."""
    given.indices = aligned(np.argwhere(np.ones([_BATCH, _WIDTH])))
    given.shapes = aligned(np.array([[rows, _WIDTH] for rows in range(_BATCH + 1)]))
    given.watch.add("indices, shapes", given.indices, given.shapes)

    def parts(rows):
        return given.indices[: rows * _WIDTH], given.shapes[rows]

    def sparse(x, y):
        indices, shape = tf.numpy_function(parts, [tf.shape(x)[0]], [tf.int64, tf.int64])
        indices, shape = tf.ensure_shape(indices, [None, 2]), tf.ensure_shape(shape, [2])
        return tf.SparseTensor(indices, tf.reshape(x, [-1]), shape), y

    return _from_generator(given).map(sparse)


FEEDS = {
    "arrays": lambda given: (given.x, given.y),
    "py_dataset": lambda given: (Batches(given),),
    "py_dataset_threads": lambda given: (Batches(given, workers=2),),
    "py_dataset_processes": lambda given: (Batches(given, workers=2, use_multiprocessing=True),),
    "generator": lambda given: (_for_ever(given),),
    "from_generator": lambda given: (_from_generator(given),),
    "from_numpy": lambda given: (_from_numpy(given),),
    "from_tensor_slices": lambda given: (
        tf.data.Dataset.from_tensor_slices((given.x, given.y)).batch(_BATCH),
    ),
    "ragged": lambda given: (_ragged(given),),
    "sparse": lambda given: (_sparse(given),),
}


def case(feed, kind="float32", way="fit", compiled=False):
    """Trains, evaluates or predicts with arrays of a kind.

    Returns:
        What a user sees: a list of numbers; and whether a file of the program's is as it was.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = Given(kind, folder)
        files = {name: _content(folder, name) for name in os.listdir(folder)}
        with gpu_in_sight() if compiled else contextlib.nullcontext():
            shown = _WAYS[way](given, FEEDS[feed])
        given.watch.check()
        assert files == {name: _content(folder, name) for name in os.listdir(folder)}
        return np.asarray(shown, "float64").ravel().tolist()


def _content(folder, name):
    return fingerprint(np.fromfile(os.path.join(folder, name), np.uint8))


def _scope():
    alone = "TF_CONFIG" not in os.environ
    return contextlib.nullcontext() if alone else bps.BytePSStrategy().scope()


def _model():
    keras.utils.set_random_seed(1)
    with _scope():
        model = Cubic()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


def _fit(given, feed):
    options = {"epochs": _EPOCHS, "shuffle": False, "verbose": 0}
    fed = feed(given)
    if len(fed) == 2:
        options["batch_size"] = _BATCH
    elif not isinstance(fed[0], (tf.data.Dataset, keras.utils.PyDataset)):
        options["steps_per_epoch"] = _steps()
    history = _model().fit(*fed, **options).history
    return [history["loss"], history["mae"]]


def _evaluate(given, feed):
    return [_model().evaluate(*feed(given), steps=_steps(), verbose=0) for _ in range(2)]


def _predict(given, feed):
    model = _model()
    return [model.predict(*feed(given), steps=_steps(), verbose=0) for _ in range(2)]


def _by_hand(given, feed):
    """Batches that the program gives by itself."""
    del feed
    model = _model()
    shown = []
    for _ in range(_EPOCHS):
        shown += [model.train_on_batch(*batch) for batch in given.batches()]
    shown += [model.test_on_batch(*batch) for batch in given.batches()]
    return np.ravel(shown).tolist() + [model.predict_on_batch(x).sum() for x, _ in given.batches()]


def _own_loop(given, feed):
    """A function over a distributed dataset, which computes with all that it gets."""
    (dataset,) = feed(given)
    alone = "TF_CONFIG" not in os.environ
    strategy = tf.distribute.get_strategy() if alone else bps.BytePSStrategy()

    def step(batch):
        parts = tf.nest.flatten(batch, expand_composites=True)
        numbers = [part * 3 for part in parts if part.dtype.is_integer]
        return numbers, sum(
            tf.reduce_sum(tf.exp(part) * 2) for part in parts if part.dtype.is_floating
        )

    @tf.function
    def run(iterator):
        numbers, total = strategy.run(step, args=(next(iterator),))
        return numbers, strategy.reduce("SUM", total, axis=None)

    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    return [float(run(iterator)[1]) for _ in range(_steps())]


_WAYS = {
    "fit": _fit,
    "evaluate": _evaluate,
    "predict": _predict,
    "by_hand": _by_hand,
    "own_loop": _own_loop,
}
