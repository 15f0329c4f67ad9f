"""The programs, and how close each has to come to what one process shows."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

# Rows of training data, and of a batch: 2 and 3 workers get equal pieces, until one row is left.
ROWS = 61
BATCH = 12
PROGRAMS = {}

# Why several programs differ.
OTHER_ROWS = "a worker compares its rows with each other, not with those of other workers"
OWN_ROWS = "each worker normalizes its own rows"
REPEATED = "Keras squares the gradient of each occurrence of a word, here of their sum"
SUM = "a sum over the rows of the batch counts as the mean of the workers' sums"


@dataclasses.dataclass(frozen=True)
class Program:
    """A row of the table in docs/strategy_tests.md.

    Attributes:
        train: a function of the scope that its models are made in. It returns what `shown` does.
        what: the program in a few words.
        tolerance: of losses, metrics and weights, relative and absolute.
        differs: why one process shows something else; "" if it does not.
        on_average: whether the workers draw random numbers of their own, so that only what the logs
            say can be compared.
        quick: whether it runs in `make test`, too.
        dtype: Keras's `floatx`. In float64 nothing but a fault exceeds the tolerance.
        strategy: options of `BytePSStrategy`.
    """

    train: Callable
    what: str
    tolerance: float
    differs: str
    on_average: bool
    quick: bool
    dtype: str
    strategy: dict


def program(
    what,
    tolerance=1e-7,
    differs="",
    on_average=False,
    quick=False,
    dtype="float64",
    strategy=None,
    **arguments,
):
    """Puts a function into the table.

    Args:
        **arguments: what it is called with besides the scope, with `name` for the row's name.
    """

    def register(train):
        name = arguments.get("name", train.__name__)
        assert name not in PROGRAMS, name
        given = {key: value for key, value in arguments.items() if key != "name"}
        PROGRAMS[name] = Program(
            lambda scope, folder: train(scope, **_with_folder(train, folder), **given),
            what,
            tolerance,
            differs,
            on_average,
            quick,
            dtype,
            strategy or {},
        )
        return train

    return register


def _with_folder(train, folder):
    code = train.__code__
    return {"folder": folder} if "folder" in code.co_varnames[: code.co_argcount] else {}


def shown(model, history=None, **more):
    """What a user sees of a training.

    Args:
        model: a model, or several in a list.
        history: what `fit` returned.
        **more: arrays or numbers.

    Returns:
        {name: list of numbers}; names of weights begin with "weights".
    """
    logs = {} if history is None else history.history
    results = {f"log {key}": values for key, values in logs.items()}
    models = model if isinstance(model, (list, tuple)) else [model]
    for index, each in enumerate(models):
        for position, weights in enumerate(each.get_weights()):
            results[f"weights {index}/{position}"] = weights
    return {
        key: np.asarray(value, "float64").tolist() for key, value in {**results, **more}.items()
    }


def numbers(rows, *shape, seed=0):
    """Made-up data: normally distributed numbers."""
    values = np.random.RandomState(seed).normal(size=(rows, *shape))
    return values.astype(keras.config.floatx())


def integers(below, rows, *shape, seed=0):
    """Made-up classes or words."""
    return np.random.RandomState(seed).randint(below, size=(rows, *shape)).astype("int32")


def pictures(rows, side=8, channels=1, seed=0):
    """Made-up pictures: a bright square on noise, and its quadrant, which is their class."""
    random = np.random.RandomState(seed)
    values, quadrants = (
        random.uniform(0, 0.4, [rows, side, side, channels]),
        random.randint(4, size=rows),
    )
    half = side // 2
    for picture, quadrant in zip(values, quadrants):
        top, left = half * (quadrant // 2), half * (quadrant % 2)
        picture[top : top + half, left : left + half] += 0.6
    return values.astype(keras.config.floatx()), quadrants.astype("int32")
