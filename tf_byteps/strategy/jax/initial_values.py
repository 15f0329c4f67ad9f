"""Values of worker 0 for all workers, after a look at whether all have the same variables
(protocol rule 28)."""

import weakref
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host
from tf_byteps.exchange.equality import differing
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.exchange.variable_lists import check_lists, keyed_variables
from tf_byteps.jax import new_workers
from tf_byteps.jax.fingerprints import fingerprints
from tf_byteps.strategy import variable_kinds

_WHAT = "variables of the model and its optimizer"
# Of a `keras.Variable` of kind `own`: with which workers a training has begun with it.
_BEGUN = "_byteps_begun"
_workers = 0  # grows when they change
# Model -> those of its variables that worker 0's values have reached, by their ids. A variable that
# is gone leaves its id to another one, which only some workers may take for known.
_synchronized: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


def synchronize(model: keras.Model) -> None:
    """Sets all variables of a model and its optimizers to worker 0's values. A collective.

    Those of kind `own` only before the first training.

    Args:
        model: a built `keras.Model`.

    Raises:
        ValueError: on all workers, if their variables differ.
    """
    variables = _variables(model)
    _synchronized[model] = {id(variable): weakref.ref(variable) for variable in variables}
    if runtime.size() == 1:
        return
    own = variable_kinds.variables(model, variable_kinds.Kind.OWN)
    kept = {id(variable) for variable in own if getattr(variable, _BEGUN, None) == _workers}
    for variable in own:
        setattr(variable, _BEGUN, _workers)
    broadcast(
        _WHAT, [(variable.path, variable) for variable in variables if id(variable) not in kept]
    )


def broadcast(
    what: str, named_variables: Iterable[tuple[str, keras.Variable]], root_rank: int = 0
) -> None:
    """Sets variables to one worker's values. A collective. Only values that differ are sent.

    Args:
        what: a few words for error messages, equal on all workers.
        named_variables: pairs of a name and a variable.
        root_rank: the rank of the worker whose values count.

    Raises:
        ValueError: on all workers, if their lists differ.
    """
    keyed = keyed_variables(named_variables)
    check_lists(what, gather_objects(f"initial values/{what}", list(keyed)))
    if not keyed:
        return
    # Most often they are equal: made from one seed, or by the last training.
    numbers = fingerprints([variable.value for variable in keyed.values()])
    differs = differing("fingerprints of initial values", numbers)
    sent = {key: variable for (key, variable), new in zip(keyed.items(), differs) if new}
    values = [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in sent.values()]
    names = [f"initial value/{key}" for key in sent]
    received = host.copy_all(values, names, "broadcast", root_rank)
    if runtime.rank() == root_rank:
        return
    for variable, value in zip(sent.values(), received, strict=True):
        variable.assign(value)


def synchronize_if_new(model: keras.Model) -> None:
    """`synchronize`, if the model has variables that it has not seen. No collective without."""
    references = _synchronized.get(model, {})
    known = {number for number, reference in references.items() if reference() is not None}
    if any(id(variable) not in known for variable in _variables(model)):
        synchronize(model)


def _forget() -> None:
    """New workers have seen nothing: with them all begin anew."""
    global _workers
    _synchronized.clear()
    _workers += 1


new_workers.on_change(_forget)


def _variables(model: keras.Model) -> list[Any]:
    variables = list(model.variables)
    for optimizer in optimizers_of(model):
        variables += optimizer.variables
    of_metrics = set(map(id, model.metrics_variables))  # they start alike everywhere
    return [v for v in {id(v): v for v in variables}.values() if id(v) not in of_metrics]
