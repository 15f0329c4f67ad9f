"""The exchange as an operation of JAX: what `jit`, `grad`, `vmap` and the others make of it.

It has no effect in JAX's sense, so that `jax.checkpoint` takes it and a call of a jitted function
costs no more than another one; the custom calls have one in XLA's. An exchange whose result nobody
uses is exchanged all the same: other workers may use theirs.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir, partial_eval

from tf_byteps.exchange.process_sets import members_of
from tf_byteps.jax import custom_calls, lowering
from tf_byteps.jax.errors import exchange_errors
from tf_byteps.jax.exchanges import Exchanges

_exchange_p = core.Primitive("byteps_exchange")
_start_p = core.Primitive("byteps_start_before")
_exchange_p.multiple_results = _start_p.multiple_results = True
_rank_p = core.Primitive("byteps_rank")

_TANGENT = "/tangent"


def exchange(values: Sequence[jax.Array], exchanges: Exchanges, workers: int) -> list[jax.Array]:
    """Exchanges arrays, none of which waits for another.

    Args:
        values: arrays of dtypes that the engine adds up.
        exchanges: what they are.
        workers: the size of the job: a gather's result has as many rows of each as of this one.

    Returns:
        The list of results, of the arrays' dtypes.
    """
    custom_calls.register()
    return _exchange_p.bind(*values, exchanges=exchanges, workers=workers)


def exchanges_of(equation: Any) -> Exchanges | None:
    """What an equation of a `jax.extend.core.Jaxpr` exchanges; None: nothing."""
    return equation.params["exchanges"] if equation.primitive is _exchange_p else None


def starts_of(equation: Any) -> Exchanges | None:
    """What an equation that `start_before` has made starts; None: it is another one."""
    return equation.params["exchanges"] if equation.primitive is _start_p else None


def start_before(values: Sequence[Any], passed: Sequence[Any], exchanges: Exchanges) -> Any:
    """An equation that starts exchanges which a later one of the same function ends.

    Args:
        values: atoms of a `jax.extend.core.Jaxpr`: what is exchanged. The later equation gets
            this one's results instead.
        passed: variables of it; what uses this one's results instead comes after the start.
        exchanges: what they are. Their names are the user's, used once in the function.

    Returns:
        A `jax.extend.core.JaxprEqn`, with a result for each value, and for each that is passed.
    """
    new = core.gensym()
    operands = [*values, *passed]
    outs = [new(jax.core.ShapedArray(each.aval.shape, each.aval.dtype)) for each in operands]
    return core.new_jaxpr_eqn(operands, outs, _start_p, {"exchanges": exchanges}, core.no_effects)


@_start_p.def_abstract_eval
def _same_types(*avals: Any, exchanges: Exchanges) -> list[Any]:
    del exchanges
    return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in avals]


@_exchange_p.def_abstract_eval
def _result_types(*avals: Any, exchanges: Exchanges, workers: int) -> list[Any]:
    def of(aval: Any) -> Any:
        shape = aval.shape
        if exchanges.kind == "gather":
            shape = (shape[0] * workers, *shape[1:])
        return jax.core.ShapedArray(shape, aval.dtype)

    return [of(aval) for aval in avals]


@_exchange_p.def_impl
def _exchange_now(*values: Any, exchanges: Exchanges, workers: int) -> list[jax.Array]:
    """Outside of `jit`: a program of its own, which has ended when this returns."""
    with exchange_errors():
        return jax.block_until_ready(_program_of(exchanges, workers)(*values))


@functools.lru_cache(maxsize=4096)
def _program_of(exchanges: Exchanges, workers: int) -> Any:
    def exchange_arrays(*values: jax.Array) -> list[jax.Array]:
        return _exchange_p.bind(*values, exchanges=exchanges, workers=workers)

    return jax.jit(exchange_arrays)


def _keep(used: list[bool], equation: Any) -> tuple[list[bool], Any]:
    del used
    return [True] * len(equation.invars), equation


def _batched(
    values: Sequence[Any], axes: Sequence[Any], exchanges: Exchanges, workers: int
) -> tuple[list[Any], list[Any]]:
    """The whole batch in one exchange; rows are gathered along the first axis of each element."""
    if exchanges.kind == "gather":
        pairs = [
            (value, None) if axis is None else (jnp.moveaxis(value, axis, 1), 1)
            for value, axis in zip(values, axes)
        ]
        values, axes = [value for value, _ in pairs], [axis for _, axis in pairs]
    results = _exchange_p.bind(*values, exchanges=exchanges, workers=workers)
    return results, list(axes)


def _with_tangents(
    primals: Sequence[Any], tangents: Sequence[Any], exchanges: Exchanges, workers: int
) -> tuple[list[Any], list[Any]]:
    """The result is linear in the workers' values: tangents are exchanged as values are."""
    results = _exchange_p.bind(*primals, exchanges=exchanges, workers=workers)
    zeros = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    places = [i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    if not places:
        return results, zeros
    if exchanges.kind in ("min", "max", "product"):
        raise NotImplementedError(
            f"push_pull with op {exchanges.kind!r} has no gradient; use 'sum' or 'average', or "
            "jax.lax.stop_gradient"
        )
    changed = _exchange_p.bind(
        *(tangents[i] for i in places), exchanges=exchanges.of(places, _TANGENT), workers=workers
    )
    out = list(zeros)
    for place, tangent in zip(places, changed):
        out[place] = tangent
    return results, out


def _transposed(
    cotangents: Sequence[Any], *values: Any, exchanges: Exchanges, workers: int
) -> list[Any]:
    """Every worker's value enters every worker's result: the workers' gradients add up, or
    average."""
    places = [i for i, cotangent in enumerate(cotangents) if type(cotangent) is not ad.Zero]
    out: list[Any] = [ad.Zero(value.aval) for value in values]
    if not places:
        return out
    backward = exchanges.of(places, "/gradient", without=_TANGENT).reduction()
    reduced = _exchange_p.bind(
        *(cotangents[i] for i in places), exchanges=backward, workers=workers
    )
    for place, gradient in zip(places, reduced):
        out[place] = _own(gradient, values[place].aval, exchanges)
    return out


def _own(gradient: Any, aval: Any, exchanges: Exchanges) -> Any:
    """The part of the workers' gradients that belongs to this worker's value."""
    if exchanges.kind == "broadcast":
        is_root = _rank_p.bind() == exchanges.root_rank
        return jnp.where(is_root, gradient, jnp.zeros_like(gradient))
    if exchanges.kind == "gather":
        rows = aval.shape[0]
        place = _rank_p.bind()
        members = members_of(exchanges.names[0])
        if members is not None:
            place = jnp.sum(jnp.asarray(members, jnp.int32) < place, dtype=jnp.int32)
        return jax.lax.dynamic_slice_in_dim(gradient, place * rows, rows)
    return gradient


@_rank_p.def_abstract_eval
def _rank_type() -> Any:
    return jax.core.ShapedArray((), jnp.int32)


@_rank_p.def_impl
def _rank_now() -> jax.Array:
    with exchange_errors():
        return jax.jit(_rank_p.bind)()


def _lower_rank(context: mlir.LoweringRuleContext) -> list[Any]:
    """Read when it runs: the program may outlive the job in which it was traced."""
    return custom_calls.emit(
        context, custom_calls.RANK_INFO, [], context.avals_out, None, custom_calls.RANK
    )


lowering.register(_exchange_p, lowering.lower)
lowering.register(_start_p, lowering.lower_start)
lowering.register(_rank_p, _lower_rank)
partial_eval.dce_rules[_exchange_p] = partial_eval.dce_rules[_start_p] = _keep
batching.primitive_batchers[_exchange_p] = _batched
ad.primitive_jvps[_exchange_p] = _with_tangents
ad.primitive_transposes[_exchange_p] = _transposed
