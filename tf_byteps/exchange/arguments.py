"""Checks of what exchanges are given besides tensors."""

import operator
from typing import Any

from tf_byteps import runtime
from tf_byteps.exchange.process_sets import ProcessSet

#: The engine learns the priority: see kBackwardOrder in cc/worker/state/exchange_request.h.
BACKWARD_ORDER = -(2**31)
FORWARD_ORDER = BACKWARD_ORDER + 1
_MOST_POSITIONS = 2**20


def forward_order_at(position: int) -> int:
    """FORWARD_ORDER for what the forward pass needs as this number: see ForwardOrderAt there."""
    return FORWARD_ORDER + 1 + min(position, _MOST_POSITIONS)


def checked_priority(priority: int | None) -> int:
    """The priority as the operations take it."""
    if priority is None:
        return BACKWARD_ORDER
    least = forward_order_at(_MOST_POSITIONS) + 1
    number = _integer(priority, "priority")
    if not least <= number < 2**31:
        raise ValueError(f"priority must be from {least} to {2**31 - 1}, got {priority}")
    return number


def checked_root_rank(root_rank: int, process_set: ProcessSet | None = None) -> int:
    """The rank of the worker whose value counts. Before `init` no operation can run anyway."""
    number = _integer(root_rank, "root_rank")
    size = runtime.size() if runtime.is_initialized() else number + 1
    if not 0 <= number < size:
        raise ValueError(f"root_rank must be a rank from 0 to {size - 1}, got {number}")
    if isinstance(process_set, ProcessSet) and number not in process_set.ranks:
        ranks = ", ".join(map(str, process_set.ranks))
        raise ValueError(
            f"root_rank must be the rank in the job of a worker of the process set, {ranks}; got "
            f"{number}"
        )
    return number


def _integer(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, got {value!r}") from None


def checked_gradient(gradient: str) -> str:
    """How the workers' gradients of one tensor are combined, as the operations take it."""
    if gradient not in ("average", "sum"):
        raise ValueError(f"gradient must be 'average' or 'sum', got {gradient!r}")
    return str(gradient)
