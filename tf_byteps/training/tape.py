"""A gradient tape whose gradients are those of all workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.compression_choice import CompressionChoice
from tf_byteps.exchange.process_sets import ProcessSet
from tf_byteps.ops import Average, Compression, ReduceOp
from tf_byteps.training.gradient_reduction import GradientReduction

if TYPE_CHECKING:
    from tf_byteps.exchange.gradient_arguments import LocalLayers


class DistributedGradientTape(tf.GradientTape):
    """A `tf.GradientTape` whose `gradient` returns the average over all workers.

    It is the given tape, seen in another way: both record the same operations, and the given one
    still returns local gradients. `jacobian` and `batch_jacobian` stay local.

    Args:
        gradtape: the `tf.GradientTape` to wrap, before, while or after it records.
        device_dense: accepted for compatibility and not used.
        device_sparse: accepted for compatibility and not used.
        compression: a member of `tf_byteps.Compression` or its name, or a function that returns one
            (or `None`) for a source; see docs/compression.md.
        sparse_as_dense: whether to turn `tf.IndexedSlices` into dense tensors before the exchange.
        op: `tf_byteps.Average` (the default) or `Sum`, or its name.
        gradient_predivide_factor: a number f, with `op=Average` only: gradients are divided by f
            before the exchange, and the average is multiplied by f after it.
        num_groups: accepted for compatibility and not used: every gradient is exchanged by itself.
        groups: like `num_groups`.
        process_set: a `tf_byteps.ProcessSet` of the workers that reduce the gradients, of which
            this is one. Default: all workers.
        scale_local_gradients: whether the gradients of local sources are divided by the number of
            workers, as those of the others are.
        backup_workers: a number b, with `op=Average` only: the average does not wait for the last b
            workers, whose gradients are dropped; `tf.IndexedSlices` wait for all. Default: the
            configuration's. See docs/stragglers.md.
        merge_repeated_rows: whether the rows of `tf.IndexedSlices` that belong to one index are
            added up before they are used, as in the dense gradient; see `BytePSStrategy`.

    Raises:
        ValueError: `op` is neither an average nor a sum, or this worker is not in the process set.

    Example:

    ```python
    with tf_byteps.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = loss_fn(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    ```
    """

    # Slots, because the attributes are the wrapped tape's.
    __slots__ = ("_gradtape", "_reduction")

    def __init__(
        self,
        gradtape: tf.GradientTape,
        device_dense: str = "",
        device_sparse: str = "",
        compression: CompressionChoice = Compression.none,
        sparse_as_dense: bool = False,
        op: ReduceOp | str = Average,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: object = None,
        process_set: ProcessSet | None = None,
        scale_local_gradients: bool = True,
        backup_workers: int | None = None,
        merge_repeated_rows: bool = True,
    ) -> None:
        del device_dense, device_sparse, num_groups, groups
        if not isinstance(gradtape, tf.GradientTape):
            raise TypeError(f"gradtape must be a tf.GradientTape, got {gradtape!r}")
        self.__dict__ = gradtape.__dict__
        self._gradtape = gradtape
        self._reduction = GradientReduction(
            op,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            scale_local_gradients,
            backup_workers=backup_workers,
            merge_repeated_rows=merge_repeated_rows,
            process_set=process_set,
        )

    def register_local_source(self, source: Any) -> None:
        """Leaves the gradient of a source as this worker computes it.

        Args:
            source: a `tf.Variable`, `keras.Variable` or `tf.Tensor`, to be among the sources of
                `gradient`; for example an embedding of which each worker has another part.
        """
        self._reduction.register_local(source)

    def register_local_layers(self, layers: LocalLayers) -> None:
        """Leaves the gradients of all variables of layers as this worker computes them.

        Args:
            layers: a `keras.layers.Layer`, or some of them; those that are not built yet, too.

        Raises:
            TypeError: something else is among them.
        """
        self._reduction.register_local_layers(layers)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Computes the gradient on this worker's batch and reduces it over all workers.

        Args:
            target: see `tf.GradientTape.gradient`.
            sources: variables or tensors, or a nested structure of them; the same on all workers.
            output_gradients: see `tf.GradientTape.gradient`.
            unconnected_gradients: see `tf.GradientTape.gradient`.

        Returns:
            The reduced gradients, in the structure of `sources`; `None` where a source is not
            connected to the target: it must then be so on all workers.
        """
        if runtime.config().enable_async:
            raise ValueError(
                "BYTEPS_ENABLE_ASYNC is 1, and a tape has gradients, not changes of weights: unset "
                "it, or use DistributedOptimizer, or push_pull(enable_async=True) of the changes"
            )
        gradients = self._gradtape.gradient(
            target, sources, output_gradients, unconnected_gradients
        )
        flat_sources = tf.nest.flatten(sources)
        reduced = self._reduction.reduce(tf.nest.flatten(gradients), flat_sources)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Sequence[Any], output_gradients: Any = None
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """What `gradient` returns, apart for sources that stay local and for all others.

        Args:
            target: see `tf.GradientTape.gradient`.
            sources: a list of variables or tensors; the same on all workers.
            output_gradients: see `tf.GradientTape.gradient`.

        Returns:
            A list of pairs of a local source and its gradient, and one of the other sources.
        """
        sources = list(sources)
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients), strict=True))
        is_local = self._reduction.is_local
        return (
            [pair for pair in pairs if is_local(pair[0])],
            [pair for pair in pairs if not is_local(pair[0])],
        )

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Like `tf.GradientTape.jacobian`: this worker's own."""
        return self._gradtape.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Like `tf.GradientTape.batch_jacobian`: this worker's own."""
        return self._gradtape.batch_jacobian(*args, **kwargs)


def PartialDistributedGradientTape(  # noqa: N802 (its name in Horovod)
    gradtape: tf.GradientTape, *args: object, local_layers: LocalLayers = None, **kwargs: object
) -> DistributedGradientTape:
    """A `DistributedGradientTape` that leaves the gradients of some layers as they are.

    For layers of which each worker has its own: one of another part of a model, or of its own data.

    Args:
        gradtape: the `tf.GradientTape` to wrap.
        *args, **kwargs: those of `DistributedGradientTape`. The local gradients are divided by the
            number of workers, as averages are, unless `scale_local_gradients=False`.
        local_layers: a `keras.layers.Layer`, or a list of them, built or not. Without them this is
            `DistributedGradientTape`.

    Returns:
        The tape.

    Raises:
        TypeError: there is something else than layers in `local_layers`.
        ValueError: see `DistributedGradientTape`.

    Example:

    ```python
    with tf.GradientTape() as tape:
        loss = loss_fn(labels, model(images, training=True))
    tape = tf_byteps.PartialDistributedGradientTape(tape, local_layers=model.get_layer("own"))
    gradients = tape.gradient(loss, model.trainable_variables)
    ```
    """
    distribute = cast("Callable[..., DistributedGradientTape]", DistributedGradientTape)
    tape = distribute(gradtape, *args, **kwargs)
    tape.register_local_layers(local_layers)
    return tape
