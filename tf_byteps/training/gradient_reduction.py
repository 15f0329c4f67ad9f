"""What `DistributedGradientTape` and `DistributedOptimizer` have in common."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps.exchange.backup import backup_workers as checked_backup_workers
from tf_byteps.exchange.gradient_arguments import GradientArguments
from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.exchange.reduce_op import Average
from tf_byteps.gradients.reducing import reduce_gradients
from tf_byteps.ops.factors import factor_of
from tf_byteps.ops.process_sets import size_in
from tf_byteps.ops.reduction import Reduction


class GradientReduction(GradientArguments):
    """TensorFlow's reduction of gradients, as arguments say that are checked.

    Args:
        *args, **kwargs: those of `GradientArguments`.
    """

    def reduce(
        self, gradients: Iterable[Any], variables: Sequence[Any], multiplier: float = 1.0
    ) -> list[Any]:
        """Reduces the gradients over all workers, but for those of local variables, and those that
        are a variable's new value.

        Args:
            gradients: a list of `tf.Tensor`, `tf.IndexedSlices` or `None`.
            variables: what they are gradients of.
            multiplier: a number that every result is multiplied by.

        Returns:
            The list of results.
        """
        reduction = Reduction(
            self.op,
            self.compression,
            prescale_factor=1.0 / self.predivide_factor,
            postscale_factor=self.predivide_factor * multiplier,
            sparse_as_dense=self.sparse_as_dense,
            backup_workers=checked_backup_workers(self.backup_workers),
            merge_repeated_rows=self.merge_repeated_rows,
            workers=self.workers,
        )
        gradients = list(gradients)
        local = [self.is_local(variable) for variable in variables]
        common = [
            index
            for index, variable in enumerate(variables)
            if not local[index] and not is_overwritten(variable)
        ]
        reduced = reduce_gradients(
            [gradients[index] for index in common],
            [variables[index] for index in common],
            reduction,
            self.scope,
        )
        for index, gradient in zip(common, reduced, strict=True):
            gradients[index] = gradient
        for index, is_local in enumerate(local):
            if is_local and gradients[index] is not None:
                gradients[index] = self._scaled_local(gradients[index], multiplier)
        return gradients

    def _scaled_local(self, gradient: Any, multiplier: float) -> Any:
        is_average = self.scale_local_gradients and self.op == Average

        def scale(tensor: tf.Tensor) -> tf.Tensor:
            factor = factor_of(multiplier, tensor.dtype)
            if is_average:
                factor /= tf.cast(size_in(f"{self.workers}/"), tensor.dtype)
            return tensor * factor

        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(scale(gradient.values), gradient.indices, gradient.dense_shape)
        return scale(gradient)

    def _identity(self, variable: Any) -> Any:
        """What a `keras.Variable` and its `tf.Variable` have in common."""
        return (
            variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)
        )
