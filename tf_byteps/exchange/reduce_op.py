"""How `push_pull` combines the workers' values."""

import enum


class ReduceOp(enum.StrEnum):
    """An elementwise reduction over the workers. Each equals its name: `Sum == "sum"`."""

    SUM = "sum"
    AVERAGE = "average"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


Sum = ReduceOp.SUM
Average = ReduceOp.AVERAGE
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT

_UNSUPPORTED = {
    "adasum": (
        "it combines gradients pair by pair, which servers that add up do not; use Average and "
        "scale the learning rate"
    )
}


def resolve(average: bool | None, op: ReduceOp | str | None) -> ReduceOp:
    """Returns the `ReduceOp` that a caller asked for.

    Args:
        average: `None`, or the older way to say it: `True` for an average, `False` for a sum.
        op: `None`, a `ReduceOp`, or its name in any case.

    Returns:
        A `ReduceOp`; an average if neither is given.

    Raises:
        ValueError: both are given, or `op` is unknown.
        NotImplementedError: `op` exists in other libraries only.
    """
    if op is None:
        return Sum if average is not None and not average else Average
    if average is not None:
        raise ValueError(f"pass either average or op, not both; got average={average}, op={op!r}")
    if str(op).lower() in _UNSUPPORTED:
        raise NotImplementedError(
            f"op {str(op)!r} is not supported: {_UNSUPPORTED[str(op).lower()]}"
        )
    try:
        return ReduceOp(str(op).lower())
    except ValueError:
        known = ", ".join(repr(str(member)) for member in ReduceOp)
        raise ValueError(f"unknown op {op!r}: use one of {known}") from None
