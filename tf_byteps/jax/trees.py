"""Exchanges of whole trees of arrays: gradients, parameters, an optimizer's state."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax

from tf_byteps.exchange import reduce_op
from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.exchange.reduce_op import ReduceOp
from tf_byteps.jax.collectives import broadcast_all, exchange_name, push_pull_all

TreeT = TypeVar("TreeT")


def push_pull_tree(
    tree: TreeT,
    *,
    average: bool | None = None,
    op: ReduceOp | str | None = None,
    name: str | None = None,
    compression: AnyCompressor | None = None,
    priority: int | None = None,
) -> TreeT:
    """Combines each array of a tree elementwise over all workers.

    All exchanges start before any is waited for, each under the name of its path in the tree.

    Args:
        tree: of arrays that `push_pull` takes: nested dictionaries, lists, dataclasses that JAX
            knows, and the like.
        average: see `push_pull`.
        op: see `push_pull`.
        name: the prefix of the names; see `push_pull`.
        compression: see `push_pull`.
        priority: see `push_pull`.

    Returns:
        A tree of the same structure.

    Raises:
        TypeError: see `push_pull`.
        ValueError: see `push_pull`.
        BytePSError: see `push_pull`.

    Example:

    >>> gradients = tf_byteps.jax.push_pull_tree(gradients, name="gradients")
    """
    prefix = exchange_name(name, "push_pull_tree")
    values, names, structure = _leaves(tree, prefix)
    results = push_pull_all(
        values,
        names,
        is_derived=name is None,
        op=reduce_op.resolve(average, op),
        compression=compression,
        priority=priority,
    )
    return jax.tree_util.tree_unflatten(structure, results)


def broadcast_tree(tree: TreeT, root_rank: int = 0, name: str | None = None) -> TreeT:
    """Gives every worker the root's arrays: parameters and an optimizer's state, before training.

    Args:
        tree: of arrays that `broadcast` takes; numbers become arrays.
        root_rank: see `broadcast`.
        name: the prefix of the names; see `push_pull`.

    Returns:
        A tree of the same structure.

    Raises:
        TypeError: see `broadcast`.
        ValueError: `root_rank` is not a rank of the job.
        BytePSError: see `push_pull`.

    Example:

    >>> parameters = tf_byteps.jax.broadcast_tree(parameters, root_rank=0)
    """
    values, names, structure = _leaves(tree, exchange_name(name, "broadcast_tree"))
    results = broadcast_all(values, names, name is None, root_rank)
    return jax.tree_util.tree_unflatten(structure, results)


def _leaves(tree: Any, prefix: str) -> tuple[list[Any], list[str], Any]:
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [prefix + jax.tree_util.keystr(path) for path, _ in leaves]
    return [leaf for _, leaf in leaves], names, structure


class GradientTransformation(NamedTuple):
    """A pair of functions, as Optax has it.

    Attributes:
        init: a function of the parameters that returns the state.
        update: a function of gradients, the state and, optionally, the parameters. It returns what
            becomes of the gradients, and the next state.
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


def sum_gradients(
    *,
    average: bool | None = None,
    op: ReduceOp | str | None = None,
    name: str = "gradients",
    compression: AnyCompressor | None = None,
    priority: int | None = None,
) -> GradientTransformation:
    """A gradient transformation that combines the workers' gradients: first in `optax.chain`.

    Args:
        average: see `push_pull`.
        op: see `push_pull`. By default the workers' gradients are averaged.
        name: the prefix of the names, equal on all workers.
        compression: see `push_pull`.
        priority: see `push_pull`.

    Returns:
        A `GradientTransformation`, which has no state.

    Raises:
        ValueError: see `push_pull`.

    Example:

    >>> optimizer = optax.chain(tf_byteps.jax.sum_gradients(), optax.adam(1e-3))
    """
    chosen = reduce_op.resolve(average, op)

    def init(parameters: Any) -> tuple[()]:
        del parameters
        return ()

    def update(updates: TreeT, state: tuple[()], parameters: Any = None) -> tuple[TreeT, tuple[()]]:
        del parameters
        reduced = push_pull_tree(
            updates, op=chosen, name=name, compression=compression, priority=priority
        )
        return reduced, state

    return GradientTransformation(init, update)
