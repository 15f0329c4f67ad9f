"""A training step that is traced again when its first trace has shown what it does."""

import contextlib
import threading
from collections.abc import Hashable, Iterator
from typing import Any

import tensorflow as tf

from tf_byteps.strategy.step import branches
from tf_byteps.strategy.step.gradient_uses import GradientUses
from tf_byteps.strategy.step.scaling import LossScaling

_local = threading.local()


@contextlib.contextmanager
def deciding(
    scaling: LossScaling, uses: GradientUses | None, rows: tf.Tensor | int
) -> Iterator[list[Any]]:
    """Around a step while it is traced, or run eagerly.

    Args:
        scaling: how the step scales its losses.
        uses: what it does with its gradients; `None` if that is known.
        rows: of this worker's piece.

    Yields:
        A list, to which what the step returns is to be added.

    Raises:
        TraceAgain: to be called again.
    """
    with scaling.deciding(), branches.working_on(uses and uses.branches):
        if uses is None:
            yield []
            return
        before = getattr(_local, "decision", None)
        try:
            with uses.deciding(rows) as results:
                _local.decision = uses.are_reduced, uses.are_divided
                yield results
        finally:
            _local.decision = before


def decision() -> Hashable:
    """What the step that this thread traces has decided; `None`: nothing, or there is none.

    A `tf.function` of the program's that a step calls was traced for the first decision.
    """
    return getattr(_local, "decision", None)
