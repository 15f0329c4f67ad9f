"""What `halves` asks of a jaxpr's equations and of their constants."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from tf_byteps.exchange import start_order
from tf_byteps.jax.exchanges import Exchanges
from tf_byteps.jax.primitive import exchanges_of

# More than of other starts: what starts together is also waited for together, so that each group
# costs the host two calls. ResNet-50 has 30 starts with this, as a plain step has.
_BYTES_OF_A_CALL = 4 * start_order.MEGABYTE


def known_exchanges(equation: core.JaxprEqn) -> Exchanges:
    exchanges = exchanges_of(equation)
    assert exchanges is not None
    return exchanges


@dataclasses.dataclass(frozen=True)
class Together:
    """Exchanges that one call starts, and that are waited for together.

    Attributes:
        exchanges: what they are.
        sums: variables of the jaxpr, one for each.
    """

    exchanges: Exchanges
    sums: tuple[Any, ...]

    def sums_by_name(self) -> Iterator[tuple[str, Any]]:
        """Each name with its sum."""
        return zip(self.exchanges.names, self.sums, strict=True)


def together_in(equation: core.JaxprEqn, early: Iterable[Sequence[str]]) -> list[Together]:
    """What starts at once of an equation's exchanges: each call takes time of the host, on a GPU
    most of all.

    Args:
        equation: exchanges gradients.
        early: the names of each start that comes before, of any equation. The rest starts with its
            neighbors.
    """
    exchanges = known_exchanges(equation)
    place_of = {name: place for place, name in enumerate(exchanges.names)}
    groups = [[place_of[name] for name in names] for names in early if names[0] in place_of]
    begun = {place for group in groups for place in group}
    rest = [place for place in place_of.values() if place not in begun]
    avals: list[Any] = [equation.invars[place].aval for place in rest]
    sizes = [aval.size * aval.dtype.itemsize for aval in avals]
    neighbors = start_order.neighbors(sizes, _BYTES_OF_A_CALL)
    groups += [[rest[i] for i in group] for group in neighbors]
    return [
        Together(exchanges.some(group), tuple(equation.outvars[place] for place in group))
        for group in groups
    ]


def constants_in(value: Any) -> Iterator[Any]:
    """Those of the functions in an equation's parameters, which are no operands of it."""
    if isinstance(value, core.ClosedJaxpr):
        yield from value.consts
        yield from constants_in([each.params for each in value.jaxpr.eqns])
    elif isinstance(value, core.Jaxpr):
        yield from constants_in([each.params for each in value.eqns])
    elif isinstance(value, dict):
        yield from constants_in([*value.values()])
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from constants_in(each)


def contents_of(constant: Any) -> Any:
    """What tells a constant from others."""
    if isinstance(constant, jax.core.Tracer):
        return id(constant)
    if jnp.issubdtype(jax.typeof(constant).dtype, jax.dtypes.extended):  # keys of random numbers
        return id(constant)
    return np.asarray(constant).tobytes()


def variables_of(atoms: Iterable[Any]) -> list[Any]:
    """Those that are no literals."""
    return [atom for atom in atoms if not isinstance(atom, core.Literal)]


def read(atom: Any, values: Mapping[Any, Any]) -> Any:
    """The value of an atom of a jaxpr."""
    return atom.val if isinstance(atom, core.Literal) else values[atom]
