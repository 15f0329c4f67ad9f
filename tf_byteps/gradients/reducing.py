"""Reduces an optimizer's or a tape's gradients over the workers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from tf_byteps.exchange.process_sets import members_of
from tf_byteps.ops import Average, Min, names, split
from tf_byteps.ops.compiled.control_flow_order import INNER_GRAPHS
from tf_byteps.ops.reduction import Reduction
from tf_byteps.tables import gradients as tables, layout as layouts
from tf_byteps.types import Exchanged, Gradient, Variable

_lock = threading.Lock()
# Graph -> {name without index: the variables that use it}. Two models in one function may have
# equal paths.
_users = weakref.WeakKeyDictionary()


def reduce_gradients(
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    reduction: Reduction,
    scope: str = "",
) -> list[Gradient]:
    """Reduces each gradient over all workers, as soon as it is there.

    The exchange is named after the variable, so that a retrace on one worker alone is harmless and
    two models do not meet under one name. Gradients are sent in the order in which backpropagation
    gave them in the first step, by all workers.

    Args:
        gradients: a list of `tf.Tensor`, `tf.IndexedSlices` or `None`.
        variables: what they are gradients of: `keras.Variable`, `tf.Variable` or `tf.Tensor`.
        reduction: a `Reduction`.
        scope: a prefix of the exchanges' names.

    Returns:
        The list of results; `None` stays.
    """
    scoped = exchange_names(variables, scope)
    of_tables = {
        index: layout
        for index, layout in enumerate(map(layouts.of, variables))
        if layout is not None and gradients[index] is not None
    }
    whole = [None if index in of_tables else each for index, each in enumerate(gradients)]
    reduced = reduction.exchange_all(_prepared(whole, reduction), scoped, variables=variables)
    factor = reduction.prescale_factor * reduction.postscale_factor
    for index, layout in of_tables.items():
        reduced[index] = tables.reduce(
            gradients[index], layout, scoped[index], reduction.op == Average, factor
        )
    return reduced


def start_reductions(
    gradients: Sequence[Gradient], variables: Sequence[Variable], reduction: Reduction
) -> list[split.StartedReduction | None]:
    """Starts what `reduce_gradients` does, under the same names.

    Args:
        gradients: see `reduce_gradients`.
        variables: what they are gradients of: `keras.Variable`.
        reduction: a `Reduction`.

    Returns:
        The list of `StartedReduction`; `None` stays.
    """
    prepared = _prepared(gradients, reduction)
    shapes = [cast("tuple[int, ...]", tuple(variable.shape)) for variable in variables]
    return split.start_reductions(prepared, exchange_names(variables), shapes, reduction, variables)


def _prepared(gradients: Sequence[Gradient], reduction: Reduction) -> list[Exchanged | None]:
    return [None if gradient is None else reduction.prepare(gradient) for gradient in gradients]


def finite_everywhere(finite: Any, workers: str = "") -> tf.Tensor:
    """Whether the gradients of all workers are finite (protocol rule 27).

    Args:
        finite: a boolean scalar, this worker's answer.
        workers: `process_sets.scope_of` the workers that are asked.

    Returns:
        A boolean scalar, the same on all workers.
    """
    name = names.in_scope(workers, names.numbered("gradients are finite", workers))
    reduction = Reduction(Min, workers=workers)
    own = reduction.prepare(tf.cast(finite, tf.int32))
    least: Any = reduction.exchange(own, name)
    return tf.equal(least, 1)


def exchange_names(
    variables: Sequence[Variable], scope: str = "", what: str = "gradient"
) -> list[str]:
    """One name for each variable: its path, with an index if others here have the same.

    Args:
        variables: the same on all workers.
        scope: a prefix.
        what: is exchanged of them.

    Returns:
        The names.
    """
    with _lock:
        # Eager exchanges come one after the other: it is enough to tell those of one list apart.
        users = {} if tf.executing_eagerly() else _users.setdefault(_function_graph(), {})
        return [
            names.in_scope(scope, _name(variable, what, index, users, scope))
            for index, variable in enumerate(variables)
        ]


def _name(
    variable: Variable, what: str, position: int, users: dict[str, list[int]], scope: str
) -> str:
    if hasattr(variable, "path"):
        name = f"{what}/{variable.path}"
    elif isinstance(variable, tf.Variable):
        name = f"{what}/{variable.name}"
    else:
        name = f"{what}@{names.call_site()}/{position}"
    # Each process set counts for itself: its workers may not be in the others.
    of_set = members_of(f"{scope}/") is not None
    sharing = users.setdefault(names.in_scope(scope, name) if of_set else name, [])
    if id(variable) not in sharing:
        sharing.append(id(variable))
    index = sharing.index(id(variable))
    return f"{name}#{index}" if index else name


def _function_graph() -> Any:
    """The graph of the traced function, seen from within its branches and loops too."""
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, INNER_GRAPHS):
        graph = graph.outer_graph
    return graph
