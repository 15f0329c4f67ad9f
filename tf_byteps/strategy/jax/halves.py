"""A training step in two halves: the first computes gradients, the second updates with their sums.

The second half is what leads from the sums to the trained variables and those of the optimizer. It
needs nothing else of the step, so that the next step's program can do it: each variable is updated
where the next first half comes to use it, and waits for the sums that it needs.
"""

import dataclasses
import itertools
import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core

from tf_byteps.exchange.arguments import forward_order_at
from tf_byteps.jax import detached
from tf_byteps.jax.exchanges import Exchanges
from tf_byteps.jax.primitive import exchanges_of, starts_of
from tf_byteps.strategy.jax.equations import (
    constants_in,
    contents_of,
    known_exchanges,
    read,
    together_in,
    variables_of,
)
from tf_byteps.strategy.jax.start_scheduling import PRODUCTS, names_in

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_Values = dict[Any, Any]  # of variables of a jaxpr, in a program that JAX traces


class UnsuitedStep(Exception):
    """A step that cannot be cut. The message is the end of a sentence."""


@dataclasses.dataclass(frozen=True)
class InFlight:
    """What the first half of a step has started, a tree of JAX.

    Attributes:
        halves: of this step.
        run: the number of the program's run.
        values: by the name of each exchange.
    """

    halves: "Halves"
    run: Any
    values: dict[str, Any]


jax.tree_util.register_dataclass(InFlight, ["run", "values"], ["halves"])


class Halves:
    """A training step that is cut in two.

    Args:
        program: the step, with exchanges as equations of their own.
        is_variable: of each argument, whether it is a variable that the second half updates.
        is_updated: of each result, whether it is such a variable's new value. Both have one order.

    Raises:
        UnsuitedStep: it cannot be cut.
    """

    def __init__(
        self, program: core.ClosedJaxpr, is_variable: Sequence[bool], is_updated: Sequence[bool]
    ) -> None:
        self._jaxpr = jaxpr = program.jaxpr
        self.constants: _Values = dict(zip(jaxpr.constvars, program.consts, strict=True))
        self.variables = list(itertools.compress(jaxpr.invars, is_variable))
        self._made_by = {out: n for n, each in enumerate(jaxpr.eqns) for out in each.outvars}
        self.updated = list(itertools.compress(jaxpr.outvars, is_updated))
        self._results = list(itertools.compress(jaxpr.outvars, [not each for each in is_updated]))
        deferred, self._first = self._cut()
        early = [starts.names for each in self._first if (starts := starts_of(each)) is not None]
        #: A sum that the second half uses -> the exchanges that its own is started with.
        self.sums = {
            out: together
            for number in sorted(deferred)
            for together in together_in(jaxpr.eqns[number], early)
            for out in together.sums
        }
        #: The name of an exchange -> its sum.
        self.sum_of = {
            name: out for each in set(self.sums.values()) for name, out in each.sums_by_name()
        }
        # What the next step's forward pass needs first goes first.
        in_order = [name for number in sorted(deferred) for name in names_in(jaxpr.eqns[number])]
        self._priority_of = {name: forward_order_at(i) for i, name in enumerate(in_order)}
        #: What leads to each variable's new value, in order.
        self.second = [self._in_order(self._needed([out], deferred)) for out in self.updated]
        self._check_second()
        self._key = self._contents_of_second()
        self._hash = hash(self._key)  # asked for in each step

    def __eq__(self, other: object) -> bool:
        """Whether both update alike: JAX compiles a program once for all that do."""
        return isinstance(other, Halves) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def _contents_of_second(self) -> tuple[Any, ...]:
        equations = list({id(each): each for each in itertools.chain(*self.second)}.values())
        atoms = dict.fromkeys(atom for each in equations for atom in variables_of(each.invars))
        constants = [atom for atom in atoms if atom in self.constants]
        inside = [each for equation in equations for each in constants_in(equation.params)]
        given = [*self.variables, *self.sums, *constants]
        jaxpr = self._jaxpr.replace(
            constvars=[], invars=given, outvars=self.updated, eqns=equations
        )
        values = tuple(map(contents_of, [*(self.constants[each] for each in constants), *inside]))
        exchanges = tuple(dict.fromkeys(each.exchanges for each in self.sums.values()))
        return _ADDRESS.sub("", str(jaxpr)), exchanges, values

    def _cut(self) -> tuple[set[int], list[Any]]:
        """The exchanges whose sums the second half has, and the first half in order."""
        sums, kept = set(), set()
        for number, equation in enumerate(self._jaxpr.eqns):
            exchanges = exchanges_of(equation)
            if exchanges is not None and exchanges.kind == "sum" and not exchanges.is_derived:
                sums.add(number)
            elif equation.effects or names_in(equation):
                kept.add(number)
        first = self._needed([*self._results, *self._operands(kept)]) | kept
        deferred = sums - first
        first |= self._needed(self._operands(deferred))
        if not deferred or deferred & first:
            raise UnsuitedStep("what a step computes needs the sums of its gradients")
        return deferred, self._in_order(first | deferred)

    def _in_order(self, numbers: Iterable[int]) -> list[Any]:
        return [self._jaxpr.eqns[number] for number in sorted(numbers)]

    def _operands(self, numbers: Iterable[int]) -> list[Any]:
        return [atom for number in numbers for atom in self._jaxpr.eqns[number].invars]

    def _needed(self, atoms: Iterable[Any], ends: Iterable[int] = ()) -> set[int]:
        """The equations that make atoms, without `ends` and what these alone need."""
        found, left = set(ends), list(atoms)
        while left:
            atom = left.pop()
            number = None if isinstance(atom, core.Literal) else self._made_by.get(atom)
            if number is not None and number not in found:
                found.add(number)
                left += self._jaxpr.eqns[number].invars
        return found - set(ends)

    def _check_second(self) -> None:
        """It must need nothing that another program does not have."""
        constants = {v for v, x in self.constants.items() if not isinstance(x, jax.core.Tracer)}
        known = {*self.variables, *constants, *self.sums, *self._made_by}
        equations = [*itertools.chain(*self.second)]
        atoms = {atom for each in equations for atom in variables_of(each.invars)}
        has_effects = any(each.effects or names_in(each) for each in equations)
        if has_effects or atoms.union(variables_of(self.updated)) - known:
            raise UnsuitedStep("an update needs more than variables and sums of gradients")

    def compute(
        self, arguments: Sequence[Any], before: InFlight | None
    ) -> tuple[list[Any], list[Any], InFlight]:
        """The first half, after the second half of the step before.

        Args:
            arguments: of the step.
            before: what the step before has started; None: there is none.

        Returns:
            The results of the step but for the updated variables, these as the step before leaves
            them, and what the first half has started.
        """
        values = {**self.constants, **dict(zip(self._jaxpr.invars, arguments, strict=True))}
        given = [values.pop(variable) for variable in self.variables]
        update = Update(before, given)
        started: dict[str, Any] = {}
        run: Any = None
        last: list[Any] = []
        for equation in self._first:
            last = self._computed_factor(equation, values) or last
            for variable in variables_of(equation.invars):
                if variable not in values:
                    values[variable] = update.variable(self.variables.index(variable), last)
            exchanges = starts_of(equation) or exchanges_of(equation)
            if exchanges is not None and exchanges.names[0] in self.sum_of:
                groups = self._groups_to_start(exchanges, started)
                begun, number = _start(equation, groups, values, update, last)
                started.update(begun)
                run = run if number is None else number
            else:
                self.evaluate(equation, values)
        for index, variable in enumerate(self.variables):
            if variable not in values:
                values[variable] = update.variable(index, [])
        update.end_all()
        results = [read(atom, values) for atom in self._results]
        return results, [values[each] for each in self.variables], InFlight(self, run, started)

    def _groups_to_start(self, exchanges: Exchanges, started: Container[str]) -> list[Exchanges]:
        """Those of some exchanges that have not started yet, with the priorities they have here."""
        left = [name for name in exchanges.names if name not in started]
        together = dict.fromkeys(self.sums[self.sum_of[name]].exchanges for name in left)
        return [
            dataclasses.replace(
                each, priorities=tuple(self._priority_of[name] for name in each.names)
            )
            for each in together
        ]

    def _computed_factor(self, equation: core.JaxprEqn, values: _Values) -> list[Any]:
        """What a layer multiplies its weights with. It is in memory in any case."""
        if equation.primitive.name not in PRODUCTS:
            return []
        return [
            values[atom]
            for atom in variables_of(equation.invars)
            if atom in values and atom in self._made_by
            if jnp.issubdtype(atom.aval.dtype, jnp.floating)
        ][:1]

    def evaluate(self, equation: core.JaxprEqn, values: _Values) -> None:
        """Adds what an equation makes to the values."""
        operands = list(dict.fromkeys(variables_of(equation.invars)))
        outs = [out for out in equation.outvars if not isinstance(out, core.DropVar)]
        jaxpr = self._jaxpr.replace(
            constvars=[], invars=operands, outvars=outs, eqns=[equation], effects=equation.effects
        )
        results = jax.core.eval_jaxpr(jaxpr, (), *(values[each] for each in operands))
        values.update(zip(outs, results, strict=True))


class Update:
    """The second half of a step, done piece by piece in a later program.

    Args:
        in_flight: what the first half has started; None: there was none.
        variables: as the first half has left them.
    """

    def __init__(self, in_flight: InFlight | None, variables: Sequence[Any]) -> None:
        self._in_flight = in_flight
        self._given = variables
        self._ended: dict[str, Any] = {}
        self._done: set[int] = set()
        self._values: _Values = {}
        if in_flight is not None:
            halves = in_flight.halves
            self._values = {**halves.constants, **dict(zip(halves.variables, variables))}

    def variable(self, index: int, after: Sequence[Any]) -> Any:
        """The new value of a variable. It waits for sums after some arrays are there."""
        if self._in_flight is None:
            return self._given[index]
        halves = self._in_flight.halves
        for equation in halves.second[index]:
            if id(equation) not in self._done:
                self._done.add(id(equation))
                for operand in variables_of(equation.invars):
                    self._end(operand, after)
                halves.evaluate(equation, self._values)
        out = halves.updated[index]
        self._end(out, after)
        # XLA computes the update as if it were at the end of a program.
        return jax.lax.optimization_barrier(read(out, self._values))

    def end(self, name: str, after: Sequence[Any]) -> list[Any]:
        """Ends an exchange, if it is one of these: an array that is there when it has ended."""
        if self._in_flight is not None:
            self._end(self._in_flight.halves.sum_of.get(name), after)
        return [self._ended[name]] if name in self._ended else []

    def end_all(self) -> None:
        """Ends also those whose sums nobody uses."""
        for name in self._in_flight.values if self._in_flight is not None else ():
            self.end(name, [])

    def _end(self, atom: Any, after: Sequence[Any]) -> None:
        in_flight: Any = self._in_flight
        together = None if isinstance(atom, core.Literal) else in_flight.halves.sums.get(atom)
        if together is None or atom in self._values:
            return
        names = together.exchanges.names
        totals, ended = detached.wait(
            in_flight.run,
            [in_flight.values[name] for name in names],
            after,
            together.exchanges,
            [out.aval for out in together.sums],
        )
        self._values.update(zip(together.sums, totals, strict=True))
        self._ended.update(dict.fromkeys(names, ended))


def updated(variables: Sequence[Any], before: InFlight) -> list[Any]:
    """The second half of a step alone.

    Args:
        variables: as the first half has left them.
        before: what this has started.
    """
    update = Update(before, variables)
    results = [update.variable(index, []) for index in range(len(variables))]
    update.end_all()
    return results


def _start(
    equation: core.JaxprEqn,
    groups: Iterable[Exchanges],
    values: _Values,
    update: Update,
    last: Sequence[Any],
) -> tuple[dict[str, Any], Any]:
    """Starts what an equation starts or exchanges, each name after its last exchange has ended.

    Returns:
        What `detached.wait` needs of each, by name, and the number of the run.
    """
    starts = starts_of(equation)
    names = (starts or known_exchanges(equation)).names
    operands = [read(atom, values) for atom in equation.invars]
    operand_of = dict(zip(names, operands))
    started: dict[str, Any] = {}
    run = None
    for group in groups:
        # One end stands for all that ended together.
        ended = {id(end): end for name in group.names for end in update.end(name, last)}
        begun, passed, run = detached.start(
            [operand_of[name] for name in group.names],
            operands[len(names) :],
            list(ended.values()),
            group,
        )
        started.update(zip(group.names, begun, strict=True))
        if starts is not None:
            values.update(zip(equation.outvars, [*begun, *passed], strict=True))
    return started, run
