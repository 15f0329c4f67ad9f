"""Variables that are overwritten with their gradient instead of being updated by it.

float8 training finds scales in that way, from a history of the largest numbers of each step. All
workers must scale alike, by what is largest on any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.ops import Max, names
from tf_byteps.ops.reduction import Reduction

if TYPE_CHECKING:
    import keras


def reduce_overwriting(
    gradients: Sequence[Any], variables: Sequence[keras.Variable], scope: str = ""
) -> list[Any]:
    """Takes the largest numbers over all workers for variables that are overwritten.

    Args:
        gradients: a list of `tf.Tensor` or `tf.IndexedSlices`; of other variables also `None`.
        variables: what they are gradients of.
        scope: a prefix of the exchanges' names.

    Returns:
        The list, with the gradients of other variables as they were.
    """
    reduction = Reduction(Max)
    return [
        reduction.exchange(reduction.prepare(gradient), _name(variable, scope))
        if is_overwritten(variable)
        else gradient
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


def _name(variable: keras.Variable, scope: str) -> str:
    return names.numbered(names.in_scope(scope, f"overwriting/{variable.path}"))
