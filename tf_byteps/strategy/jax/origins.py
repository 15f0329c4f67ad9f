"""Gradients of the whole batch where they come to be, whatever a step then does with them.

A model reads its weights from a `keras.StatelessScope`. There each trainable value is spread over
the workers: nothing changes, but its cotangent is reduced over them. So what `jax.grad` returns is
the gradient of the whole batch, before a step of the program's clips it, logs it or hands it to an
optimizer.

The two operations are each other's transpose: spreading takes a value that all workers share to
each one's own, reducing goes back. So a gradient of a gradient is right, too. Tangents of
`jax.jvp` stay the worker's own. So do the gradients of single rows under `jax.vmap`.

All readings of a value in one differentiation share one exchange.
"""

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.core
import keras
from jax.extend import core
from jax.interpreters import ad, batching, mlir, partial_eval

from tf_byteps.jax import lowering
from tf_byteps.strategy.jax import steps
from tf_byteps.strategy.jax.steps import Step

_spread_p = core.Primitive("byteps_spread")
_reduce_p = core.Primitive("byteps_reduce")
_spread_p.multiple_results = _reduce_p.multiple_results = True

# Reduces gradients of variables: takes a step, the gradients, the variables and names.
Reduce = Callable[[Step, list[Any], Sequence[Any], Sequence[str]], list[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Values:
    """The operands of one of the two operations. JAX keeps them with what it has traced.

    Attributes:
        step: that reads them.
        references: weak ones, to the `keras.Variable`s whose values, or gradients, they are.
        reduce: how gradients are reduced.
        names: of the exchanges, if they are gradients.
    """

    step: Step
    references: tuple[weakref.ref[Any], ...]
    reduce: Reduce
    names: tuple[str, ...] = ()

    @property
    def variables(self) -> list[Any]:
        """The `keras.Variable`s."""
        return [reference() for reference in self.references]

    def of(self, places: Iterable[int]) -> "Values":
        """Some of them."""
        return dataclasses.replace(self, references=tuple(self.references[i] for i in places))


def spread(scope: Any, pairs: Sequence[tuple[Any, Any]], reduce: Reduce) -> None:
    """Spreads the trainable values that a training step reads from a scope.

    Args:
        scope: a new `keras.StatelessScope`.
        pairs: of a `keras.Variable` and its value, which the scope has been made of.
        reduce: see `Values`.
    """
    step = steps.current()
    if step is None or step.is_reduced or not step.is_training:
        return
    values = scope.state_mapping
    now = core.get_opaque_trace_state()
    new: dict[int, Any] = {}
    for variable, _ in pairs:
        value = values[id(variable)]
        if not (variable.trainable and keras.backend.is_float_dtype(variable.dtype)):
            continue
        known = step.spread.get(id(value))
        if known is not None and known.within == now:
            values[id(variable)] = known.result
        else:
            new[id(variable)] = variable
    if not new:
        return
    given = [values[key] for key in new]
    results = _spread_p.bind(
        *given, values=Values(step, tuple(map(weakref.ref, new.values())), reduce)
    )
    for key, value, result in zip(new, given, results, strict=True):
        step.spread[id(value)] = steps.Spread(value, now, result)
        values[key] = result


def names_of(equation: core.JaxprEqn) -> tuple[str, ...] | None:
    """The names under which an equation of a `jax.extend.core.Jaxpr` reduces gradients; None: it
    does something else."""
    return equation.params["values"].names if equation.primitive is _reduce_p else None


def expanded(program: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """A step's program with what reduces gradients in the place of the equations that do, and
    without those that spread values, which need all variables at once."""
    constants = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    equations: list[Any] = []
    same: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return atom if isinstance(atom, core.Literal) else same.get(atom, atom)

    for equation in program.jaxpr.eqns:
        equation = equation.replace(invars=[read(atom) for atom in equation.invars])
        if equation.primitive is _spread_p:
            same.update(zip(equation.outvars, equation.invars, strict=True))
            continue
        if names_of(equation) is None:
            equations.append(equation)
            continue
        inner = _expanded(equation)
        constants.update(zip(inner.jaxpr.constvars, inner.consts, strict=True))
        same.update(zip(inner.jaxpr.invars, equation.invars, strict=True))
        for each in inner.jaxpr.eqns:
            equations.append(each.replace(invars=[read(atom) for atom in each.invars]))
        results = [read(atom) for atom in inner.jaxpr.outvars]
        same.update(zip(equation.outvars, results, strict=True))
    jaxpr = program.jaxpr.replace(
        constvars=list(constants),
        eqns=equations,
        outvars=[read(atom) for atom in program.jaxpr.outvars],
    )
    return core.ClosedJaxpr(jaxpr, list(constants.values()))


def _expanded(equation: Any) -> Any:
    types = [jax.ShapeDtypeStruct(each.aval.shape, each.aval.dtype) for each in equation.invars]
    return jax.make_jaxpr(lambda *gradients: _reduce(*gradients, **equation.params))(*types)


def _same(*operands: Any, values: Values) -> list[Any]:
    del values
    return list(operands)


def _types(*avals: Any, values: Values) -> list[Any]:
    del values
    return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in avals]


def _reduce(*gradients: Any, values: Values) -> list[Any]:
    return values.reduce(values.step, list(gradients), values.variables, values.names)


def _reduced(gradients: Sequence[Any], values: Values) -> list[Any]:
    """Gradients of the whole batch, which an optimizer will know again."""
    step = values.step
    names = tuple(step.numbered(f"gradient/{variable.path}") for variable in values.variables)
    step.at_origin.update(map(id, values.variables))
    results = _reduce_p.bind(*gradients, values=dataclasses.replace(values, names=names))
    step.reduced.update((id(result), result) for result in results)
    return results


def _jvp(bind: Callable[..., list[Any]]) -> Callable[..., Any]:
    """Of a linear operation: tangents are treated as values are."""

    def rule(primals: Sequence[Any], tangents: Sequence[Any], values: Values) -> Any:
        results = bind(primals, values)
        out: list[Any] = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
        places = [i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
        if places:
            changed = bind([tangents[i] for i in places], values.of(places))
            for place, tangent in zip(places, changed, strict=True):
                out[place] = tangent
        return results, out

    return rule


def _spread_again(operands: Sequence[Any], values: Values) -> list[Any]:
    return _spread_p.bind(*operands, values=values)


def _transposed(bind: Callable[..., list[Any]]) -> Callable[..., Any]:
    def rule(cotangents: Sequence[Any], *operands: Any, values: Values) -> list[Any]:
        out: list[Any] = [ad.Zero(operand.aval) for operand in operands]
        places = [i for i, each in enumerate(cotangents) if type(each) is not ad.Zero]
        if places:
            changed = bind([cotangents[i] for i in places], values.of(places))
            for place, cotangent in zip(places, changed, strict=True):
                out[place] = cotangent
        return out

    return rule


def _each_row(operands: Sequence[Any], axes: Sequence[Any], values: Values) -> Any:
    """Rows of workers do not belong together: their gradients stay each worker's own."""
    values.step.at_origin.difference_update(map(id, values.variables))
    return list(operands), list(axes)


def _keep(used: list[bool], equation: core.JaxprEqn) -> tuple[list[bool], Any]:
    del used  # other workers may use theirs
    return [True] * len(equation.invars), equation


for _primitive in (_spread_p, _reduce_p):
    _primitive.def_abstract_eval(_types)
_spread_p.def_impl(_same)
_reduce_p.def_impl(_reduce)
mlir.register_lowering(_spread_p, lambda _, *operands, values: list(operands))
lowering.register(_reduce_p, mlir.lower_fun(_reduce, multiple_results=True))
partial_eval.dce_rules[_reduce_p] = _keep
batching.primitive_batchers[_spread_p] = lambda operands, axes, values: (operands, axes)
batching.primitive_batchers[_reduce_p] = _each_row
ad.primitive_jvps[_spread_p] = _jvp(_spread_again)
ad.primitive_jvps[_reduce_p] = _jvp(_reduced)
ad.primitive_transposes[_spread_p] = _transposed(_reduced)
ad.primitive_transposes[_reduce_p] = _transposed(_spread_again)
