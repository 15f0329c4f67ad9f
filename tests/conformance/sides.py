"""The trainings that are compared, and the list of rows.

A row is a function of a `Side` that trains and returns a list of arrays. It runs on three kinds of
sides: the single process without tf_byteps, and the workers of a job in each of the two modes.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

SINGLE = "single process"
STRATEGY = "BytePSStrategy"
OPTIMIZER = "DistributedOptimizer"
MODES = (STRATEGY, OPTIMIZER)

WORKERS = 2
# Columns of the table: name -> mode and number of workers, and whether XLA compiles.
COLUMNS = {
    STRATEGY: (STRATEGY, WORKERS, False),
    OPTIMIZER: (OPTIMIZER, WORKERS, False),
    "3 workers": (STRATEGY, 3, False),
    "compiled": (STRATEGY, WORKERS, True),
    "compiled, optimizer": (OPTIMIZER, WORKERS, True),
    "compiled, 3 workers": (STRATEGY, 3, True),
}
BATCH = 8
STEPS = 4
ROWS = {}


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        train: the function of a `Side`.
        modes: those of `MODES` that it is for.
        rounded: whether it computes in half precision, where 2e-3 is allowed.
    """

    train: Callable
    modes: tuple
    rounded: bool = False


def row(*modes, rounded=False):
    """Puts a function into the table. Without arguments it is for every mode."""

    def register(function):
        assert function.__name__ not in ROWS, function
        ROWS[function.__name__] = Row(function, modes or MODES, rounded)
        return function

    return register


class Side:
    """The single process, which trains on whole batches.

    Attributes:
        rank: of this worker.
        batch: the batch size that `fit` is given.
        folder: a path that all workers see.
    """

    rank = 0
    batch = BATCH
    mode = SINGLE

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_single(self):
        return self.mode == SINGLE

    def scope(self, **options):
        """What models, and their optimizers, are made in."""
        del options
        return contextlib.nullcontext()

    def share(self, array):
        """The rows of each batch that `fit` is given."""
        return array

    def distributed(self, optimizer, **options):
        """The optimizer as this mode's user passes it to `compile`."""
        del options
        return optimizer

    def callbacks(self):
        """What gives all workers worker 0's values."""
        return []

    def fit(self, model, x, y, callbacks=(), **options):
        shares = [None if a is None else tf.nest.map_structure(self.share, a) for a in (x, y)]
        options = {"batch_size": self.batch, "shuffle": False, "verbose": 0, **options}
        return model.fit(*shares, callbacks=[*self.callbacks(), *callbacks], **options)


class StrategySide(Side):
    """A worker under `BytePSStrategy`: plain Keras objects, and all data given to every worker."""

    mode = STRATEGY

    def __init__(self, folder):
        super().__init__(folder)
        self.strategy = bps.BytePSStrategy()
        self.rank = bps.rank()

    def scope(self, **options):
        strategy = bps.BytePSStrategy(**options) if options else self.strategy
        return strategy.scope()


class OptimizerSide(Side):
    """A worker with `DistributedOptimizer`, which trains on the share that the test cuts."""

    mode = OPTIMIZER
    batch = BATCH // WORKERS

    def __init__(self, folder):
        super().__init__(folder)
        self.rank = bps.rank()

    def share(self, array):
        return share(array, self.rank)

    def distributed(self, optimizer, **options):
        return bps.keras.DistributedOptimizer(optimizer, **options)

    def callbacks(self):
        return [bps.keras.callbacks.BroadcastGlobalVariablesCallback(0)]


SIDES = {side.mode: side for side in (Side, StrategySide, OptimizerSide)}


def share(array, rank):
    """A worker's rows of each whole batch."""
    rows = BATCH // WORKERS
    batches = np.asarray(array).reshape(-1, BATCH, *np.shape(array)[1:])
    return batches[:, rank * rows : (rank + 1) * rows].reshape(-1, *np.shape(array)[1:])


def numbers(*shape, seed=0, rows=BATCH * STEPS):
    return np.random.RandomState(seed).normal(size=(rows, *shape)).astype("float32")


def classes(count, *shape, seed=0, rows=BATCH * STEPS):
    return np.random.RandomState(seed).randint(count, size=(rows, *shape))


def dense_model():
    return keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)]
    )


def compiled(side, optimizer, loss="mse", build=dense_model, wrap_options=None, **options):
    """A model made and compiled as this side's user does it.

    Args:
        optimizer: a function without arguments, a name, or an optimizer.
        build: a function that returns the model.
        wrap_options: for `DistributedOptimizer`, or for `BytePSStrategy`.
        **options: for `compile`.
    """
    with side.scope(**wrap_options or {}):
        model = build()
        optimizer = keras.optimizers.get(optimizer() if callable(optimizer) else optimizer)
        model.compile(side.distributed(optimizer, **wrap_options or {}), loss, **options)
    return model
