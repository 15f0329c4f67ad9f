"""Has XLA start each gradient's exchange before it goes on with backpropagation: JAX's programs.

Why is said in `tf_byteps.ops.compiled.start_scheduling`, which does the same for TensorFlow's
graphs: what uses the gradient of a layer's output gets it only from the start of the exchange of
the layer's weights. Here the training step is traced to a jaxpr, and the jaxpr that JAX then goes
on with has other equations: one starts an exchange, and the operation that exchanges all gradients
ends it.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core

from tf_byteps.exchange import start_order
from tf_byteps.exchange.start_order import LEAST_ELEMENTS
from tf_byteps.jax.primitive import exchanges_of, start_before
from tf_byteps.strategy.jax import origins

_Atom: TypeAlias = "core.Var | core.Literal"
# The same numbers in another shape, from the only operand: no work for XLA.
_SHAPES = frozenset({"copy", "expand_dims", "reshape", "squeeze"})
_FORMS = _SHAPES | {"convert_element_type", "reduce_precision", "transpose"}
_SCALINGS = frozenset({"div", "mul"})
# Of one of their operands at least: the second use of a layer, a regularizer, no rows.
_SUMS = frozenset({"add", "add_any", "select_n"})
# What layers with weights compute for the gradient of these.
PRODUCTS = frozenset({"conv_general_dilated", "dot_general"})


@dataclasses.dataclass(frozen=True)
class _Hold:
    """The gradient of a layer's weights, and what is to come after its exchange has started.

    Equations are numbers of them.
    """

    exchange: int  # the equation that exchanges the gradient
    place: int  # which of its operands that is
    product: int  # computes the gradient
    index: int  # which of its operands is the layer's output's gradient, in some shape
    output_gradient: Any
    shapes: tuple[int, ...]  # from there to the product
    users: tuple[int, ...]  # the others


def started_first(step: Callable[..., Any]) -> Callable[..., Any]:
    """A training step whose backpropagation is ordered for XLA, while `jax.jit` traces it.

    No number changes. The cost is a few passes over the equations of the step.

    Args:
        step: takes a state and a batch.
    """

    def call(state: object, data: object) -> Any:
        leaves = jax.tree.leaves((state, data))
        if not any(isinstance(x, jax.core.Tracer) for x in leaves):
            return step(state, data)  # at once
        program, of_results = program_of(step, state, data)
        results = jax.core.eval_jaxpr(program.jaxpr, program.consts, *leaves)
        return jax.tree.unflatten(of_results, results)

    return call


def program_of(
    step: Callable[..., Any], state: object, data: object
) -> tuple[core.ClosedJaxpr, Any]:
    """A training step as a program whose backpropagation is ordered for XLA, where it can be.

    Args:
        step: takes a state and a batch.
        state: of which the leaves of both are the program's arguments.
        data: see `state`.

    Returns:
        The program, and the structure of what its results are the leaves of.
    """
    leaves, structure = jax.tree.flatten((state, data))
    found = []

    def flat(*leaves: object) -> list[Any]:
        results, of_results = jax.tree.flatten(step(*jax.tree.unflatten(structure, leaves)))
        found.append(of_results)
        return results

    program = jax.make_jaxpr(flat)(*leaves)
    return ordered(program) or program, found[-1]


def ordered(program: core.ClosedJaxpr) -> core.ClosedJaxpr | None:
    """A program in which exchanges start before backpropagation goes on.

    Args:
        program: the step's.

    Returns:
        Another one with the same arguments and results, or None: no exchange can start early.
    """
    return _Program(program).ordered()


class _Program:
    """A jaxpr whose equations are changed."""

    def __init__(self, given: core.ClosedJaxpr) -> None:
        given = origins.expanded(given)
        self._jaxpr = given.jaxpr
        self._constants = given.consts
        self._equations: list[Any] = given.jaxpr.eqns
        self._made_by = {
            out: number
            for number, equation in enumerate(self._equations)
            for out in equation.outvars
        }
        self._users: dict[Any, list[int]] = collections.defaultdict(list)
        for number, equation in enumerate(self._equations):
            for each in dict.fromkeys(_variables(equation)):
                self._users[each].append(number)

    def ordered(self) -> core.ClosedJaxpr | None:
        """The program in which exchanges start early, or None if none can."""
        holds = self._find_all()
        if not holds:
            return None
        return self._started(holds, self._together(holds)) or self._started(
            holds, {(hold.exchange, hold.place): [hold.place] for hold in holds}
        )

    def _find_all(self) -> list[_Hold]:
        """In the order of backpropagation, in which JAX has made the equations."""
        uses = collections.Counter(
            name for equation in self._equations for name in names_in(equation)
        )
        products = []
        for number, equation in enumerate(self._equations):
            exchanges = exchanges_of(equation)
            if exchanges is None or exchanges.is_derived or exchanges.kind != "sum":
                continue
            if any(uses[name] > 1 for name in exchanges.names):
                continue  # the second use comes after the end of the first
            for place, gradient in enumerate(equation.invars):
                product = self._product_behind(gradient) if _is_large(gradient) else None
                if product is not None:
                    products.append((product, number, place))
        holds: list[_Hold] = []
        for product, number, place in sorted(products):
            holds += self._find(product, number, place, holds)
        return holds

    def _product_behind(self, gradient: _Atom) -> int | None:
        """The last product that a gradient is made of by nothing but casts, shapes and sums."""
        found, seen, left = [], set(), [gradient]
        while left:
            atom = left.pop()
            number = None if isinstance(atom, core.Literal) else self._made_by.get(atom)
            if number is None or number in seen:
                continue
            seen.add(number)
            equation = self._equations[number]
            name = equation.primitive.name
            if name in PRODUCTS:
                found.append(number)
            elif name in _FORMS:
                left.append(equation.invars[0])
            elif name in _SUMS:
                left += [each for each in equation.invars if _shape(each) == _shape(atom)]
            elif name in _SCALINGS:
                first, second = equation.invars
                if self._is_scalar(second):
                    left.append(first)
                elif name == "mul" and self._is_scalar(first):
                    left.append(second)
        return max(found, default=None)

    def _is_scalar(self, atom: _Atom) -> bool:
        if not _shape(atom):
            return True
        number = None if isinstance(atom, core.Literal) else self._made_by.get(atom)
        if number is None:
            return False
        equation = self._equations[number]
        return equation.primitive.name == "broadcast_in_dim" and not _shape(equation.invars[0])

    def _find(self, product: int, exchange: int, place: int, earlier: Sequence[_Hold]) -> Any:
        """A list of one hold, or of none."""
        operands = self._equations[product].invars
        known = [
            (self._made_by[each], index)
            for index, each in enumerate(operands)
            if each in self._made_by and jnp.issubdtype(each.aval.dtype, jnp.floating)
        ]
        if not known:
            return []
        # The latest operand is what comes back through the layer; the other is the layer's input.
        _, index = max(known)
        variable = operands[index]
        shapes: list[int] = []
        while (number := self._made_by.get(variable)) is not None:
            if self._equations[number].primitive.name not in _SHAPES:
                break
            shapes.insert(0, number)
            variable = self._equations[number].invars[0]
        # Two layers may have one output gradient: the second's product comes after the first start.
        own = {each.product for each in earlier if each.output_gradient is variable} | {product}
        users = tuple(user for user in self._users[variable] if user not in own)
        later = set(users)
        for number in shapes:
            later |= set(self._users[self._equations[number].outvars[0]])
        if not later - own - set(shapes):
            return []  # the first layer's
        return [_Hold(exchange, place, product, index, variable, tuple(shapes), users)]

    def _together(self, holds: Sequence[_Hold]) -> dict[tuple[int, int], list[int]]:
        together = {}
        for exchange in {hold.exchange for hold in holds}:
            smaller = [
                place
                for place, gradient in enumerate(self._equations[exchange].invars)
                if not isinstance(gradient, core.Literal) and not _is_large(gradient)
            ]
            large = [hold.place for hold in holds if hold.exchange == exchange]
            for place, places in start_order.with_smaller(large, smaller).items():
                together[exchange, place] = places
        return together

    def _started(self, holds: Sequence[_Hold], together: dict[tuple[int, int], list[int]]) -> Any:
        """The program, or None: some equations would wait for each other.

        All gradients may be clipped by the norm of all, for example, or the list may be in another
        order than the layers.
        """
        equations = list(self._equations)
        latest: dict[Any, Any] = {}  # what has passed, by what it was
        new: dict[int, list[Any]] = collections.defaultdict(list)  # by the product they belong to
        for hold in holds:
            places = together[hold.exchange, hold.place]
            before = latest.get(hold.output_gradient, hold.output_gradient)
            new[hold.product] += self._give_own_operand(equations, hold, before)
            whole = equations[hold.exchange]
            start = start_before(
                [whole.invars[place] for place in places],
                [before],
                exchanges_of(whole).some(places),
            )
            new[hold.product].append(start)
            *same, latest[hold.output_gradient] = start.outvars
            operands = list(whole.invars)
            for place, value in zip(places, same, strict=True):
                operands[place] = value
            equations[hold.exchange] = whole.replace(invars=operands)
        for hold in holds:
            for user in hold.users:
                _give(equations, user, hold.output_gradient, latest[hold.output_gradient])
        in_order = _in_order(
            [each for number, own in enumerate(equations) for each in [own, *new[number]]]
        )
        if in_order is None:
            return None
        return core.ClosedJaxpr(self._jaxpr.replace(eqns=in_order), self._constants)

    def _give_own_operand(self, equations: list[Any], hold: _Hold, before: core.Var) -> list[Any]:
        """Gives the product what was there before the start, by equations of its own.

        If others used the same memory, XLA would copy it for the start, which gives it on.
        """
        made = []
        for number in hold.shapes:
            shape = self._equations[number]
            (out,) = shape.outvars
            before_in_shape = core.gensym()(out.aval)
            made.append(
                shape.replace(invars=[before, *shape.invars[1:]], outvars=[before_in_shape])
            )
            before = before_in_shape
        product = equations[hold.product]
        operands = list(product.invars)
        operands[hold.index] = before
        equations[hold.product] = product.replace(invars=operands)
        return made


def _variables(equation: core.JaxprEqn) -> list[Any]:
    return [atom for atom in equation.invars if not isinstance(atom, core.Literal)]


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _is_large(gradient: Any) -> bool:
    return gradient.aval.size >= LEAST_ELEMENTS


def _give(equations: list[Any], number: int, old: core.Var, new: core.Var) -> None:
    equation = equations[number]
    equations[number] = equation.replace(
        invars=[new if atom is old else atom for atom in equation.invars]
    )


def names_in(equation: core.JaxprEqn) -> list[str]:
    """The names of the exchanges of an equation, and of the functions in it."""
    exchanges = exchanges_of(equation)
    if exchanges is not None:
        return list(exchanges.names)
    return [
        *(origins.names_of(equation) or ()),
        *(
            name
            for inner in core.jaxprs_in_params(equation.params)
            for each in inner.eqns
            for name in names_in(each)
        ),
    ]


def _in_order(equations: Sequence[Any]) -> list[Any] | None:
    """Each after those that it needs; None if that cannot be.

    Those with an effect and those that end exchanges stay in the order that they have.
    """
    made_by = {out: number for number, each in enumerate(equations) for out in each.outvars}
    before_of: dict[int, set[int]] = {}
    last: set[int] = set()
    for number, equation in enumerate(equations):
        before = {made_by[each] for each in _variables(equation) if each in made_by}
        if equation.effects or names_in(equation):
            before |= last
            last = {number}
        before_of[number] = before
    order = start_order.in_order(before_of)
    return [equations[number] for number in order] if len(order) == len(equations) else None
