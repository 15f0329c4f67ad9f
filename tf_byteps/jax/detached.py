"""Exchanges that outlast a program: one starts them, a later one ends them.

On a GPU the engine has memory of its own for them, and knows them by their names. On the CPU it
knows what a program has started by three things: the number of its run, the name, and the memory
that the value was in. There the first program returns the number and this memory, and the later one
is given both. Nobody may read, change or free the memory in between.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import mlir, partial_eval

from tf_byteps.jax import custom_calls, detached_lowering
from tf_byteps.jax.custom_calls import NUMBER
from tf_byteps.jax.exchanges import Exchanges

_start_p = core.Primitive("byteps_start_detached")
_wait_p = core.Primitive("byteps_wait")
_start_p.multiple_results = _wait_p.multiple_results = True


def start(
    values: Sequence[Any], passed: Sequence[Any], after: Sequence[Any], exchanges: Exchanges
) -> tuple[list[Any], list[Any], Any]:
    """Starts sums within `jax.jit`, for JAX's default backend.

    Args:
        values: arrays, what is exchanged.
        passed: arrays; what uses their results instead comes after the start.
        after: arrays that are computed before the start.
        exchanges: what they are. Each name is used once in the program.

    Returns:
        What `wait` needs of each, the arrays that were passed, and the number of the run.
    """
    custom_calls.register()
    kept = len(values) if jax.default_backend() == "cpu" else 0
    results = _start_p.bind(
        *values, *passed, *after, exchanges=exchanges, kept=kept, passed=len(passed)
    )
    begun = results[:kept] or [jnp.zeros([0]) for _ in values]
    return begun, results[kept:-1], results[-1]


def wait(
    run: Any,
    values: Sequence[Any],
    after: Sequence[Any],
    exchanges: Exchanges,
    results: Sequence[Any],
) -> tuple[list[Any], Any]:
    """Ends exchanges that an earlier program has started.

    Args:
        run: the number of that run.
        values: what `start` has returned for these exchanges.
        after: arrays that are computed before the program waits.
        exchanges: what they are.
        results: a `jax.core.ShapedArray` of each that says what the sum is.

    Returns:
        The sums, and an array that is there when all have ended, for `start`'s `after`.
    """
    types = tuple((result.shape, result.dtype) for result in results)
    *totals, ended = _wait_p.bind(run, *values, *after, exchanges=exchanges, types=types)
    return totals, ended


@_start_p.def_abstract_eval
def _started_types(*avals: Any, exchanges: Exchanges, kept: int, passed: int) -> list[Any]:
    count = len(exchanges.names)
    results = [*avals[:kept], *avals[count : count + passed]]
    return [*(jax.core.ShapedArray(aval.shape, aval.dtype) for aval in results), NUMBER]


@_wait_p.def_abstract_eval
def _waited_types(*avals: Any, exchanges: Exchanges, types: Sequence[Any]) -> list[Any]:
    del avals, exchanges
    return [*(jax.core.ShapedArray(shape, dtype) for shape, dtype in types), NUMBER]


def _keep(used: list[bool], equation: Any) -> tuple[list[bool], Any]:
    del used  # other workers may use theirs
    return [True] * len(equation.invars), equation


for _primitive, _rules in (
    (_start_p, detached_lowering.START_RULES),
    (_wait_p, detached_lowering.WAIT_RULES),
):
    for _platform, _rule in _rules.items():
        mlir.register_lowering(_primitive, _rule, platform=_platform, cacheable=False)
    partial_eval.dce_rules[_primitive] = _keep
