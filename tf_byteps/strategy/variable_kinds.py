"""What a variable of a Keras model is, and so what happens to it (protocol rule 34).

| kind | which variables | in training |
|---|---|---|
| weight | created as trainable, also while it is frozen | every worker makes the same updates |
| rows | rows of a table that are this worker's: `DistributedEmbedding` | updated by their worker |
| statistic | other floating-point ones | follows the worker's own rows; averaged where it differs |
| synchronized | statistics that a layer computes over all workers' rows | the same everywhere |
| counter | other integers and booleans | every worker counts the same steps |
| constant | none by itself | no step changes it |
| seed | the state of a `keras.random.SeedGenerator` | goes on alike everywhere |
| own | the states of a stateful RNN | follows the worker's own rows, and stays its own |
| metric | those of metrics | reduced at fixed points, see `fit.metrics` |

A program says what this cannot know with an attribute of the variable, or of the layer for all that
it has besides weights and seeds:

    self.queue = self.add_weight(shape=[4096, 128], trainable=False)
    self.queue.byteps_kind = "own"
"""

import enum
from collections.abc import Iterator
from typing import Any

import keras
from keras import tree

from tf_byteps.tables import layout as layouts

_ATTRIBUTE = "byteps_kind"


class Kind(enum.Enum):
    """What a variable is. The values are what `byteps_kind` may be."""

    WEIGHT = "weight"
    ROWS = "rows"
    STATISTIC = "statistic"
    SYNCHRONIZED = "synchronized"
    COUNTER = "counter"
    CONSTANT = "constant"
    SEED = "seed"
    OWN = "own"
    METRIC = "metric"


#: What depends on the rows that a worker had: a step without rows must leave it alone.
OF_OWN_ROWS = (Kind.STATISTIC, Kind.OWN, Kind.METRIC)
#: What must have the same bits on all workers where an epoch ends.
COMMON = (Kind.WEIGHT, Kind.STATISTIC, Kind.SYNCHRONIZED, Kind.COUNTER, Kind.CONSTANT, Kind.SEED)


def variables(model: keras.Model, *kinds: Kind) -> list[Any]:
    """A model's variables of some kinds.

    Args:
        model: a `keras.Model`.
        *kinds: of type `Kind`.

    Returns:
        A list of `keras.Variable`, each once, in an order that is the same on all workers.

    Raises:
        ValueError: a `byteps_kind` is none.
    """
    return [variable for variable, kind, _ in _all(model) if kind in kinds]


def guessed_statistics(model: keras.Model) -> list[Any]:
    """The variables of layers that are not Keras's which are statistics for want of a better guess.

    Args:
        model: a `keras.Model`.

    Returns:
        A list of `keras.Variable`.
    """
    return [
        variable
        for variable, kind, layer in _all(model)
        if kind == Kind.STATISTIC
        and not isinstance(layer, keras.layers.BatchNormalization)
        and not type(layer).__module__.startswith("keras.")
        and _said(variable, layer) is None
    ]


def _all(model: keras.Model) -> Any:
    """Triples of a variable, its kind and its layer, or `None` for a metric's."""
    found = {}
    for layer in model._flatten_layers():
        for variable, kind in _of_layer(layer):
            if kind not in (Kind.WEIGHT, Kind.ROWS, Kind.SEED):
                kind = _said(variable, layer) or kind
            found.setdefault(id(variable), (variable, kind, layer))
    for variable in model.metrics_variables:
        found[id(variable)] = (variable, Kind.METRIC, None)
    return found.values()


def _of_layer(layer: keras.layers.Layer) -> Iterator[Any]:
    """Pairs of a layer's own variables and what they are if the program says nothing."""
    states = _states(layer)
    for variable in layer._trainable_variables:
        yield variable, Kind.WEIGHT if layouts.of(variable) is None else Kind.ROWS
    for variable in states.values():
        yield variable, Kind.OWN
    for generator in layer._seed_generators:
        yield generator.state, Kind.SEED
    for variable in layer._non_trainable_variables:
        if layouts.of(variable) is not None:
            yield variable, Kind.ROWS
        elif not keras.backend.is_float_dtype(variable.dtype):
            yield variable, Kind.COUNTER
        elif getattr(layer, "synchronized", False):
            yield variable, Kind.SYNCHRONIZED
        else:
            yield variable, Kind.STATISTIC


def _states(layer: keras.layers.Layer) -> dict[Any, Any]:
    """id -> variable: what an RNN keeps from batch to batch."""
    if not isinstance(layer, keras.layers.RNN) or not layer.stateful:
        return {}
    states = tree.flatten(layer.states)
    return {id(state): state for state in states if isinstance(state, keras.Variable)}


def _said(variable: keras.Variable, layer: keras.layers.Layer) -> Any:
    """What the program says that a variable is, or `None`."""
    said = getattr(variable, _ATTRIBUTE, None) or getattr(layer, _ATTRIBUTE, None)
    if said is None:
        return None
    try:
        return Kind(said)
    except ValueError:
        possible = ", ".join(kind.value for kind in Kind)
        raise ValueError(
            f"{_ATTRIBUTE} of the variable {variable.path!r} is {said!r}: must be one of {possible}"
        ) from None
