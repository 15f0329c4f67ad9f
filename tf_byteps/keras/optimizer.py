"""`DistributedOptimizer`: a Keras optimizer that applies the gradients of all workers.

It is the given optimizer in a subclass that bears the same name, so that a saved model opens in
plain Keras. Where the reduction happens:

* in the outermost `apply`, before clipping and before a `LossScaleOptimizer` looks for overflow;
* with gradient accumulation, in the step that updates: pushed once for each update. Within a
  `LossScaleOptimizer` workers agree in the other steps whether the gradients of all are finite
  (protocol rule 27).

Within `BytePSStrategy` the strategy reduces, and this class does nothing. With
`BYTEPS_ENABLE_ASYNC=1` workers exchange changes of weights instead: see `asynchronous`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import keras
import tensorflow as tf

from tf_byteps.exchange.compression_choice import CompressionChoice
from tf_byteps.exchange.unsupported import refuse_process_set
from tf_byteps.gradients import updates
from tf_byteps.gradients.accumulation import reduce_if_updating
from tf_byteps.gradients.overwriting import reduce_overwriting
from tf_byteps.gradients.reducing import finite_everywhere
from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.keras import asynchronous, first_step, hooks
from tf_byteps.ops import Average, Compression, ReduceOp
from tf_byteps.private.keras import object_registration
from tf_byteps.training.gradient_reduction import GradientReduction
from tf_byteps.types import Gradient, Variable

OptimizerT = TypeVar("OptimizerT", bound=keras.optimizers.Optimizer)


if TYPE_CHECKING:
    _Optimizer = keras.optimizers.Optimizer
    _LossScaleOptimizer = keras.optimizers.LossScaleOptimizer
else:  # the class that is given comes behind them
    _Optimizer = _LossScaleOptimizer = object


class Distributed(_Optimizer):
    """What is put before an optimizer's own class. `DistributedOptimizer` fills in the attributes.

    Attributes:
        byteps_base: the optimizer's own class.
        byteps_reduction: a `GradientReduction`.
        byteps_multiplier: a number that reduced gradients are multiplied by.
    """

    byteps_base: type[keras.optimizers.Optimizer]
    byteps_reduction: GradientReduction
    byteps_multiplier = 1.0

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *args: object, **kwargs: object) -> Any:
        return cls.byteps_base.from_config(config, *args, **kwargs)

    def register_local_var(self, variable: Variable) -> None:
        """Leaves the gradient of a variable as each worker computes it.

        Args:
            variable: a `keras.Variable` or `tf.Variable` that this optimizer updates.
        """
        self.byteps_reduction.register_local(variable)

    def apply(
        self, grads: list[Gradient], trainable_variables: list[Variable] | None = None
    ) -> Any:
        """See `keras.optimizers.Optimizer.apply`; reduces the gradients over all workers first."""
        if self._strategy_reduces() or updates.current() is not None:
            return super().apply(grads, trainable_variables)
        variables = list(trainable_variables or self._trainable_variables)
        first_step.check(self, variables)
        if asynchronous.is_on():
            if _innermost(self) is not self:  # which exchanges, in a step that updates
                return super().apply(grads, trainable_variables)
            update = functools.partial(super().apply, grads, trainable_variables)
            return asynchronous.apply(self, update, variables)
        with updates.updating(self, variables) as update:
            if not _innermost(self).gradient_accumulation_steps:
                grads = update.reduce_once(grads, self._reduced)
            return super().apply(grads, trainable_variables)

    def _backend_apply_gradients(
        self, grads: list[Gradient], trainable_variables: list[Variable]
    ) -> Any:
        if asynchronous.is_on():  # this worker's own
            return super()._backend_apply_gradients(grads, trainable_variables)
        with updates.updating(self, trainable_variables):
            return super()._backend_apply_gradients(grads, trainable_variables)

    def _overwrite_variables_directly_with_gradients(
        self, grads: list[Gradient], variables: list[Variable]
    ) -> Any:
        if updates.current() is not None and not in_our_replica():
            grads = reduce_overwriting(grads, variables, self.byteps_reduction.scope)
        return super()._overwrite_variables_directly_with_gradients(grads, variables)

    def _clip_gradients(self, grads: list[Gradient]) -> Any:
        # The first thing that Keras does with accumulated gradients.
        update = updates.current()
        if update is not None and not in_our_replica():
            grads = update.reduce_once(grads, self._reduced)
        return super()._clip_gradients(grads)

    def _reduced(self, grads: Iterable[Any], variables: Iterable[Any]) -> list[Any]:
        return self.byteps_reduction.reduce(list(grads), list(variables), self.byteps_multiplier)

    def _strategy_reduces(self) -> bool:
        if in_our_replica():
            reduction = self.byteps_reduction
            if not reduction.is_plain or reduction.has_local or self.byteps_multiplier != 1:
                raise ValueError(
                    "within BytePSStrategy the strategy reduces the gradients: leave out the "
                    "arguments of DistributedOptimizer that say how, and what stays local, or "
                    "train without the strategy"
                )
            return True
        strategy = tf.distribute.get_strategy()
        if strategy.num_replicas_in_sync > 1:
            raise RuntimeError(
                f"DistributedOptimizer has one replica in each process, but {type(strategy)} has "
                f"{strategy.num_replicas_in_sync}: train without it, or with BytePSStrategy"
            )
        return False


class DistributedLossScale(Distributed, _LossScaleOptimizer):
    """What is put before the class of a `LossScaleOptimizer`."""

    def check_finite(self, grads: list[Gradient]) -> Any:
        update = updates.current()
        if update is None or in_our_replica():
            return super().check_finite(grads)
        if update.reduced:
            return self._check_reduced(grads)
        finite, update.reduced_of = reduce_if_updating(
            self, grads, update.variables, super().check_finite, self._reduced_and_checked
        )
        return finite

    def _check_reduced(self, grads: list[Gradient]) -> Any:
        finite = super().check_finite(grads)
        # Without local gradients they, and so the answer, are the same on all workers.
        return finite_everywhere(finite) if self.byteps_reduction.has_local else finite

    def _reduced_and_checked(
        self, grads: list[Gradient], variables: list[Variable]
    ) -> tuple[Any, Any]:
        grads = self._reduced(grads, variables)
        return grads, self._check_reduced(grads)


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
    process_set: None = None,
    scale_local_gradients: bool = True,
    use_locking: bool = False,
    backup_workers: int | None = None,
    merge_repeated_rows: bool = True,
) -> OptimizerT:
    """Makes a Keras optimizer apply the average of all workers' gradients.

    Go on with the returned optimizer only: it is the given one, with its variables, iterations and
    slots, as an object of a subclass of the same name. Models that are saved with it open in plain
    Keras.

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
            before the exchange.
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
        process_set: must be `None`: gradients are reduced over all workers.
        scale_local_gradients: whether the gradients of local variables (`register_local_var`) are
            divided by the number of workers, as those of the others are.
        use_locking: accepted for compatibility and not used.
        backup_workers: a number b, with `op=Average` only: the average does not wait for the last b
            workers, whose gradients are dropped; `tf.IndexedSlices` wait for all. Default: the
            configuration's. See docs/stragglers.md.
        merge_repeated_rows: whether the rows of `tf.IndexedSlices` that belong to one index are
            added up before they are used, as in the dense gradient; see `BytePSStrategy`.

    Returns:
        The optimizer.

    Raises:
        TypeError: `optimizer` is not a Keras 3 optimizer.
        ValueError: it is distributed already, or an argument cannot be used.
        NotImplementedError: `process_set` is given.

    Example:

    >>> optimizer = tf_byteps.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    >>> model.compile(optimizer, "sparse_categorical_crossentropy")
    """
    del device_dense, device_sparse, num_groups, groups, use_locking
    refuse_process_set(process_set)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"optimizer must be a Keras 3 optimizer, got {optimizer!r}; in a training loop of your "
            "own, DistributedGradientTape works with any optimizer"
        )
    if isinstance(_innermost(optimizer), Distributed):
        raise ValueError(f"the optimizer {optimizer.name!r} is distributed already")
    reduction = GradientReduction(
        op,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        scale_local_gradients,
        name or "",
        backup_workers,
        merge_repeated_rows,
    )
    multiplier = 1.0
    if backward_passes_per_step != 1:
        _accumulate(_innermost(optimizer), backward_passes_per_step)
        # Keras averages over the steps.
        multiplier = 1.0 if average_aggregated_gradients else float(backward_passes_per_step)
    hooks.install(Distributed, distribute_loss_scale)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer.inner_optimizer = _view(optimizer.inner_optimizer, reduction, multiplier)
    return _view(optimizer, reduction, multiplier)


def distribute_loss_scale(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes a new `LossScaleOptimizer` around a distributed optimizer distributed itself, in place.

    Otherwise each worker would decide by its own gradients whether to skip a step, and those that
    do not skip would wait for the others for ever.
    """
    inner = optimizer.inner_optimizer
    cls = _subclass(type(optimizer), inner.byteps_reduction, inner.byteps_multiplier)
    object.__setattr__(optimizer, "__class__", cls)


def _innermost(optimizer: keras.optimizers.Optimizer) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)


def _view(
    optimizer: keras.optimizers.Optimizer, reduction: GradientReduction, multiplier: float
) -> Any:
    """The optimizer as an object of the distributed subclass. Both objects share all state."""
    cls = _subclass(type(optimizer), reduction, multiplier)
    view = object.__new__(cls)
    object.__setattr__(view, "__dict__", optimizer.__dict__)
    return view


def _subclass(base: type, reduction: GradientReduction, multiplier: float) -> type:
    is_loss_scale = issubclass(base, keras.optimizers.LossScaleOptimizer)
    mixin = DistributedLossScale if is_loss_scale else Distributed
    attributes = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "byteps_base": base,
        "byteps_reduction": reduction,
        "byteps_multiplier": multiplier,
    }
    cls = type(base.__name__, (mixin, base), attributes)
    if base in object_registration.GLOBAL_CUSTOM_NAMES:
        # So that it is saved under the name of a user's registered class.
        object_registration.GLOBAL_CUSTOM_NAMES[cls] = object_registration.GLOBAL_CUSTOM_NAMES[base]
    return cls


def _accumulate(optimizer: keras.optimizers.Optimizer, steps: int) -> None:
    """Turns on Keras's gradient accumulation, for an optimizer that may be built already."""
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(
            f"backward_passes_per_step must be an integer of at least 1, got {steps!r}"
        )
    if optimizer.gradient_accumulation_steps:
        raise ValueError(
            f"the optimizer has gradient_accumulation_steps={optimizer.gradient_accumulation_steps}"
            ": leave out backward_passes_per_step"
        )
    optimizer.gradient_accumulation_steps = steps
    # Keras counts steps there, and divides.
    optimizer._iterations.assign(optimizer._iterations * steps)
    if optimizer.built:
        optimizer._accumulated_gradients = [
            optimizer.add_variable_from_reference(variable, name="gradient_accumulator")
            for variable in optimizer._trainable_variables
        ]
