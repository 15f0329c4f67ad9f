"""`DistributedOptimizer`: a Keras optimizer that applies the gradients of all workers."""

from __future__ import annotations

from typing import TypeVar

import keras

from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.compression_choice import CompressionChoice
from tf_byteps.exchange.process_sets import ProcessSet
from tf_byteps.exchange.reduce_op import Average, ReduceOp
from tf_byteps.keras import hooks
from tf_byteps.keras.distributed import DistributedBase, accumulate, innermost, view
from tf_byteps.keras.framework import current

OptimizerT = TypeVar("OptimizerT", bound=keras.optimizers.Optimizer)


def DistributedOptimizer(  # noqa: N802 (its name in BytePS and Horovod)
    optimizer: OptimizerT,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: CompressionChoice = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp | str = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: object = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
    use_locking: bool = False,
    backup_workers: int | None = None,
    merge_repeated_rows: bool = True,
) -> OptimizerT:
    """Makes a Keras optimizer apply the average of all workers' gradients.

    Go on with the returned optimizer only: it is the given one, with its variables, iterations and
    slots, as an object of a subclass of the same name. Models that are saved with it open in plain
    Keras. Keras may run on TensorFlow or on JAX.

    Args:
        optimizer: a `keras.optimizers.Optimizer`, built or not; a `LossScaleOptimizer` too. Keras's
            own `gradient_accumulation_steps` is respected: gradients are exchanged once for each
            update.
        name: a prefix of the exchanges' names, the same on all workers. By default an exchange is
            named after the variable's path alone.
        device_dense: accepted for compatibility and not used.
        device_sparse: accepted for compatibility and not used.
        compression: a member of `tf_byteps.Compression` or its name, or a function that returns one
            (or `None`) for a variable; see docs/compression.md.
        sparse_as_dense: whether to turn `tf.IndexedSlices` (of embeddings) into dense tensors
            before the exchange. On JAX gradients are dense.
        backward_passes_per_step: a number k of steps, of which only the last updates, with the sum
            of the gradients of all k. Sets Keras's `gradient_accumulation_steps`, so that
            `iterations` counts updates.
        op: `tf_byteps.Average` (the default) or `Sum`, or its name.
        gradient_predivide_factor: a number f, with `op=Average` only: gradients are divided by f
            before the exchange, and the average is multiplied by f after it. Needed only if
            `compression` could overflow: servers add up 16-bit floats in float32.
        average_aggregated_gradients: whether the sum over `backward_passes_per_step` steps is
            divided by their number.
        num_groups: accepted for compatibility and not used: every gradient is exchanged by itself.
        groups: like `num_groups`.
        process_set: a `tf_byteps.ProcessSet` of the workers that reduce the gradients, of which
            this is one. `fit` is still called by all workers of the job. Default: all workers.
        scale_local_gradients: whether the gradients of local variables (`register_local_var`) are
            divided by the number of workers, as those of the others are.
        use_locking: accepted for compatibility and not used.
        backup_workers: a number b, with `op=Average` only: the average does not wait for the last b
            workers, whose gradients are dropped; `tf.IndexedSlices` wait for all. Default: the
            configuration's. See docs/stragglers.md. Not on JAX.
        merge_repeated_rows: whether the rows of `tf.IndexedSlices` that belong to one index are
            added up before they are used, as in the dense gradient; see `BytePSStrategy`.

    Returns:
        The optimizer.

    Raises:
        TypeError: `optimizer` is not a Keras 3 optimizer.
        ValueError: it is distributed already, or an argument cannot be used.
        NotImplementedError: an argument asks for what does not work on JAX.

    Example:

    >>> optimizer = tf_byteps.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    >>> model.compile(optimizer, "sparse_categorical_crossentropy")
    """
    del device_dense, device_sparse, num_groups, groups, use_locking
    framework = current()
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"optimizer must be a Keras 3 optimizer, got {optimizer!r}; {framework.otherwise}"
        )
    if isinstance(innermost(optimizer), DistributedBase):
        raise ValueError(f"the optimizer {optimizer.name!r} is distributed already")
    reduction = framework.reduction(
        op,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        scale_local_gradients,
        name or "",
        backup_workers,
        merge_repeated_rows,
        process_set,
    )
    multiplier = 1.0
    if backward_passes_per_step != 1:
        accumulate(innermost(optimizer), backward_passes_per_step)
        # Keras averages over the steps.
        multiplier = 1.0 if average_aggregated_gradients else float(backward_passes_per_step)
    hooks.install(framework)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer.inner_optimizer = view(
            optimizer.inner_optimizer, framework.classes, reduction, multiplier
        )
    return view(optimizer, framework.classes, reduction, multiplier)
