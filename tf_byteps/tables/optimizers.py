"""What may be a table's own optimizer; `gradients.table_optimizers` lets it update."""

from __future__ import annotations

import json
from typing import Any

import keras

_OURS = "tf_byteps.keras.optimizers"  # by name: that package imports this one
# Of optimizers that Keras has: those that update only the rows of a step.
_ROW_WISE = {
    "Adadelta": "Adadelta",
    "Adam": "LazyAdam",
    "Ftrl": "Ftrl",
    "RMSprop": "RMSprop",
    "SGD": "LazySGD",
}


def checked(table: str, optimizer: Any) -> Any:
    """The optimizer that a program gives a table.

    Args:
        table: the table's name.
        optimizer: a `keras.optimizers.Optimizer`, the name of one, or `None`.

    Returns:
        A `keras.optimizers.Optimizer`, or `None`.

    Raises:
        ValueError: there is no optimizer of this name, or it does what only a model's can do.
        TypeError: it is something else.
    """
    if optimizer is None:
        return None
    if isinstance(optimizer, str):
        try:
            optimizer = keras.optimizers.get(optimizer)
        except ValueError:
            raise ValueError(
                f"optimizer of the table {table!r} is {optimizer!r}, and Keras has no such "
                "name: give a name of keras.optimizers, such as 'adagrad', or an optimizer"
            ) from None
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"optimizer of the table {table!r} must be a keras.optimizers.Optimizer, its name, or "
            f"None for the model's, got {type(optimizer).__name__}"
        )
    is_wrapper = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if is_wrapper or hasattr(optimizer, "register_local_var"):
        raise ValueError(
            f"optimizer of the table {table!r} is a {type(optimizer).__name__} that wraps another: "
            "give the plain one. Loss scaling and sums over workers are those of the model"
        )
    for setting in ("loss_scale_factor", "gradient_accumulation_steps", "use_ema"):
        value = getattr(optimizer, setting)
        if value:
            raise ValueError(
                f"optimizer of the table {table!r} has {setting}={value!r}, which only the "
                "optimizer of Model.compile can have: leave it out"
            )
    return optimizer


def check_on_servers(table: str, optimizer: Any) -> None:
    """Raises ValueError if servers cannot update a table as this optimizer does.

    Args:
        table: the table's name.
        optimizer: what `checked` has returned.
    """
    kind = type(optimizer)
    is_plain_sgd = kind is keras.optimizers.SGD and not optimizer.momentum
    if not (kind.__module__ == _OURS or kind is keras.optimizers.Adagrad or is_plain_sgd):
        found = "None" if optimizer is None else kind.__name__
        momentum = " with momentum" if kind is keras.optimizers.SGD else ""
        given = f"{_OURS}.{_ROW_WISE[found]}" if found in _ROW_WISE else "one of these"
        raise ValueError(
            f"the table {table!r} has placement='servers' and optimizer {found}{momentum}: servers "
            f"update rows by SGD without momentum, Adagrad, or an optimizer of {_OURS}; give "
            f"{given} to its TableConfig"
        )
    for setting in ("beta_1", "beta_2"):
        value = getattr(optimizer, setting, 0)
        if not 0 <= value < 1:
            raise ValueError(
                f"the table {table!r} has placement='servers', and its optimizer has "
                f"{setting}={value!r}, which servers do not support: give a number from 0 to "
                "below 1"
            )
    for setting in ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay"):
        value = getattr(optimizer, setting)
        if value:
            raise ValueError(
                f"the table {table!r} has placement='servers', and its optimizer has "
                f"{setting}={value!r}, which servers do not support: leave it out"
            )


def key(optimizer: Any) -> object:
    """What is equal for optimizers that update alike, so that their tables can share a variable."""
    if optimizer is None:
        return None
    config = {**optimizer.get_config(), "name": None}
    return type(optimizer), json.dumps(config, sort_keys=True, default=repr)
