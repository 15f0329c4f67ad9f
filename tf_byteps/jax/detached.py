"""Exchanges that outlast a program: one starts them, a later one ends them. On the CPU.

The engine knows what a program has started by three things: the number of its run, the name, and
the memory that the value was in. So the first program returns the number and this memory, and the
later one is given both. Nobody may read, change or free the memory in between.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.core
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
    """Starts sums within `jax.jit`.

    Args:
        values: arrays, what is exchanged.
        passed: arrays; what uses their results instead comes after the start.
        after: arrays that are computed before the start.
        exchanges: what they are. Each name is used once in the program.

    Returns:
        What `wait` needs of each, the arrays that were passed, and the number of the run.
    """
    custom_calls.register()
    results = _start_p.bind(*values, *passed, *after, exchanges=exchanges, passed=len(passed))
    return results[: len(values)], results[len(values) : -1], results[-1]


def wait(run: Any, value: Any, after: Sequence[Any], exchanges: Exchanges) -> tuple[Any, Any]:
    """Ends one exchange that an earlier program has started.

    Args:
        run: the number of that run.
        value: what `start` has returned for this exchange.
        after: arrays that are computed before the program waits.
        exchanges: what it is.

    Returns:
        The sum, and an array that is there when the exchange has ended, for `start`'s `after`.
    """
    total, ended = _wait_p.bind(run, value, *after, exchanges=exchanges)
    return total, ended


@_start_p.def_abstract_eval
def _started_types(*avals: Any, exchanges: Exchanges, passed: int) -> list[Any]:
    given = avals[: len(exchanges.names) + passed]
    return [*(jax.core.ShapedArray(aval.shape, aval.dtype) for aval in given), NUMBER]


@_wait_p.def_abstract_eval
def _waited_types(run: Any, value: Any, *after: Any, exchanges: Exchanges) -> list[Any]:
    del run, after, exchanges
    return [jax.core.ShapedArray(value.shape, value.dtype), NUMBER]


def _keep(used: list[bool], equation: Any) -> tuple[list[bool], Any]:
    del used  # other workers may use theirs
    return [True] * len(equation.invars), equation


for _primitive, _rule in (
    (_start_p, detached_lowering.lower_start),
    (_wait_p, detached_lowering.lower_wait),
):
    mlir.register_lowering(_primitive, _rule, platform="cpu", cacheable=False)
    partial_eval.dce_rules[_primitive] = _keep
