"""Gradients of variables, each with the compressor that was chosen for it."""

from collections.abc import Sequence
from typing import Any

import jax

from tf_byteps.exchange.compression_choice import ResolvedChoice, of_variables
from tf_byteps.exchange.reduce_op import Average, ReduceOp
from tf_byteps.jax.collectives import push_pull_all


def push_pull_gradients(
    gradients: Sequence[jax.Array],
    variables: Sequence[Any],
    names: Sequence[str],
    compression: ResolvedChoice,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    backup_workers: int = 0,
) -> list[jax.Array]:
    """Combines gradients over all workers. Those with one compressor are one group of exchanges.

    Args:
        gradients: arrays of the variables' shapes.
        variables: what a function given as `compression` is called with.
        names: of the exchanges.
        compression: what `resolve_choice` has returned.
        op: see `push_pull`.
        prescale_factor: see `push_pull`.
        postscale_factor: see `push_pull`.
        backup_workers: how many workers an average need not wait for.

    Returns:
        The list of results.
    """
    groups: dict[Any, list[int]] = {}
    for index, compressor in enumerate(of_variables(compression, variables)):
        groups.setdefault(compressor, []).append(index)
    reduced = list(gradients)
    for compressor, chosen in groups.items():
        results = push_pull_all(
            [gradients[index] for index in chosen],
            [names[index] for index in chosen],
            is_derived=False,
            op=op,
            compression=compressor,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            backup_workers=backup_workers,
        )
        for index, result in zip(chosen, results, strict=True):
            reduced[index] = result
    return reduced
