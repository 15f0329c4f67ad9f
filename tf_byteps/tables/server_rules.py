"""How servers update rows: by the rules of the optimizers that a table on the servers may have.

Of an optimizer a server gets a rule and hyperparameters (`RowRule`), once, and in each step a rate.
What depends on the step, as Adam's correction of the bias, is in the rate: steps are counted by the
optimizer on the workers, which is saved and loaded with the model. So no server has a count that
could be lost with it, or differ from another's.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from tf_byteps.tables import distributions


class _Form(NamedTuple):
    """A kind of rules: its number, how many states a row has, and the hyperparameters."""

    kind: int
    states: int = 0
    numbers: tuple[str, ...] = ()


_BETAS = ("beta_1", "beta_2", "epsilon")
_REGULARIZATION = (
    "l1_regularization_strength",
    "l2_regularization_strength",
    "l2_shrinkage_regularization_strength",
)
_SWITCHES = ("momentum", "nesterov", "centered", "amsgrad")

# By the optimizer's class, without "Lazy", and its switches. Kinds are those of cc/base/row_rule.h,
# and states are in the order in which the optimizer makes them.
_FORMS = {
    "SGD": _Form(0),
    "SGD nesterov": _Form(0),  # without momentum
    "Adagrad": _Form(1, 1, ("epsilon",)),
    "RowWiseAdagrad": _Form(2, 1, ("epsilon",)),
    "SGD momentum": _Form(3, 1, ("momentum",)),
    "SGD momentum nesterov": _Form(4, 1, ("momentum",)),
    "Adam": _Form(5, 2, _BETAS),
    "Adam amsgrad": _Form(6, 3, _BETAS),
    "Ftrl": _Form(7, 2, ("learning_rate_power", *_REGULARIZATION, "beta")),
    "RMSprop": _Form(8, 1, ("rho", "epsilon")),
    "RMSprop momentum": _Form(9, 2, ("rho", "epsilon", "momentum")),
    "RMSprop centered": _Form(10, 2, ("rho", "epsilon")),
    "RMSprop momentum centered": _Form(11, 3, ("rho", "epsilon", "momentum")),
    "Adadelta": _Form(12, 2, ("rho", "epsilon")),
}


@dataclasses.dataclass(frozen=True)
class RowRule:
    """How a server updates a row.

    Attributes:
        kind: of the rule, as cc/base/row_rule.h numbers them.
        states: how many the optimizer keeps for a row.
        state_width: how many numbers each of them has.
        first_state: what the first one begins with. Others begin with 0.
        numbers: the kind's hyperparameters, at most 5.
    """

    kind: int
    states: int
    state_width: int
    first_state: float
    numbers: tuple[float, ...]


def of(optimizer: Any, width: int, dtype: str) -> RowRule:
    """The rule of an optimizer.

    Args:
        optimizer: a `keras.optimizers.Optimizer` that `optimizers.check_on_servers` allows.
        width: how many numbers a row has.
        dtype: of the rows.
    """
    switches = [each for each in _SWITCHES if getattr(optimizer, each, False)]
    form = _FORMS[" ".join([type(optimizer).__name__.removeprefix("Lazy"), *switches])]
    first = getattr(optimizer, "initial_accumulator_value", 0.0)
    return RowRule(
        kind=form.kind,
        states=form.states,
        state_width=1 if type(optimizer).__name__ == "RowWiseAdagrad" else width,
        first_state=distributions.constant(first, dtype),
        numbers=tuple(_number(optimizer, name) for name in form.numbers),
    )


def _number(optimizer: Any, name: str) -> float:
    value = float(getattr(optimizer, name))
    return -value if name == "learning_rate_power" else value  # servers get none below 0
