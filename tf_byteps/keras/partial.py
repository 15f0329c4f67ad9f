"""`PartialDistributedOptimizer`: a `DistributedOptimizer` that leaves some layers out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import keras

from tf_byteps.keras.optimizer import DistributedOptimizer

if TYPE_CHECKING:
    from tf_byteps.exchange.gradient_arguments import LocalLayers

OptimizerT = TypeVar("OptimizerT", bound=keras.optimizers.Optimizer)


def PartialDistributedOptimizer(  # noqa: N802 (its name in Horovod)
    optimizer: OptimizerT, *args: object, local_layers: LocalLayers = None, **kwargs: object
) -> OptimizerT:
    """A `DistributedOptimizer` that applies to some layers the gradients of this worker alone.

    For layers of which each worker has its own: one of another part of a model, or of its own data.
    Their variables are not compared before the first step. `BroadcastGlobalVariablesCallback` gives
    them the root's values, unless they are among its `local_variables`.

    Args:
        optimizer: a `keras.optimizers.Optimizer`, built or not.
        *args, **kwargs: those of `DistributedOptimizer`. The local gradients are divided by the
            number of workers, as averages are, unless `scale_local_gradients=False`.
        local_layers: a `keras.layers.Layer`, or a list of them, built or not. Without them this is
            `DistributedOptimizer`.

    Returns:
        The optimizer.

    Raises:
        TypeError: there is something else than layers in `local_layers`.
        ValueError: see `DistributedOptimizer`.
        NotImplementedError: a process set is given.

    Example:

    >>> own = keras.layers.Dense(10)  # each worker's
    >>> optimizer = tf_byteps.PartialDistributedOptimizer(
    ...     keras.optimizers.Adam(1e-3), local_layers=[own]
    ... )
    """
    distribute = cast("Callable[..., Any]", DistributedOptimizer)
    distributed = distribute(optimizer, *args, **kwargs)
    distributed.byteps_reduction.register_local_layers(local_layers)
    return distributed
